// What accounts have published, counted behind their publishers, and refused where there is a limit.
import { randomBytes, randomUUID } from "node:crypto";
import { afterEach, beforeEach, expect, test } from "vitest";
import { countPublished, readStorage, writeStorageLimits } from "../../../src/base/database/storage.ts";
import { inTransaction } from "../../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../../src/base/model/audit.ts";
import { wholeAccount } from "../../../src/base/model/reader.ts";
import { storageLimitsOf } from "../../../src/base/model/storage.ts";
import { sequenceEvents } from "../../../src/feed/feed-sql.ts";
import { createReplay, replayDelivery } from "../../../src/log/replays-sql.ts";
import { PublishRefusedError, publishAnalyses } from "../../../src/publish/publish-call-sql.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { begin, changeRows, insertAccount, publish } from "../../support/installation.ts";

const HOLDER = randomUUID();
const LOG_BYTES = 2_048;
const WEEK_MS = 7 * 86_400_000;

let database: TestDatabase;
let accountId: string;
beforeEach(async () => {
  database = await createTestDatabase();
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});
type Transaction = Awaited<ReturnType<typeof begin>>;
const transactions: Transaction[] = [];
afterEach(async () => {
  for (const one of transactions.splice(0)) await one.rollback().catch(() => undefined);
  await database.drop();
});

/** Rolled back after the test at the latest. */
async function open(): Promise<Transaction> {
  const transaction = await begin(database.pool);
  transactions.push(transaction);
  return transaction;
}

const analysis = (id: string) => `{"id":"${id}","status":"succeeded"}`;

async function count(): Promise<void> {
  while ((await sequenceEvents(database.pool, HOLDER, 60_000)).isFull);
  while (await countPublished(database.pool, 0));
}

async function published(of = accountId): Promise<number> {
  const { uses } = await readStorage(database.pool, of);
  return uses.find(({ kind }) => kind === "analyses")!.bytes;
}

/** As its column has it. */
async function storedBytes(): Promise<number> {
  const { rows } = await database.pool.query<{ bytes: number }>(
    "select sum(pg_column_size(analysis) + $2::integer)::float8 as bytes from sealpost.bodies where account_id = $1",
    [accountId, LOG_BYTES],
  );
  return rows[0]!.bytes;
}

const limit = (bytesMax: number | null) =>
  writeStorageLimits(database.pool, storageLimitsOf(2 ** 30, bytesMax));

test("everything is counted once, also what commits after what was published later", async () => {
  const late = await open();
  await publish(late.client, accountId, analysis("late"));
  await publish(database.pool, accountId, analysis("early"));
  await count();
  expect(await published()).toBe(0);
  await late.commit();
  await publish(database.pool, accountId, analysis("last"));
  await count();
  await count();
  expect(await published()).toBe(await storedBytes());
  const given = await open();
  await publish(given.client, accountId, analysis("rolled-back"));
  await given.rollback();
  await publish(database.pool, accountId, analysis("after-it"));
  await count();
  expect(await published()).toBe(await storedBytes());
});

test("an account that is full is refused what is new, alone, until it is so no more", async () => {
  const other = await insertAccount(database.pool, "https://receiver.example.com/");
  await limit(3 * LOG_BYTES);
  const ids = new Map<string, string>();
  for (const id of ["one", "two", "three"]) {
    await count();
    ids.set(id, (await publishAnalyses(database.pool, [{ accountId, analysis: analysis(id) }]))[0]!);
  }
  await count();
  const refused = publishAnalyses(database.pool, [{ accountId, analysis: analysis("four") }]);
  await expect(refused).rejects.toThrow(PublishRefusedError);
  await expect(refused).rejects.toMatchObject({ code: "account_full", index: 0, cause: { code: "SP008" } });
  const batch = [other, accountId].map((of, n) => ({ accountId: of, analysis: analysis(`batch-${n}`) }));
  await expect(publishAnalyses(database.pool, batch)).rejects.toMatchObject({
    code: "account_full",
    index: 1,
  });
  // What is known is the delivery that it was.
  expect(await publishAnalyses(database.pool, [{ accountId, analysis: analysis("two") }])).toEqual([
    ids.get("two"),
  ]);
  expect(await publishAnalyses(database.pool, batch.slice(0, 1))).toHaveLength(1);

  await limit(10 * LOG_BYTES);
  await count();
  expect(await publishAnalyses(database.pool, [{ accountId, analysis: analysis("four") }])).toHaveLength(1);
  await limit(3 * LOG_BYTES);
  await publish(database.pool, accountId, analysis("five"));
  await count();
  await expect(publishAnalyses(database.pool, [{ accountId, analysis: analysis("six") }])).rejects.toThrow();
  await changeRows(database.pool, "published", { account_id: accountId }, { day: "2020-01-01" });
  await count();
  expect(await published()).toBe(0);
  expect(await publishAnalyses(database.pool, [{ accountId, analysis: analysis("six") }])).toHaveLength(1);
  await limit(null);
  await count();
  expect(await publishAnalyses(database.pool, [{ accountId, analysis: analysis("seven") }])).toHaveLength(1);
});

test("attempts count by what they left in the log, and beyond the limit nothing is replayed", async () => {
  const id = await publish(database.pool, accountId, analysis("one"));
  await changeRows(database.pool, "deliveries", { id }, { status: "failed" });
  await count();
  const before = await published();
  await limit(before + 1);
  const text = randomBytes(1_000).toString("hex");
  for (let number = 1; number <= 3; number++) {
    await database.pool.query(
      `insert into sealpost.attempts
         (delivery_id, account_id, run, number, started_at, ended_at, outcome, error_code, response_headers)
       values ($1, $2, 1, $3, now(), now(), 'rejected', 'http_500', $4)`,
      [id, accountId, number, text],
    );
  }
  await count();
  await count();
  const after = await published();
  expect(after - before).toBeGreaterThanOrEqual(3 * (256 + text.length));
  expect(after - before).toBeLessThan(3 * (256 + text.length + 10));

  const reader = wholeAccount(accountId);
  await expect(replayDelivery(database.pool, reader, id, WEEK_MS)).rejects.toMatchObject({ code: "SP009" });
  const asNew = {
    ...{ filter: {}, ratePerSecond: 1, expectedMatched: null, note: null },
    ...{ createdBy: COMMAND_LINE, analysisRetentionMs: WEEK_MS, limits: { runningMax: 9, waitingMax: 9 } },
  };
  const many = inTransaction(database.pool, (client) => createReplay(client, reader, asNew));
  await expect(many).rejects.toMatchObject({ code: "SP009" });
  await expect(publish(database.pool, accountId, analysis("two"))).rejects.toMatchObject({ code: "SP008" });
  await limit(after + 1);
  await count();
  await publish(database.pool, accountId, analysis("three"));
  expect(await replayDelivery(database.pool, reader, id, WEEK_MS)).toBe("replayed");
});

test("the kinds that are shared out are all that an account may store, and what renames leave besides", () => {
  const { analyses, leftovers, ...shares } = storageLimitsOf(16_000, null);
  expect(analyses).toBeNull();
  expect(leftovers).toBe(shares.documents);
  expect(Object.values(shares).reduce((sum: number, share) => sum + share!, 0)).toBe(16_000);
});
