import { randomUUID } from "node:crypto";
import fc from "fast-check";
import type { Pool } from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { deleteOldRows } from "../../src/base/database/old-rows.ts";
import { createGeneralPool } from "../../src/base/database/pools.ts";
import { countActivity, foldActivity } from "../../src/log/activity-sql.ts";
import {
  countAttempts,
  type EndedAttempt,
  endedAttempt,
  insertAttempts,
  sumActivity,
} from "../support/attempt-rows.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import {
  begin,
  changeRows,
  countRows,
  deleteRows,
  flushStatistics,
  makePartitionsFrom,
  rowOf,
  rowsOf,
} from "../support/installation.ts";

const LAG_MS = 15_000;
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

let database: TestDatabase;
/** As in production: generic plans made while everything is empty. */
let pool: Pool;
const transactions: Awaited<ReturnType<typeof begin>>[] = [];

beforeEach(async () => {
  database = await createTestDatabase();
  pool = createGeneralPool({
    databaseUrl: database.url,
    connectionsMax: 2,
    applicationName: "test activity",
    onError: () => undefined,
  });
});
afterEach(async () => {
  for (const one of transactions.splice(0)) await one.rollback().catch(() => undefined);
  await pool.end();
  await database.drop();
});

const ago = (ms: number) => new Date(Date.now() - ms);
const insert = (...attempts: EndedAttempt[]) => insertAttempts(database.pool, attempts);
const countedTo = async () => (await rowOf(database.pool, "activity_state")).counted_to as Date;

/** As if the leader had been away for so long. */
const awayFor = (ms: number) => changeRows(database.pool, "activity_state", {}, { counted_to: ago(ms) });

/** Steps until there is nothing to do. */
async function countAll(): Promise<number> {
  for (let steps = 1; ; steps++) if (!(await countActivity(pool, LAG_MS)).isBehind) return steps;
}
async function foldAll(): Promise<number> {
  for (let steps = 0; ; steps++) if (!(await foldActivity(pool))) return steps;
}
async function expectExact(): Promise<void> {
  expect(await sumActivity(database.pool)).toEqual(await countAttempts(database.pool, await countedTo()));
}

describe("counting", () => {
  it("adds up by account, five minutes, host and error, each attempt once", async () => {
    await awayFor(20 * MINUTE_MS);
    const accountId = randomUUID();
    const at = new Date(Math.floor((Date.now() - 10 * MINUTE_MS) / (5 * MINUTE_MS)) * 5 * MINUTE_MS);
    const refused = { accountId, outcome: "unreachable", errorCode: "connect_refused" } as const;
    await insert(
      endedAttempt(at, { accountId, durationMs: 10 }),
      endedAttempt(new Date(at.getTime() + 299_999), { accountId, durationMs: 30 }),
      endedAttempt(at, { ...refused, targetUrl: "https://HOOKS.example.com:8443/in?x" }),
      endedAttempt(at, { ...refused, targetUrl: "https://[2001:db8::1]:8443/" }),
      endedAttempt(at, { ...refused, targetUrl: null }),
      endedAttempt(at, { ...refused, targetUrl: "https:///in" }),
      endedAttempt(new Date(at.getTime() + 300_000), { accountId }),
      endedAttempt(at),
    );
    await deleteRows(database.pool, "late_attempts");
    await countAll();
    const rows = await rowsOf(database.pool, "activity", { account_id: accountId });
    const found = rows.map((row) => [
      (row.bucket.getTime() - at.getTime()) / MINUTE_MS,
      row.target_host,
      row.error_code,
      row.attempts,
      row.duration_ms,
    ]);
    expect(found.sort()).toEqual([
      [0, "(other)", "connect_refused", 2, "80"],
      [0, "[2001:db8::1]", "connect_refused", 1, "40"],
      [0, "hooks.example.com", null, 2, "40"],
      [0, "hooks.example.com", "connect_refused", 1, "40"],
      [5, "hooks.example.com", null, 1, "40"],
    ]);
    await expectExact();
  });

  it("leaves what ended within the lag for later", async () => {
    await awayFor(MINUTE_MS);
    await insert(endedAttempt(ago(LAG_MS + 1_000)), endedAttempt(ago(1_000)));
    const { countedTo: to } = await countActivity(pool, LAG_MS);
    expect(Date.now() - to!.getTime()).toBeGreaterThanOrEqual(LAG_MS);
    expect(await countRows(database.pool, "activity")).toBe(1);
    expect(await countRows(database.pool, "late_attempts")).toBe(0);
  });

  it("counts what is written late when it is written, in the hour in which it ended", async () => {
    await countAll();
    await insert(endedAttempt(ago(3 * HOUR_MS)), endedAttempt(ago(20 * 24 * HOUR_MS)));
    expect(await countRows(database.pool, "late_attempts")).toBe(2);
    await changeRows(database.pool, "activity_state", {}, { counted_to: ago(MINUTE_MS) });
    await countAll();
    expect(await countRows(database.pool, "late_attempts")).toBe(0);
    await expectExact();
  });

  it("misses nothing that commits after its time was counted", async () => {
    await awayFor(10 * MINUTE_MS);
    const open = await begin(database.pool);
    transactions.push(open);
    await insertAttempts(open.client, [endedAttempt(ago(5 * MINUTE_MS))]);
    await insert(endedAttempt(ago(5 * MINUTE_MS)));
    await countAll();
    expect(await countRows(database.pool, "activity")).toBe(1);
    await open.commit();
    await changeRows(database.pool, "activity_state", {}, { counted_to: ago(MINUTE_MS) });
    await countAll();
    await expectExact();
    expect(await countRows(database.pool, "activity")).toBe(2);
  });

  it("is done by one of two that begin at once, and the other says so", async () => {
    await awayFor(10 * MINUTE_MS);
    await insert(...Array.from({ length: 500 }, (_, n) => endedAttempt(ago(2 * MINUTE_MS + n * 1_000))));
    const held = await begin(database.pool, "select from sealpost.activity_state for update");
    transactions.push(held);
    expect(await countActivity(pool, LAG_MS)).toEqual({ countedTo: null, isBehind: false });
    expect(await foldActivity(pool)).toBe(false);
    await held.rollback();
    await Promise.all([countAll(), countAll()]);
    await countAll();
    await expectExact();
  });

  it("catches up a day in bounded steps", async () => {
    await awayFor(24 * HOUR_MS);
    await insert(...Array.from({ length: 300 }, (_, n) => endedAttempt(ago(n * 5 * MINUTE_MS + 20_000))));
    const before = await countedTo();
    const { countedTo: to, isBehind } = await countActivity(pool, LAG_MS);
    expect(to!.getTime() - before.getTime()).toBe(5 * MINUTE_MS);
    expect(isBehind).toBe(true);
    expect(await countAll()).toBeGreaterThan(250);
    await expectExact();
  });

  it("counts what is written to a day that was made later, by an index and a trigger of its own", async () => {
    await makePartitionsFrom(database.pool, "2020-01-01", 1);
    const { rows } = await database.pool.query(
      `select
         (select amname from pg_index join pg_class on pg_class.oid = indexrelid join pg_am on pg_am.oid = relam
          where indrelid = 'sealpost.attempts_20200101'::regclass and not indisprimary) as index,
         (select tgname from pg_trigger where tgrelid = 'sealpost.attempts_20200101'::regclass) as trigger`,
    );
    expect(rows).toEqual([{ index: "brin", trigger: "note_late_attempt" }]);
  });

  it("goes on when the clock was set back", async () => {
    await changeRows(database.pool, "activity_state", {}, { counted_to: ago(-HOUR_MS) });
    const before = await countedTo();
    expect(await countActivity(pool, LAG_MS)).toEqual({ countedTo: before, isBehind: false });
  });

  it("tells 50 hosts of an account and bucket apart: who comes first, then who is used most", async () => {
    await awayFor(10 * MINUTE_MS);
    const accountId = randomUUID();
    const start = Math.floor((Date.now() - 5 * MINUTE_MS) / (5 * MINUTE_MS)) * 5 * MINUTE_MS;
    const to = (host: string, offsetMs: number) =>
      endedAttempt(new Date(start + offsetMs), { accountId, targetUrl: `https://${host}.example.com/` });
    await changeRows(database.pool, "activity_state", {}, { counted_to: new Date(start - 1) });
    await insert(
      ...Array.from({ length: 60 }, (_, n) => to(`h${n}`, 0)),
      to("busy", 0),
      to("busy", 0),
      endedAttempt(new Date(start)),
    );
    await countActivity(pool, LAG_MS);
    const hosts = async () =>
      (await rowsOf(database.pool, "activity", { account_id: accountId })).map((row) => row.target_host);
    const first = await hosts();
    expect(first).toHaveLength(51);
    expect(first).toContain("busy.example.com");
    // A second step in the same bucket.
    await changeRows(database.pool, "activity_state", {}, { counted_to: new Date(start + 1) });
    await insert(to("busy", 2), to("new", 2));
    await deleteRows(database.pool, "late_attempts");
    await countActivity(pool, LAG_MS);
    expect((await hosts()).sort()).toEqual(first.sort());
    await expectExact();
  });

  it("reads what is new, and not the log", async () => {
    const blocks = async () => {
      await flushStatistics(pool, database.pool);
      const { rows } = await database.pool.query<{ touched: number; all: number }>(
        `select sum(heap_blks_read + heap_blks_hit)::integer as touched,
           (sum(pg_relation_size(relid)) / current_setting('block_size')::integer)::integer as all
         from pg_statio_user_tables where relname ~ '^attempts_'`,
      );
      return rows[0]!;
    };
    // A log that was there before, whose days are not vacuumed any more.
    await database.pool.query(
      `alter table sealpost.attempts disable trigger user;
       insert into sealpost.attempts (delivery_id, account_id, run, number, started_at, ended_at, outcome)
       select sealpost.uuid_v7(now()), sealpost.uuid_v7(now()), 1, 1, at, at, 'succeeded'
       from (select now() - interval '5 hours' + n * interval '182 milliseconds' as at
         from generate_series(1, 99000) as n) as made;
       alter table sealpost.attempts enable trigger user;
       select brin_summarize_new_values(indexrelid) from pg_stat_user_indexes
       where indexrelname ~ '^attempts_.*_ended'`,
    );
    await awayFor(MINUTE_MS);
    const before = await blocks();
    await countActivity(pool, LAG_MS);
    const after = await blocks();
    expect(after.touched).toBeGreaterThan(before.touched);
    expect(after.touched - before.touched).toBeLessThan(before.all / 10);
    expect(await countRows(database.pool, "activity")).toBeGreaterThan(0);
  });
});

describe("whatever ends, is written late, and is counted in whatever order", () => {
  const outcomes = [
    { outcome: "succeeded", errorCode: null },
    { outcome: "unreachable", errorCode: "connect_refused" },
    { outcome: "rejected", errorCode: "status_503" },
    { outcome: "interrupted", errorCode: "interrupted" },
  ] as const;
  const accounts = Array.from({ length: 3 }, () => randomUUID());
  const attempt = fc.record({
    agoMs: fc.oneof(fc.integer({ min: 0, max: 60_000 }), fc.integer({ min: 0, max: 80 * HOUR_MS })),
    account: fc.integer({ min: 0, max: 2 }),
    host: fc.integer({ min: 0, max: 120 }),
    how: fc.integer({ min: 0, max: 3 }),
    durationMs: fc.integer({ min: 0, max: 15_000 }),
  });
  const action = fc.oneof(
    { weight: 5, arbitrary: fc.record({ insert: fc.array(attempt, { minLength: 1, maxLength: 30 }) }) },
    { weight: 2, arbitrary: fc.constant("count" as const) },
    { weight: 1, arbitrary: fc.constant("fold" as const) },
    { weight: 1, arbitrary: fc.constant("begin" as const) },
    { weight: 1, arbitrary: fc.constant("commit" as const) },
  );

  it("each attempt is in the activity once, and each hour has 50 hosts of an account at most", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(action, { minLength: 5, maxLength: 25 }), async (actions) => {
        for (const table of ["attempts", "late_attempts", "activity"]) await deleteRows(database.pool, table);
        await changeRows(
          database.pool,
          "activity_state",
          {},
          {
            counted_to: ago(70 * HOUR_MS),
            fold_at: new Date(Math.floor(Date.now() / HOUR_MS - 72) * HOUR_MS),
          },
        );
        let open: Awaited<ReturnType<typeof begin>> | null = null;
        for (const one of actions) {
          if (one === "count") for (let n = 0; n < 40; n++) await countActivity(pool, LAG_MS);
          else if (one === "fold") await foldAll();
          else if (one === "begin") open ??= await begin(database.pool);
          else if (one === "commit") {
            await open?.commit();
            open = null;
          } else {
            await insertAttempts(
              open?.client ?? database.pool,
              one.insert.map(({ agoMs, account, host, how, durationMs }) =>
                endedAttempt(ago(agoMs), {
                  ...outcomes[how]!,
                  accountId: accounts[account]!,
                  targetUrl: host === 0 ? null : `https://h${host}.example.com/`,
                  durationMs,
                }),
              ),
            );
          }
        }
        await open?.commit();
        await countAll();
        await expectExact();
        await foldAll();
        await expectExact();
        const { rows } = await database.pool.query<{ hosts: number }>(
          `select count(distinct target_host)::integer as hosts from sealpost.activity
           where target_host <> '(other)' group by account_id, bucket order by hosts desc limit 1`,
        );
        expect(rows[0]?.hosts ?? 0).toBeLessThanOrEqual(50);
      }),
      { numRuns: 8 },
    );
  });
});

describe("what is old", () => {
  it("becomes hours after two days, with the 50 hosts that were used most", async () => {
    const accountId = randomUUID();
    const hour = new Date(Math.floor(Date.now() / HOUR_MS - 60) * HOUR_MS);
    await changeRows(database.pool, "activity_state", {}, { counted_to: hour, fold_at: hour });
    const at = (minutes: number, host: string) =>
      endedAttempt(new Date(hour.getTime() + minutes * MINUTE_MS), {
        accountId,
        targetUrl: `https://${host}.example.com/`,
      });
    const both = Array.from({ length: 40 }, (_, n) => [at(3, `a${n}`), at(33, `b${n}`)]).flat();
    await insert(...both, at(3, "a39"), at(33, "b39"), endedAttempt(hour), at(120, "next"));
    await countAll();
    expect(await countRows(database.pool, "activity", { account_id: accountId })).toBe(81);
    await foldAll();
    const rows = await rowsOf(database.pool, "activity", { account_id: accountId, bucket: hour });
    const hosts = rows.map((row) => row.target_host);
    expect(hosts).toHaveLength(51);
    expect(hosts).toEqual(expect.arrayContaining(["a39.example.com", "b39.example.com", "(other)"]));
    expect(rows.find((row) => row.target_host === "(other)")?.attempts).toBe(30);
    await expectExact();
    const { fold_at } = await rowOf(database.pool, "activity_state");
    expect(Date.now() - fold_at.getTime()).toBeLessThan(49 * HOUR_MS);
  });

  it("is forgotten after its retention, in bounded steps", async () => {
    await insert(...[33, 32, 30, 1].map((days) => endedAttempt(ago(days * 24 * HOUR_MS))));
    await awayFor(2 * MINUTE_MS);
    await countAll();
    expect(await deleteOldRows(pool, "activity", 31 * 24 * HOUR_MS, 1)).toBe(1);
    expect(await deleteOldRows(pool, "activity", 31 * 24 * HOUR_MS, 10)).toBe(1);
    expect(await deleteOldRows(pool, "activity", 31 * 24 * HOUR_MS, 10)).toBe(0);
    expect(await countRows(database.pool, "activity")).toBe(2);
  });
});
