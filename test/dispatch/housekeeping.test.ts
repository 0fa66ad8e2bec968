import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { keepHouse } from "../../src/dispatch/housekeeping.ts";
import { DAY_MS } from "../../src/model/time.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { insertAccount } from "../support/publishing.ts";

const RETENTION = {
  analysisRetentionMs: 7 * DAY_MS,
  logRetentionMs: 30 * DAY_MS,
  auditRetentionMs: 365 * DAY_MS,
  idempotencyRetentionMs: DAY_MS,
};
const PUBLISHED_ON = new Date("2020-03-01T12:00:00Z");

let database: TestDatabase;
let accountId: string;

beforeAll(async () => {
  database = await createTestDatabase();
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  await database.pool.query("select sealpost.make_partitions('2020-03-01', 2)");
});
afterAll(() => database.drop());

async function keepHouseOn(at: Date | null, signal = new AbortController().signal) {
  const dropped: string[] = [];
  const kept: [string, number][] = [];
  await keepHouse(database.pool, {
    retention: RETENTION,
    at,
    signal,
    log: {
      made: () => undefined,
      dropped: (partition) => dropped.push(partition),
      kept: (partition, open) => kept.push([partition, open]),
    },
  });
  return { dropped, kept };
}

const daysLater = (days: number) => new Date(Date.parse("2020-03-01T00:00:00Z") + days * DAY_MS);

describe("keeping house", () => {
  let openId: string;

  beforeAll(async () => {
    const ids = await publishAt(database.pool, accountId, PUBLISHED_ON, ["h-1", "h-2"]);
    openId = ids[0]!;
    await database.pool.query("delete from sealpost.open_deliveries where delivery_id = $1", [ids[1]]);
  });

  it("drops nothing before its time", async () => {
    expect(await keepHouseOn(new Date(daysLater(9).getTime() - 1))).toEqual({ dropped: [], kept: [] });
  });

  it("keeps a day that still has open deliveries, and says so", async () => {
    expect(await keepHouseOn(daysLater(9))).toEqual({ dropped: [], kept: [["bodies_20200301", 1]] });
    const { rowCount } = await database.pool.query("select from sealpost.bodies where delivery_id = $1", [
      openId,
    ]);
    expect(rowCount).toBe(1);
  });

  it("drops bodies a day after their analyses may go, and the log when its time is over", async () => {
    await database.pool.query("delete from sealpost.open_deliveries");
    expect((await keepHouseOn(daysLater(9))).dropped).toEqual(["bodies_20200301"]);
    expect((await keepHouseOn(new Date(daysLater(31).getTime() - 1))).dropped).toEqual(["bodies_20200302"]);
    expect((await keepHouseOn(daysLater(31))).dropped).toEqual(["deliveries_20200301", "attempts_20200301"]);
  });

  it("forgets the analyses of a day with its log, so that their ids mean nothing any more", async () => {
    const { rowCount } = await database.pool.query("select from sealpost.analyses where account_id = $1", [
      accountId,
    ]);
    expect(rowCount).toBe(0);
  });

  it("goes by the database's clock, and makes what is missing", async () => {
    expect((await keepHouseOn(null)).dropped).toEqual(["deliveries_20200302", "attempts_20200302"]);
    const { rows } = await database.pool.query(
      "select count(*)::integer as n from pg_inherits where inhparent = 'sealpost.bodies'::regclass",
    );
    expect(rows[0].n).toBe(16);
  });

  it("forgets replays with the log that shows what became of them, and never one that is running", async () => {
    const add = async (status: string, endedDaysAgo: number | null) => {
      const { rows } = await database.pool.query<{ id: string }>(
        `with replay as (
           insert into sealpost.replays
             (account_id, status, filter, rate_per_second, matched, created_at, paced_at, ended_at)
           values ($1, $2, '{}', 10, 1, now() - interval '90 days', now(), now() - $3::float8 * interval '1 day')
           returning id
         ), item as (
           insert into sealpost.replay_items (replay_id, position, delivery_id)
           select id, 1, gen_random_uuid() from replay
         )
         select id from replay`,
        [accountId, status, endedDaysAgo],
      );
      return rows[0]!.id;
    };
    await add("done", 30.01);
    await add("cancelled", 40);
    const kept = [await add("done", 29.99), await add("running", null)].sort();
    await keepHouseOn(null);
    for (const text of ["id from sealpost.replays", "replay_id as id from sealpost.replay_items"]) {
      const { rows } = await database.pool.query<{ id: string }>(`select ${text} order by 1`);
      expect(rows.map(({ id }) => id)).toEqual(kept);
    }
  });

  it("ends at once when it is asked to", async () => {
    await database.pool.query("select sealpost.make_partitions('2020-03-01', 2)");
    expect((await keepHouseOn(null, AbortSignal.abort())).dropped).toEqual([]);
  });
});
