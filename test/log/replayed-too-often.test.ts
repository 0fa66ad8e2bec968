// A delivery that is replayed over and over: its receiver gets a bounded number of runs within an hour.
import { expect, test } from "vitest";
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { type Actor, COMMAND_LINE } from "../../src/base/model/audit.ts";
import { NO_SPACES, type Reader, wholeAccount } from "../../src/base/model/reader.ts";
import { RUNS_PER_HOUR_MAX, RUNS_PER_HOUR_OF_USER_MAX } from "../../src/base/model/statuses.ts";
import { advanceReplays } from "../../src/log/replay-steps-sql.ts";
import { createReplay, findReplay, replayDelivery, type StoredReplay } from "../../src/log/replays-sql.ts";
import { ATTEMPTS_MAX, failAgain } from "../support/delivery-rows.ts";
import { changeRows, createTestUser, insertAccount, publish, rowOf } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const RETENTION_MS = 7 * 86_400_000;
const database = await openDatabase();

/** A bulk replay of what there is, after its only step. */
async function inBulk(reader: Reader, createdBy: Actor): Promise<StoredReplay | null> {
  const asNew = {
    ...{ filter: {}, ratePerSecond: 10, expectedMatched: null, note: null },
    ...{ createdBy, analysisRetentionMs: RETENTION_MS },
    limits: { runningMax: 9, waitingMax: 9 },
  };
  const creating = inTransaction(database.pool, (client) => createReplay(client, reader, asNew));
  const many = (await creating) as StoredReplay;
  expect(many.matched).toBe(1);
  await advanceReplays(database.pool, RETENTION_MS, new Date(Date.parse(many.created_at) + 1_000));
  return await findReplay(database.pool, reader, many.id);
}

test("what was replayed too often within an hour is not, alone or among many", async () => {
  const accountId = await insertAccount(database.pool);
  const reader = wholeAccount(accountId);
  const id = await publish(database.pool, accountId, '{"id":"often","status":"failed"}');
  await failAgain(database.pool, accountId, id, ATTEMPTS_MAX * RUNS_PER_HOUR_MAX);
  const replay = () => replayDelivery(database.pool, reader, id, RETENTION_MS);
  const runOf = async () => (await rowOf(database.pool, "deliveries", { id })).run;
  expect(await runOf()).toBe(RUNS_PER_HOUR_MAX);
  expect(await replay()).toBe("too_often");

  expect(await inBulk(reader, COMMAND_LINE)).toMatchObject({ status: "done", replayed: 0, skipped: 1 });
  expect(await runOf()).toBe(RUNS_PER_HOUR_MAX);

  // All but the oldest of them began within the hour.
  const hourAgo = new Date(Date.now() - 3_600_000);
  await changeRows(database.pool, "attempts", { delivery_id: id, run: 1 }, { started_at: hourAgo });
  expect(await replay()).toBe("replayed");
  expect(await runOf()).toBe(RUNS_PER_HOUR_MAX + 1);
  await changeRows(database.pool, "deliveries", { id }, { status: "failed" });
  expect(await replay()).toBe("too_often");
});

test("keys of users, one by one or in bulk, leave half of an hour's runs for the account", async () => {
  const accountId = await insertAccount(database.pool);
  const { id: userId } = await createTestUser(database.pool, accountId);
  const asked = { accountId, userId, name: null, scopes: ["webhooks:replay"], expiresInSeconds: null };
  const { keyId } = await createApiKey(database.pool, readConfig({}), asked);
  const [account, user] = [wholeAccount(accountId), { accountId, spaceIds: NO_SPACES }];
  const id = await publish(database.pool, accountId, '{"id":"shared","status":"failed"}');
  await failAgain(database.pool, accountId, id, ATTEMPTS_MAX * (RUNS_PER_HOUR_OF_USER_MAX - 1));
  const replay = async (reader: Reader) => {
    await changeRows(database.pool, "deliveries", { id }, { status: "failed", reason: null });
    return await replayDelivery(database.pool, reader, id, RETENTION_MS);
  };
  expect(await replay(user)).toBe("replayed");
  expect(await replay(user)).toBe("too_often");
  const byUser: Actor = { ...COMMAND_LINE, kind: "key", keyId };
  expect(await inBulk(user, byUser)).toMatchObject({ replayed: 0, skipped: 1 });
  expect(await inBulk(account, COMMAND_LINE)).toMatchObject({ replayed: 1, skipped: 0 });
  expect(await replay(account)).toBe("replayed");
  expect(await replay(user)).toBe("too_often");
});
