import type { Pool } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import {
  countOpenOfDay,
  dropPartition,
  emptyDetached,
  findPartitionsOlderThan,
  forgetAnalysesOfDay,
  type LogPlace,
  makePartitions,
} from "../../../src/base/database/partitions.ts";
import { inTransaction } from "../../../src/base/database/transaction.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { claimOne, deliveryRow, publishAt } from "../../support/delivery-rows.ts";
import {
  begin,
  countRows,
  deleteRows,
  dropPartitionAhead,
  flushStatistics,
  forgetOpen,
  insertAccount,
  makePartitionsFrom,
  publish,
  readIndexReads,
  rowsOf,
  untilSomebodyWaits,
} from "../../support/installation.ts";
import { patience } from "../../support/time-limits.ts";

/** What stands behind a lock waits for seconds; what does not, for milliseconds. */
const STALLED_MS = 1_000;
const NEVER = new AbortController().signal;

let database: TestDatabase;
let pool: Pool;
let accountId: string;
let reader: Awaited<ReturnType<typeof begin>> | undefined;
let published = 0;

beforeAll(async () => {
  database = await createTestDatabase();
  pool = database.pool;
  accountId = await insertAccount(pool, "https://receiver.example.com/");
  await makePartitionsFrom(pool, "2020-01-01", 5);
});
afterAll(() => database.drop());
afterEach(() => reader?.rollback());

const day = (text: string) => new Date(`${text}T00:00:00Z`);
const partition = (name: string, of: string) => ({ table: "deliveries", name, day: day(of) }) as const;
const tables = async () => {
  const { rows } = await pool.query<{ name: string }>(
    `select relname as name from pg_class
     where relnamespace = 'sealpost'::regnamespace and relname ~ '_2020[0-9]{4}$' and relkind = 'r' order by 1`,
  );
  return rows.map((row) => row.name);
};

/** A transaction that has read the whole log and stays open, as a report or a backup does. */
const openReader = async () => {
  reader = await begin(pool, "select count(*) from sealpost.deliveries");
  return reader;
};

const untilDetaching = () =>
  expect.poll(() => countRows(pool, "pg_catalog.pg_inherits", { inhdetachpending: true })).toBe(1);

/** How long it takes to publish, to read what was published, and to lease it. */
async function tookToWork(): Promise<number> {
  const startedAt = performance.now();
  const id = await publish(pool, accountId, `{"id":"w-${published++}","status":"succeeded"}`);
  expect(await deliveryRow(pool, id)).toMatchObject({ status: "pending" });
  await claimOne(pool, id);
  return performance.now() - startedAt;
}

describe("making the days to come", () => {
  it("makes what is missing from yesterday to 14 days ahead, once", async () => {
    expect(await makePartitions(pool), "the migration has made them").toBe(0);
    for (const table of ["deliveries", "attempts"]) await dropPartitionAhead(pool, table, 14);
    expect(await makePartitions(pool)).toBe(2);
    expect(await makePartitions(pool)).toBe(0);
  });

  it("takes rows up to the last moment of each day, in UTC", async () => {
    for (const at of [day("2020-01-01"), new Date(day("2020-01-03").getTime() - 1)]) {
      await publishAt(pool, accountId, at, [`d-${published++}`]);
    }
    const { rows } = await pool.query(
      `select c.relname as name from sealpost.deliveries d join pg_class c on c.oid = d.tableoid
       where d.id < sealpost.uuid_v7_floor('2020-02-01') order by d.id`,
    );
    expect(rows.map((row) => row.name)).toEqual(["deliveries_20200101", "deliveries_20200102"]);
    await pool.query(
      "delete from sealpost.open_deliveries where delivery_id < sealpost.uuid_v7_floor('2020-02-01')",
    );
  });

  it("stalls nobody while a reader stays", async () => {
    const held = await openReader();
    const making = makePartitionsFrom(pool, "2020-02-01", 1);
    expect(await tookToWork()).toBeLessThan(patience(STALLED_MS));
    await making;
    await held.rollback();
    for (const name of ["deliveries_20200201", "bodies_20200201", "attempts_20200201"]) {
      await pool.query(`drop table sealpost.${name}`);
    }
  });
});

describe("finding days that are over", () => {
  const found = async (retentionDays: number, at: Date) =>
    (await findPartitionsOlderThan(pool, "bodies", retentionDays * 86_400_000, at)).map((one) => one.name);

  it("names those whose last moment is old enough, oldest first", async () => {
    expect(await found(30, day("2020-02-01"))).toEqual(["bodies_20200101"]);
    expect(await found(30, new Date(day("2020-02-01").getTime() - 1))).toEqual([]);
    expect(await found(29, day("2020-02-02"))).toEqual([
      "bodies_20200101",
      "bodies_20200102",
      "bodies_20200103",
    ]);
  });

  it("goes by the database's clock unless told otherwise", async () => {
    const names = await findPartitionsOlderThan(pool, "bodies", 0, null);
    expect(names.map((one) => one.name).filter((name) => !name.startsWith("bodies_2020"))).toHaveLength(1);
  });

  it("counts the open deliveries of a day", async () => {
    const [id] = await publishAt(pool, accountId, day("2020-01-04"), [`o-${published++}`]);
    expect(await countOpenOfDay(pool, day("2020-01-04"))).toBe(1);
    expect(await countOpenOfDay(pool, day("2020-01-03"))).toBe(0);
    await forgetOpen(pool, [id!]);
  });
});

describe("dropping a day", () => {
  it("stalls neither readers nor publishers while a reader of that day stays", async () => {
    const held = await openReader();
    const dropping = dropPartition(pool, partition("deliveries_20200101", "2020-01-01"), NEVER);
    // It waits for the reader, in the middle of its work.
    await untilDetaching();
    for (let n = 0; n < 3; n++) expect(await tookToWork()).toBeLessThan(patience(STALLED_MS));
    expect(await tables()).toContain("deliveries_20200101");
    await held.commit();
    await dropping;
    expect(await tables()).not.toContain("deliveries_20200101");
  });

  it("is finished by the next try when it was cut short in the middle", async () => {
    const held = await openReader();
    const ending = new AbortController();
    const dropping = dropPartition(pool, partition("deliveries_20200102", "2020-01-02"), ending.signal);
    const cutShort = expect(dropping).rejects.toThrow();
    await untilDetaching();
    ending.abort();
    await cutShort;
    const stuck = "query like '%detach%concurrently%' and pid <> pg_backend_pid()";
    await pool.query(`select pg_terminate_backend(pid) from pg_stat_activity where ${stuck}`);
    await held.commit();
    await dropPartition(pool, partition("deliveries_20200102", "2020-01-02"), NEVER);
    expect(await tables()).not.toContain("deliveries_20200102");
  });

  it("is found again and finished when it was detached and not dropped", async () => {
    await pool.query(
      "alter table sealpost.deliveries detach partition sealpost.deliveries_20200103 concurrently",
    );
    const [found] = await findPartitionsOlderThan(pool, "deliveries", 0, day("2020-01-04"));
    expect(found).toEqual(partition("deliveries_20200103", "2020-01-03"));
    await dropPartition(pool, found!, NEVER);
    expect(await tables()).not.toContain("deliveries_20200103");
  });

  it("does not begin when it is asked to end", async () => {
    await expect(
      dropPartition(pool, partition("deliveries_20200104", "2020-01-04"), AbortSignal.abort()),
    ).rejects.toThrow();
    expect(await tables()).toContain("deliveries_20200104");
  });
});

describe("emptying days that are detached and not dropped", () => {
  it("takes what is the account's, of no day that its table still has, and passes by one that is dropped", async () => {
    await makePartitionsFrom(pool, "2020-03-01", 3);
    const mine = await insertAccount(pool, "https://receiver.example.com/");
    for (const owner of [mine, accountId])
      for (const each of ["2020-03-01", "2020-03-02", "2020-03-03"])
        await publishAt(pool, owner, day(each), [`e-${published++}`]);
    for (const name of ["bodies_20200301", "bodies_20200302"])
      await pool.query(`alter table sealpost.bodies detach partition sealpost.${name} concurrently`);
    const dropping = await begin(pool, "drop table sealpost.bodies_20200301");
    const emptying = inTransaction(pool, (tx) => emptyDetached(tx, "account_id", [mine]));
    await untilSomebodyWaits(pool);
    await dropping.commit();
    await emptying;
    const owners = async (name: string) => (await rowsOf(pool, name)).map((row) => row.account_id).sort();
    expect(await owners("bodies_20200302")).toEqual([accountId]);
    expect(await owners("bodies_20200303")).toEqual([mine, accountId].sort());
    await pool.query("drop table sealpost.bodies_20200302");
    await deleteRows(pool, "open_deliveries", { account_id: mine });
  });
});

describe("forgetting a day's analyses", () => {
  it("takes the registry's rows of that day in steps, each from where the last one ended, and no others", async () => {
    const names = Array.from({ length: 7 }, (_, n) => `f-${n}`);
    const account = await insertAccount(pool, "https://receiver.example.com/");
    const ids = await publishAt(pool, account, day("2020-01-04"), names);
    const kept = await publish(pool, account, '{"id":"f-kept","status":"succeeded"}');
    const left = async () => {
      const rows = await rowsOf(pool, "analyses", { delivery_id: [...ids, kept] });
      return rows.map((row) => String(row.delivery_id)).sort();
    };
    // One of an older account comes before these.
    const inOrder = [...ids].sort();
    const first = await forgetAnalysesOfDay(pool, day("2020-01-04"), null, 4);
    expect(first).toEqual({ accountId: account, id: inOrder[2] });
    expect(await left()).toEqual([...inOrder.slice(3), kept].sort());
    const second = await forgetAnalysesOfDay(pool, day("2020-01-04"), first!, 4);
    expect(second).toEqual({ accountId: account, id: inOrder[6] });
    expect(await forgetAnalysesOfDay(pool, day("2020-01-04"), second!, 4)).toBeNull();
    expect(await left()).toEqual([kept]);
  });

  it("looks at no delivery twice", async () => {
    const names = Array.from({ length: 500 }, (_, n) => `g-${n}`);
    await publishAt(pool, accountId, day("2020-01-05"), names);
    const reads = async () => {
      await flushStatistics(pool);
      return (await readIndexReads(pool)).get("deliveries_20200105_pkey")!;
    };
    const before = await reads();
    let place: LogPlace | null = null;
    do place = await forgetAnalysesOfDay(pool, day("2020-01-05"), place, 10);
    while (place !== null);
    const read = (await reads()) - before;
    expect(read).toBeGreaterThan(0);
    expect(read).toBeLessThan(1_000);
  });
});
