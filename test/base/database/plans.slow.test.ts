import type { Pool } from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readingFrom } from "../../../src/base/database/log-reader.ts";
import { createDispatchPool, createGeneralPool } from "../../../src/base/database/pools.ts";
import { wholeAccount } from "../../../src/base/model/reader.ts";
import { promoteDue } from "../../../src/delivery/promote-sql.ts";
import { recordOutcomes } from "../../../src/delivery/record-sql.ts";
import { countActivity, readActivity } from "../../../src/log/activity-sql.ts";
import { findDelivery } from "../../../src/log/deliveries-sql.ts";
import type { DeliveryFilter } from "../../../src/log/delivery-filter-api.ts";
import { createListDeliveries } from "../../../src/log/delivery-pages-sql.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { attemptOf, claim, LEASE_MS, publishAt } from "../../support/delivery-rows.ts";
import {
  deleteRows,
  flushStatistics,
  insertAccount,
  publishMany,
  readIndexReads,
} from "../../support/installation.ts";
import { openLogPool } from "../../support/log-pool.ts";
import { takeWakeups } from "../../support/wakeup-jobs.ts";

// Plans are kept for as long as a connection lives. These are made while the tables are all but empty and PostgreSQL
// knows it, as in the night after a VACUUM, and used when there is a backlog.

const T0 = new Date(Date.now() - (Date.now() % 1000));
const later = (ms: number) => new Date(T0.getTime() + ms);
const BACKLOG = 3_000;
let database: TestDatabase;
let accountId: string;
const pools: Pool[] = [];
let published = 0;

beforeEach(async () => {
  database = await createTestDatabase();
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});
afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.end();
  await database.drop();
});

function openLog(): Pool {
  const pool = openLogPool(database.url, { connectionsMax: 1 });
  pools.push(pool);
  return pool;
}

/** One connection, so that what was planned is what is used. */
function open(create: typeof createDispatchPool): Pool {
  const pool = create({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test plans",
    onError: () => undefined,
  });
  pools.push(pool);
  return pool;
}

/** Entries that were read of every index. */
async function readsWhile(work: () => Promise<void>): Promise<Record<string, number>> {
  const count = async () => {
    await flushStatistics(database.pool, ...pools);
    return await readIndexReads(database.pool);
  };
  const before = await count();
  await work();
  const after = await count();
  return Object.fromEntries(
    [...after]
      .map(([name, reads]) => [name, reads - (before.get(name) ?? 0)] as const)
      .filter(([, n]) => n > 0),
  );
}

/** In a session of their own, which has planned nothing before. */
async function publishSome(count: number): Promise<string[]> {
  const names = Array.from({ length: count }, () => `plan-${published++}`);
  const ids = await publishAt(open(createGeneralPool), accountId, T0, names);
  await takeWakeups(database.pool);
  return ids;
}

/** Each with an endpoint. */
async function addAccounts(count: number): Promise<void> {
  const pool = open(createGeneralPool);
  await pool.query(
    "insert into sealpost.accounts (name) select 'other' from generate_series(1, $1::integer)",
    [count],
  );
  await pool.query(
    "insert into sealpost.endpoints (account_id, url) " +
      "select id, 'https://a.example.com/' from sealpost.accounts where name = 'other'",
  );
}

/** An id of today that nobody has: everything is planned, and nothing is changed. */
async function unknownId(): Promise<string> {
  const { rows } = await database.pool.query<{ id: string }>("select sealpost.uuid_v7() as id");
  return rows[0]!.id;
}

/** As VACUUM finds the tables: with nothing in them, with one row in each, or with the pages that rows were in. */
const states = ["nothing", "one row", "emptied pages"] as const;

async function vacuumWith(state: (typeof states)[number]): Promise<void> {
  if (state === "one row") await publishSome(1);
  if (state === "emptied pages") {
    await publishSome(500);
    for (const table of ["open_deliveries", "deliveries", "bodies", "analyses"])
      await deleteRows(database.pool, table);
  }
  await database.pool.query("vacuum (analyze, truncate off)");
}

describe.each(states)("planned for %s", (state) => {
  it("claims, recovers and records look ids up", async () => {
    await vacuumWith(state);
    const pool = open(createDispatchPool);
    const round = async (ids: readonly string[], atMs: number) => {
      await claim(pool, ids, { at: later(atMs) });
      // Their dispatcher has died: the next claim writes that down first.
      const { deliveries } = await claim(pool, ids, { at: later(atMs + LEASE_MS) });
      await recordOutcomes(
        pool,
        deliveries.flatMap((one) => (one.kind === "leased" ? [attemptOf(one, { status: "succeeded" })] : [])),
      );
      return deliveries.length;
    };
    await round([await unknownId()], 1);
    const ids = await publishSome(BACKLOG);
    const reads = await readsWhile(async () => {
      expect(await round(ids.slice(0, 10), 1)).toBe(10);
    });
    expect(reads.endpoints_account_id_key).toBeGreaterThan(0);
    expect(Math.max(...Object.values(reads)), JSON.stringify(reads)).toBeLessThan(200);
  });

  it("publishing looks accounts and known analyses up", async () => {
    await vacuumWith(state);
    const pool = open(createGeneralPool);
    const texts = ["a", "b"].map((name) => `{"id":"known-${name}","status":"failed"}`);
    const publishBoth = () => publishMany(pool, [accountId, accountId], texts, [null, null]);
    for (let n = 0; n < 2; n++) await publishBoth();
    await publishSome(BACKLOG);
    await addAccounts(3_000);
    const reads = await readsWhile(async () => void (await publishBoth()));
    expect(reads.endpoints_account_id_key).toBeGreaterThan(0);
    expect(Math.max(...Object.values(reads)), JSON.stringify(reads)).toBeLessThan(200);
  });

  it("a delivery of the log looks up what is open of it", async () => {
    await vacuumWith(state);
    const pool = openLog();
    await findDelivery(pool, wholeAccount(accountId), await unknownId());
    const [id] = await publishSome(BACKLOG);
    const reads = await readsWhile(async () => {
      expect((await findDelivery(pool, wholeAccount(accountId), id!))?.delivery.id).toBe(id);
    });
    expect(reads.open_deliveries_pkey).toBeGreaterThan(0);
    expect(Math.max(...Object.values(reads)), JSON.stringify(reads)).toBeLessThan(200);
  });

  it("the activity finds who answered without reading all attempts", async () => {
    await vacuumWith(state);
    const pool = openLog();
    const look = () =>
      readActivity(pool, accountId, { from: later(-86_400_000), to: later(3_600_000), bucketMs: 3_600_000 });
    await look();
    const failed = (await publishSome(BACKLOG)).at(-1);
    await database.pool.query("update sealpost.deliveries set status = 'failed' where id = $1", [failed]);
    await database.pool.query(
      `insert into sealpost.attempts (delivery_id, account_id, run, number, started_at, ended_at, target_url, outcome,
         error_code, status_code, response_headers)
       select id, account_id, 1, 1, $1, $1, 'https://' || status || '.example.com/',
         case status when 'failed' then 'rejected' else 'succeeded' end,
         case status when 'failed' then 'status_404' end, case status when 'failed' then 404 else 200 end,
         '{"ngrok-error-code":"ERR_NGROK_3200"}'
       from sealpost.deliveries where account_id = $2`,
      // T0 may be before the database began to count.
      [new Date(), accountId],
    );
    while ((await countActivity(database.pool, 0)).isBehind);
    const reads = await readsWhile(async () => {
      expect((await look()).top).toMatchObject([
        { target_host: "failed.example.com", answered_by: { name: "ngrok" } },
      ]);
    });
    expect(Math.max(...Object.values(reads)), JSON.stringify(reads)).toBeLessThan(200);
  });

  it.each<[string, Partial<DeliveryFilter>]>([
    ["of the whole log", {}],
    ["by an index", { analysis_id: "plan-last" }],
    ["of what has no index", { event: "analysis.succeeded" }],
  ])("a page %s looks up what is open of it", async (_, filter) => {
    await vacuumWith(state);
    const pool = openLog();
    const list = createListDeliveries(readingFrom(pool), () => 0);
    const readPages = async () => {
      const { items: deliveries, next } = await list(wholeAccount(accountId), filter, null, 50);
      await list(wholeAccount(accountId), filter, next, 50);
      return deliveries.length;
    };
    await readPages();
    await publishSome(BACKLOG);
    await publishAt(database.pool, accountId, T0, ["plan-last"]);
    const reads = await readsWhile(async () => {
      expect(await readPages()).toBeGreaterThan(0);
    });
    expect(reads.open_deliveries_pkey).toBeGreaterThan(0);
    expect(reads.open_deliveries_pkey, JSON.stringify(reads)).toBeLessThan(200);
  });

  it("promoting a backlog is done within a statement's time, which is little for the square of it", async () => {
    await vacuumWith(state);
    const pool = open(createGeneralPool);
    await promoteDue(pool, later(-60_000));
    await publishSome(8_000);
    const { looked } = await promoteDue(pool, later(60_000));
    expect(looked).toBeGreaterThanOrEqual(8_000);
  });
});
