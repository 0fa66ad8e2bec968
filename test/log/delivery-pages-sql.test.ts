import { randomUUID } from "node:crypto";
import type pg from "pg";
import type { Pool } from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { readingFrom } from "../../src/base/database/log-reader.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import type { DeliveryFilter } from "../../src/log/delivery-filter-api.ts";
import { fittingCondition } from "../../src/log/delivery-filter-sql.ts";
import { BELIEVED_MS, createListDeliveries, type ListDeliveries } from "../../src/log/delivery-pages-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { flushStatistics, insertAccount, insertLog } from "../support/installation.ts";
import { openLogPool } from "../support/log-pool.ts";

const TOTAL_MAX = 10_000;

let database: TestDatabase;
let pool: Pool;
let statements = 0;
let nowMs = 0;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  pool = openLogPool(database.url, { connectionsMax: 1, onQuery: () => statements++ });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});
beforeEach(async () => {
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});

/** The youngest is the first of them, a millisecond older each. */
const log = (count: number, younger = 0) =>
  insertLog(pool, accountId, count, { younger, name: randomUUID() });

async function dropOldest(count: number): Promise<void> {
  await pool.query(
    `delete from sealpost.deliveries where account_id = $1 and id in (
       select id from sealpost.deliveries where account_id = $1 order by id limit $2)`,
    [accountId, count],
  );
}

/** A number of PostgreSQL's statistics, up to now. */
async function statistic(select: string): Promise<number> {
  await flushStatistics(pool, database.pool);
  const { rows } = await database.pool.query<{ told: string }>(select);
  return Number(rows[0]?.told);
}

/** Entries of the log's indexes that were read so far. */
const entriesRead = () =>
  statistic("select sum(idx_tup_read) as told from pg_stat_user_indexes where relname like 'deliveries%'");

describe("the total of a log that is longer than what is counted", () => {
  let list: ListDeliveries;
  beforeEach(async () => {
    await log(TOTAL_MAX + 2);
    list = createListDeliveries(readingFrom(pool), () => nowMs);
  });

  const total = async (belowId: string | null = null) => {
    const page = await list(wholeAccount(accountId), {}, belowId, 50);
    return [page.total, page.isTotalCapped];
  };

  it("is counted once: what is known of it stays true", async () => {
    const before = await entriesRead();
    const first = await list(wholeAccount(accountId), {}, null, 50);
    expect([first.total, first.isTotalCapped]).toEqual([TOTAL_MAX, true]);
    const counted = await entriesRead();
    expect(counted - before).toBeGreaterThan(TOTAL_MAX);
    expect(await total()).toEqual([TOTAL_MAX, true]);
    expect(await total(first.next)).toEqual([TOTAL_MAX, true]);
    expect((await entriesRead()) - counted).toBeLessThan(500);
  });

  it("comes with the same pages, whether it was counted or was known", async () => {
    const pages = async (reader: () => ListDeliveries) => {
      const found = [];
      for (let belowId: string | null = null, n = 0; n < 3; n++) {
        const page = await reader()(wholeAccount(accountId), {}, belowId, 50);
        found.push({ ids: page.items.map(({ id }) => id), next: page.next });
        belowId = page.next;
      }
      return found;
    };
    const counted = await pages(() => createListDeliveries(readingFrom(pool), () => nowMs));
    await total();
    const known = await pages(() => list);
    expect(known).toEqual(counted);
    const ids = known.flatMap((page) => page.ids);
    expect(ids).toEqual([...new Set(ids)].sort().reverse());
    expect([ids.length, known.map(({ next }) => next)]).toEqual([150, [ids[49], ids[99], ids[149]]]);
  });

  it("is counted again when it is not believed any longer", async () => {
    await total();
    nowMs += BELIEVED_MS + 1;
    const before = await entriesRead();
    expect(await total()).toEqual([TOTAL_MAX, true]);
    expect((await entriesRead()) - before).toBeGreaterThan(TOTAL_MAX);
  });

  it("costs a second statement only once when the log is no longer long", async () => {
    await total();
    await dropOldest(500);
    statements = 0;
    for (let n = 0; n < 3; n++) expect(await total()).toEqual([TOTAL_MAX + 2 - 500, false]);
    expect(statements).toBe(4);
  });

  it("is right again when the oldest have left", async () => {
    expect(await total()).toEqual([TOTAL_MAX, true]);
    await dropOldest(1);
    expect(await total()).toEqual([TOTAL_MAX, true]);
    await dropOldest(1);
    expect(await total()).toEqual([TOTAL_MAX, false]);
    await dropOldest(1);
    expect(await total()).toEqual([TOTAL_MAX - 1, false]);
    await log(3, 10);
    expect(await total()).toEqual([TOTAL_MAX, true]);
  });

  it("is the account's own, and that of the filter", async () => {
    expect(await total()).toEqual([TOTAL_MAX, true]);
    const page = await list(wholeAccount(accountId), { created_before: new Date(0).toISOString() }, null, 50);
    expect([page.total, page.isTotalCapped]).toEqual([0, false]);
    const other = await insertAccount(database.pool, "https://receiver.example.com/");
    const empty = await list(wholeAccount(other), {}, null, 50);
    expect([empty.total, empty.isTotalCapped]).toEqual([0, false]);
  });
});

it("failed and abandoned ones together are read along their index, and merged by age", async () => {
  const list = createListDeliveries(readingFrom(pool), () => nowMs);
  await log(3_000);
  const undelivered: string[] = [];
  for (const [n, status] of ["failed", "abandoned", "failed", "abandoned"].entries()) {
    const { rows } = await pool.query<{ id: string }>(
      `update sealpost.deliveries set status = $2, reason = case $2 when 'abandoned' then 'no_target' end
       where account_id = $1 and id = (
         select id from sealpost.deliveries where account_id = $1 order by id desc offset $3 limit 1)
       returning id`,
      [accountId, status, 700 * n],
    );
    undelivered.push(rows[0]!.id);
  }
  const filter = { status: ["failed", "abandoned"] } as const;
  const before = await entriesRead();
  const first = await list(wholeAccount(accountId), filter, null, 3);
  const second = await list(wholeAccount(accountId), filter, first.next, 3);
  expect((await entriesRead()) - before, "none of the others").toBeLessThan(100);
  expect(first.total).toBe(4);
  const ids = [first, second].map(({ items }) => items.map(({ id }) => id));
  expect(ids).toEqual([undelivered.slice(0, 3), undelivered.slice(3)]);
});

it("what a replay has begun is read along its items, however far down the log it is", async () => {
  const list = createListDeliveries(readingFrom(pool), () => nowMs);
  await log(12_000);
  const { rows } = await pool.query<{ id: string }>(
    `update sealpost.deliveries set run = 2 where account_id = $1 and id in (
       select id from sealpost.deliveries where account_id = $1 order by id limit 5) returning id`,
    [accountId],
  );
  const ids = rows.map(({ id }) => id).sort();
  const replayId = randomUUID();
  await pool.query(
    `insert into sealpost.replays (id, account_id, status, filter, rate_per_second, matched, created_at, paced_at)
     values ($1, $2, 'running', '{}', 1, 5, now(), now())`,
    [replayId, accountId],
  );
  for (const [n, id] of ids.entries()) {
    await pool.query(
      `insert into sealpost.replay_items (replay_id, position, delivery_id, run, outcome)
       values ($1, $2, $3, $4, $5)`,
      n < 4 ? [replayId, n, id, 2, "replayed"] : [replayId, n, id, null, null],
    );
  }
  const before = await entriesRead();
  const page = await list(wholeAccount(accountId), { replay_id: replayId }, null, 3);
  const next = await list(wholeAccount(accountId), { replay_id: replayId }, page.next, 3);
  expect((await entriesRead()) - before).toBeLessThan(100);
  expect([page.total, page.isTotalCapped]).toEqual([4, false]);
  const found = [...page.items, ...next.items];
  expect(found.map(({ id }) => id)).toEqual(ids.slice(0, 4).reverse());
  expect(new Set(found.map((one) => one.replay_id))).toEqual(new Set([replayId]));
  const other = await insertAccount(database.pool, "https://receiver.example.com/");
  expect((await list(wholeAccount(other), { replay_id: replayId }, null, 3)).total, "another account's").toBe(
    0,
  );
});

it("days that are made ahead are not opened for a page", async () => {
  const list = createListDeliveries(readingFrom(pool), () => nowMs);
  await log(60);
  await list(wholeAccount(accountId), {}, null, 50);
  const scans = () =>
    statistic(
      `select sum(idx_scan) as told from pg_stat_user_indexes
       where relname ~ '^deliveries_' and relname > to_char(now() + interval '2 days', '"deliveries_"YYYYMMDD')`,
    );
  const before = await scans();
  await list(wholeAccount(accountId), {}, null, 50);
  await list(wholeAccount(accountId), { status: ["abandoned"] }, null, 50);
  await list(wholeAccount(accountId), { error_code: "status_503" }, null, 50);
  expect((await scans()) - before).toBe(0);
});

describe("whatever is asked", () => {
  const deliveryId = "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a11";
  const asked: DeliveryFilter = {
    created_after: "2026-01-02T03:04:05.678Z",
    created_before: "2026-01-02T03:04:05.678+01:00",
    analysis_id: "a",
    reason: ["no_target"],
    event: "analysis.failed",
    target_host: "a.example.com",
    error_code: "status_503",
    status_code: 503,
    status_code_min: 500,
    status_code_max: 599,
    replay_id: deliveryId,
  };
  const names = Object.keys(asked) as (keyof DeliveryFilter)[];
  const statuses: DeliveryFilter["status"][] = [
    null,
    ["pending"],
    ["failed"],
    ["failed", "abandoned"],
    ["failed", "succeeded"],
  ];

  /** Every set of filters. */
  function* all(): Iterable<DeliveryFilter> {
    for (let set = 0; set < 2 ** names.length; set++) {
      const some = Object.fromEntries(
        names.filter((_, n) => (set >> n) & 1).map((name) => [name, asked[name]]),
      );
      for (const status of statuses) yield { ...some, status };
    }
  }

  it("a connection prepares no more than 15 statements", { timeout: 60_000 }, async () => {
    const texts = new Map<string, string>();
    // Each text is prepared once; whatever comes with it then is the same to the server.
    const query = async (statement: pg.QueryConfig) => {
      const known = texts.get(statement.name!);
      if (known === undefined) {
        texts.set(statement.name!, statement.text);
        if (texts.size <= 15) await pool.query(statement);
      } else if (known !== statement.text) throw new Error(`two texts have the name ${statement.name}`);
      const counts = { matches: TOTAL_MAX + 1, looked_at: TOTAL_MAX + 1, looked_at_to: null };
      return { rows: [{ ...counts, long_by: deliveryId, deliveries: { id: [] } }] };
    };
    const list = createListDeliveries(
      (read) => read({ query } as unknown as Pool),
      () => nowMs,
    );
    for (const filter of all())
      for (const spaceIds of [null, `{${deliveryId}}`])
        for (const belowId of [null, deliveryId]) await list({ accountId, spaceIds }, filter, belowId, 50);
    expect(texts.size).toBeLessThanOrEqual(15);
    const { rows } = await pool.query(
      "select count(*)::integer as n from pg_prepared_statements where name like 'list_deliveries%'",
    );
    expect(rows[0].n).toBeLessThanOrEqual(15);
  });

  it("a moment is the id that the database says", async () => {
    for (const moment of [
      "1970-01-01T00:00:00Z",
      "2026-01-02T03:04:05.678+01:00",
      "9999-12-31T23:59:59-12:00",
    ]) {
      const values: unknown[] = [];
      fittingCondition(values, accountId, { created_after: moment });
      const { rows } = await pool.query("select sealpost.uuid_v7_floor($1::timestamptz) as id", [moment]);
      expect(values).toEqual([accountId, rows[0].id]);
    }
  });
});
