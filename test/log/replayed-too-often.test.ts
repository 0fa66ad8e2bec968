// A delivery that is replayed over and over: its receiver gets a bounded number of runs within an hour.
import { expect, test } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../src/base/model/audit.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { RUNS_PER_HOUR_MAX } from "../../src/base/model/statuses.ts";
import { advanceReplays } from "../../src/log/replay-steps-sql.ts";
import { createReplay, findReplay, replayDelivery, type StoredReplay } from "../../src/log/replays-sql.ts";
import { ATTEMPTS_MAX, failAgain } from "../support/delivery-rows.ts";
import { changeRows, insertAccount, publish, rowOf } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const RETENTION_MS = 7 * 86_400_000;
const database = await openDatabase();

test("what was replayed too often within an hour is not, alone or among many", async () => {
  const accountId = await insertAccount(database.pool);
  const reader = wholeAccount(accountId);
  const id = await publish(database.pool, accountId, '{"id":"often","status":"failed"}');
  await failAgain(database.pool, accountId, id, ATTEMPTS_MAX * RUNS_PER_HOUR_MAX);
  const replay = () => replayDelivery(database.pool, reader, id, RETENTION_MS);
  const runOf = async () => (await rowOf(database.pool, "deliveries", { id })).run;
  expect(await runOf()).toBe(RUNS_PER_HOUR_MAX);
  expect(await replay()).toBe("too_often");

  const asNew = {
    ...{ filter: {}, ratePerSecond: 10, expectedMatched: null, note: null },
    ...{ createdBy: COMMAND_LINE, analysisRetentionMs: RETENTION_MS },
    limits: { runningMax: 9, waitingMax: 9 },
  };
  const creating = inTransaction(database.pool, (client) => createReplay(client, reader, asNew));
  const many = (await creating) as StoredReplay;
  expect(many.matched).toBe(1);
  await advanceReplays(database.pool, RETENTION_MS, new Date(Date.parse(many.created_at) + 1_000));
  expect(await findReplay(database.pool, reader, many.id)).toMatchObject({
    ...{ status: "done", replayed: 0, skipped: 1 },
  });
  expect(await runOf()).toBe(RUNS_PER_HOUR_MAX);

  // All but the oldest of them began within the hour.
  const hourAgo = new Date(Date.now() - 3_600_000);
  await changeRows(database.pool, "attempts", { delivery_id: id, run: 1 }, { started_at: hourAgo });
  expect(await replay()).toBe("replayed");
  expect(await runOf()).toBe(RUNS_PER_HOUR_MAX + 1);
  await changeRows(database.pool, "deliveries", { id }, { status: "failed" });
  expect(await replay()).toBe("too_often");
});
