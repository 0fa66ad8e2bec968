import type { Pool } from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { readPartitionLevels, readQueueLevels } from "../../src/app/database-gauges-sql.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import {
  changeRows,
  deleteRows,
  dropPartitionAhead,
  flushStatistics,
  forgetOpen,
  insertAccount,
  insertRow,
  makePartitionsFrom,
  publish,
} from "../support/installation.ts";
import { openGaugePool } from "../support/log-pool.ts";
import { patience } from "../support/time-limits.ts";
import { addJobs, lockJobs } from "../support/wakeup-jobs.ts";

let database: TestDatabase;
let pool: Pool;
let accountId: string;

beforeAll(async () => {
  database = await createTestDatabase();
  pool = openGaugePool(database.url);
  accountId = await insertAccount(database.pool);
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

type OpenRow = {
  readonly lane: number;
  /** Seconds from now; negative: ago. */
  readonly dueIn: number;
  readonly leaseFor?: number;
  readonly wakeIn?: number;
};

async function insertOpen({ lane, dueIn, leaseFor, wakeIn = Math.max(dueIn, 1) }: OpenRow, count = 1) {
  await database.pool.query(
    `insert into sealpost.open_deliveries
       (delivery_id, account_id, lane, due_at, wake_at, body_bytes, lease_token, lease_until)
     select sealpost.uuid_v7(), $1, $2, now() + $3 * interval '1 s', now() + $4 * interval '1 s', 10,
       case when $5::float8 is not null then gen_random_uuid() end, now() + $5::float8 * interval '1 s'
     from generate_series(1, $6::integer)`,
    [accountId, lane, dueIn, wakeIn, leaseFor ?? null, count],
  );
}

describe("the queue's levels", () => {
  beforeEach(() => forgetOpen(database.pool));

  test("of an empty queue are 0", async () => {
    expect(await readQueueLevels(pool)).toMatchObject({
      due: 0,
      held: 0,
      oldestDueIdleSeconds: 0,
      oldestDueAtWorkSeconds: 0,
      wakeupsWaiting: 0,
      replayDeliveriesWaiting: 0,
    });
  });

  test("count what is held, apart from what is due", async () => {
    await database.pool.query(
      `insert into sealpost.held_deliveries (account_id, delivery_id, body_bytes)
       select $1, sealpost.uuid_v7(), 10 from generate_series(1, 3)`,
      [accountId],
    );
    await insertOpen({ lane: 1, dueIn: -5 });
    expect(await readQueueLevels(pool)).toMatchObject({ due: 1, held: 3 });
    await database.pool.query("delete from sealpost.held_deliveries");
  });

  const answered = (lane: number) =>
    insertRow(database.pool, "answered_lanes", { account_id: accountId, lane });

  /** What the account has published is for a receiver that has been proven long ago. */
  async function prove() {
    await setEndpoint(database.pool, accountId, "https://hooks.example.com/in");
    const proven = { proven_at: new Date(), proven_since: new Date(0), next_at: null };
    const row = { account_id: accountId, origin: "https://hooks.example.com", ...proven };
    await insertRow(database.pool, "receivers", row);
  }

  async function forgetReceiver() {
    await deleteRows(database.pool, "receivers", {});
    await deleteRows(database.pool, "endpoints", { account_id: accountId });
  }

  test("count what is due, and tell lanes at work from lanes that nobody serves", async () => {
    await prove();
    await answered(2);
    await insertOpen({ lane: 1, dueIn: -300 });
    await insertOpen({ lane: 1, dueIn: -400, leaseFor: 10 });
    await insertOpen({ lane: 2, dueIn: -90 }, 3);
    await insertOpen({ lane: 3, dueIn: -5 });
    // Not due yet, though the promoter looks soon; and one that is far ahead.
    await insertOpen({ lane: 4, dueIn: 5 });
    await insertOpen({ lane: 5, dueIn: 3_600 });
    // A lease that has ended is nobody's.
    await insertOpen({ lane: 6, dueIn: -10, leaseFor: -1 });
    const levels = await readQueueLevels(pool);
    expect(levels).toMatchObject({ due: 6 });
    expect(levels.oldestDueIdleSeconds).toBeGreaterThan(89);
    expect(levels.oldestDueIdleSeconds).toBeLessThan(90 + patience(10));
    expect(levels.oldestDueAtWorkSeconds).toBeGreaterThan(299);
    expect(levels.oldestDueAtWorkSeconds).toBeLessThan(300 + patience(10));
    await forgetReceiver();
  });

  test("know a lane as at work whose receiver is as new as others of its account that are in flight", async () => {
    await insertOpen({ lane: 11, dueIn: -300 });
    expect((await readQueueLevels(pool)).oldestDueIdleSeconds).toBeGreaterThan(299);
    await insertOpen({ lane: 12, dueIn: -10, leaseFor: 10 });
    const levels = await readQueueLevels(pool);
    expect(levels.oldestDueIdleSeconds).toBe(0);
    expect(levels.oldestDueAtWorkSeconds).toBeGreaterThan(299);
    // That one was given back, as too many names are looked up.
    const leasedAt = (secondsAgo: number) =>
      changeRows(
        database.pool,
        "open_deliveries",
        { lane: 12 },
        {
          lease_token: null,
          lease_until: null,
          lease_started_at: new Date(Date.now() - secondsAgo * 1_000),
        },
      );
    await leasedAt(5);
    expect((await readQueueLevels(pool)).oldestDueIdleSeconds).toBeLessThan(15);
    await leasedAt(60);
    expect((await readQueueLevels(pool)).oldestDueIdleSeconds).toBeGreaterThan(299);
    await leasedAt(5);
    await answered(11);
    // It has answered (404) and proven nothing: its name may wait to be looked up.
    expect((await readQueueLevels(pool)).oldestDueIdleSeconds).toBeLessThan(15);
    await prove();
    expect((await readQueueLevels(pool)).oldestDueIdleSeconds).toBeGreaterThan(299);
    await forgetReceiver();
  });

  test("know a lane as at work whose receiver has proven nothing and has had its turn", async () => {
    await insertOpen({ lane: 1, dueIn: -300 });
    const row = { account_id: accountId, origin: "https://hooks.example.com", next_at: new Date() };
    await setEndpoint(database.pool, accountId, "https://hooks.example.com/in");
    expect((await readQueueLevels(pool)).oldestDueIdleSeconds).toBeGreaterThan(299);
    await insertRow(database.pool, "receivers", row);
    const levels = await readQueueLevels(pool);
    expect(levels.oldestDueIdleSeconds).toBe(0);
    expect(levels.oldestDueAtWorkSeconds).toBeGreaterThan(299);
    const proven = { proven_at: new Date(), proven_since: new Date(Date.now() - 30_000), next_at: null };
    await changeRows(database.pool, "receivers", { account_id: accountId }, proven);
    const { oldestDueIdleSeconds } = await readQueueLevels(pool);
    expect(oldestDueIdleSeconds, "what waited for its proof is ours from then on").toBeGreaterThan(29);
    expect(oldestDueIdleSeconds).toBeLessThan(30 + patience(10));
    await forgetReceiver();
  });

  test("count wake-ups that wait, and none of other people's jobs", async () => {
    await addJobs(database.pool, "deliver", 3);
    await addJobs(database.pool, "send_invoice", 5);
    expect(await readQueueLevels(pool)).toMatchObject({ wakeupsWaiting: 3 });
    await lockJobs(database.pool);
    expect(await readQueueLevels(pool)).toMatchObject({ wakeupsWaiting: 0 });
  });

  test("count what waits in running bulk replays", async () => {
    const insertReplays = async (of: string, count: number, status = "running") => {
      const paced = { rate_per_second: 10, created_at: new Date(), paced_at: new Date() };
      const row = { ...paced, account_id: of, status, filter: {}, matched: 10, replayed: 3, skipped: 1 };
      for (let n = 0; n < count; n++) await insertRow(database.pool, "replays", row);
    };
    await insertReplays(accountId, 3);
    await insertReplays(await insertAccount(database.pool), 1);
    await insertReplays(accountId, 2, "delivering");
    expect(await readQueueLevels(pool)).toMatchObject({ replayDeliveriesWaiting: 24 });
  });

  test("are read from at most 20,000 rows, by the index", async () => {
    await insertOpen({ lane: 7, dueIn: -30 }, 100_000);
    await database.pool.query("analyze sealpost.open_deliveries");
    await flushStatistics(pool, database.pool);
    await database.pool.query(
      "select pg_stat_reset_single_table_counters('sealpost.open_deliveries'::regclass)",
    );
    // Of which none tells whether the account has others in flight.
    expect(await readQueueLevels(pool)).toMatchObject({ due: 20_000, oldestDueIdleSeconds: 0 });
    await flushStatistics(pool);
    const { rows } = await database.pool.query<{ by_scan: number; by_index: number }>(
      `select seq_tup_read::integer as by_scan, idx_tup_fetch::integer as by_index
       from pg_stat_user_tables where relname = 'open_deliveries'`,
    );
    expect(rows[0]!.by_scan).toBe(0);
    expect(rows[0]!.by_index).toBeGreaterThanOrEqual(20_000);
    // Beside them the dead rows of the tests before this one.
    expect(rows[0]!.by_index).toBeLessThan(20_100);
  });

  test("know what was published by anybody", async () => {
    await flushStatistics(database.pool);
    const before = (await readQueueLevels(pool)).publishedEver;
    await publish(database.pool, accountId, '{"id":"a-1","status":"succeeded"}');
    await flushStatistics(database.pool);
    expect((await readQueueLevels(pool)).publishedEver - before).toBe(1);
  });
});

test("partitions ahead end at the first gap, and the oldest day is the one that is still there", async () => {
  const of = async (table: string) =>
    (await readPartitionLevels(pool)).find((level) => level.table === table);
  expect(await of("bodies")).toMatchObject({ ahead: 14 });
  await dropPartitionAhead(database.pool, "bodies", 3);
  expect(await of("bodies")).toMatchObject({ ahead: 2 });
  expect(await of("attempts")).toMatchObject({ ahead: 14 });

  await makePartitionsFrom(database.pool, "2020-01-01", 1);
  const { endedForMs } = (await of("deliveries"))!;
  const endedAtMs = Date.now() - endedForMs!;
  expect(Math.abs(endedAtMs - Date.parse("2020-01-02T00:00:00Z"))).toBeLessThan(patience(5_000));
});

test("today without a partition is one less than none ahead", async () => {
  await dropPartitionAhead(database.pool, "attempts", 0);
  const attempts = (await readPartitionLevels(pool)).find(({ table }) => table === "attempts");
  expect(attempts).toMatchObject({ ahead: -1 });
});
