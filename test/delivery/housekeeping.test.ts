import { randomBytes, randomUUID } from "node:crypto";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { keepHouse } from "../../src/app/housekeeping.ts";
import { type Retention, readRetention } from "../../src/base/database/cells.ts";
import { DAY_MS } from "../../src/base/model/time.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { claimOne, deliveryRow, publishAt } from "../support/delivery-rows.ts";
import {
  countRows,
  forgetOpen,
  insertAccount,
  insertRow,
  makePartitionsFrom,
  rowsOf,
} from "../support/installation.ts";

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
  await makePartitionsFrom(database.pool, "2020-03-01", 2);
});
afterAll(() => database.drop());

async function keepHouseOn(
  at: Date | null,
  signal = new AbortController().signal,
  retention: Partial<Retention> = {},
) {
  const lines: { msg: string; partition: string; openDeliveries: number }[] = [];
  const log = pino({}, { write: (line) => lines.push(JSON.parse(line)) });
  await keepHouse(database.pool, { retention: { ...RETENTION, ...retention }, at, signal, log });
  const dropped = lines.filter(({ msg }) => msg === "dropped a partition");
  const kept = lines.filter(({ msg }) => msg === "an old partition stays: it still has open deliveries");
  return {
    dropped: dropped.map(({ partition }) => partition),
    kept: kept.map(({ partition, openDeliveries }) => [partition, openDeliveries]),
  };
}

const daysLater = (days: number) => new Date(Date.parse("2020-03-01T00:00:00Z") + days * DAY_MS);

describe("keeping house", () => {
  let openId: string;
  let waitingId: string;

  beforeAll(async () => {
    const ids = await publishAt(database.pool, accountId, PUBLISHED_ON, ["h-1", "h-2", "h-3"]);
    [openId, waitingId] = ids as [string, string];
    await forgetOpen(database.pool, [ids[2]!]);
  });

  it("says how long everything is kept here", async () => {
    await keepHouseOn(new Date(daysLater(1)));
    expect(await readRetention(database.pool)).toEqual(RETENTION);
  });

  it("drops nothing before its time", async () => {
    expect(await keepHouseOn(new Date(daysLater(9).getTime() - 1))).toEqual({ dropped: [], kept: [] });
  });

  it("keeps a day with an attempt under way, and says so; what only waits has expired", async () => {
    await claimOne(database.pool, openId, { at: daysLater(8) });
    const { dropped, kept } = await keepHouseOn(daysLater(9));
    expect(await deliveryRow(database.pool, waitingId)).toMatchObject({
      status: "abandoned",
      reason: "analysis_expired",
    });
    expect(kept).toEqual([["bodies_20200301", 1]]);
    expect(dropped, "its places in the feed go all the same").toEqual(["feed_20200301"]);
    expect(await countRows(database.pool, "bodies", { delivery_id: openId })).toBe(1);
  });

  it("drops bodies a day after their analyses may go, and the log when its time is over", async () => {
    await forgetOpen(database.pool);
    expect((await keepHouseOn(daysLater(9))).dropped).toEqual(["bodies_20200301"]);
    expect((await keepHouseOn(new Date(daysLater(31).getTime() - 1))).dropped).toEqual([
      "bodies_20200302",
      "feed_20200302",
    ]);
    expect((await keepHouseOn(daysLater(31))).dropped).toEqual(["attempts_20200301", "deliveries_20200301"]);
  });

  it("forgets the analyses of a day with its log, so that their ids mean nothing any more", async () => {
    expect(await countRows(database.pool, "analyses", { account_id: accountId })).toBe(0);
  });

  it("keeps a day's deliveries as long as what is erased by them, and drops them last", async () => {
    await makePartitionsFrom(database.pool, "2020-02-20", 1);
    const days = (count: number) => new Date(Date.parse("2020-02-20T00:00:00Z") + count * DAY_MS);
    const short = { logRetentionMs: RETENTION.analysisRetentionMs };
    const { signal } = new AbortController();
    expect((await keepHouseOn(days(8), signal, short)).dropped).toEqual([]);
    const names = ["bodies", "feed", "attempts", "deliveries"].map((table) => `${table}_20200220`);
    expect((await keepHouseOn(days(9), signal, short)).dropped).toEqual(names);
  });

  it("goes by the database's clock, and makes what is missing", async () => {
    expect((await keepHouseOn(null)).dropped).toEqual(["attempts_20200302", "deliveries_20200302"]);
    const { rows } = await database.pool.query(
      "select count(*)::integer as n from pg_inherits where inhparent = 'sealpost.bodies'::regclass",
    );
    expect(rows[0].n).toBe(16);
  });

  it("forgets replays with the log that shows what became of them, and never one that is running", async () => {
    const add = async (status: string, endedDaysAgo: number | null) => {
      const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS);
      const { id } = await insertRow(database.pool, "replays", {
        account_id: accountId,
        status,
        filter: {},
        rate_per_second: 10,
        matched: 1,
        created_at: daysAgo(90),
        paced_at: daysAgo(0),
        ended_at: endedDaysAgo === null ? null : daysAgo(endedDaysAgo),
      });
      await insertRow(database.pool, "replay_items", {
        replay_id: id,
        position: 1,
        delivery_id: randomUUID(),
      });
      return id;
    };
    await add("done", 30.01);
    await add("cancelled", 40);
    const kept = [await add("done", 29.99), await add("running", null)].sort();
    await keepHouseOn(null);
    expect((await rowsOf(database.pool, "replays")).map(({ id }) => id)).toEqual(kept);
    expect((await rowsOf(database.pool, "replay_items")).map((item) => item.replay_id)).toEqual(kept);
  });

  it("forgets signing secrets with the log of what they signed, and never a current one", async () => {
    const add = async (expiredDaysAgo: number | null) => {
      const { id } = await insertRow(database.pool, "signing_secrets", {
        account_id: accountId,
        sealed: Buffer.from("sealed"),
        created_at: new Date(Date.now() - 90 * DAY_MS),
        expires_at: expiredDaysAgo === null ? null : new Date(Date.now() - expiredDaysAgo * DAY_MS),
      });
      return id;
    };
    await add(30.01);
    await add(60);
    const kept = [await add(29.99), await add(-1), await add(null)].sort();
    await keepHouseOn(null);
    const rows = await rowsOf(database.pool, "signing_secrets", { account_id: accountId });
    expect(rows.map(({ id }) => id)).toEqual(kept);
  });

  it("forgets keys that ended as long ago, and none that opened a session that is still to be seen", async () => {
    const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS);
    const add = async (ended: { readonly expires_at?: Date; readonly revoked_at?: Date }) => {
      const key = { account_id: accountId, digest: randomBytes(32), class: "live", scopes: [], ...ended };
      return (await insertRow(database.pool, "api_keys", key)).id as string;
    };
    await add({ revoked_at: daysAgo(30.01) });
    await add({ expires_at: daysAgo(40), revoked_at: daysAgo(1) });
    const opened = await add({ expires_at: daysAgo(40) });
    await insertRow(database.pool, "console_sessions", {
      account_id: accountId,
      key_id: opened,
      permissions: [],
      expires_at: daysAgo(0.5),
    });
    const kept = [opened, await add({ revoked_at: daysAgo(29.99) }), await add({ expires_at: daysAgo(-1) })];
    kept.push(await add({}));
    await keepHouseOn(null);
    const rows = await rowsOf(database.pool, "api_keys", { account_id: accountId });
    expect(rows.map(({ id }) => id)).toEqual(kept.sort());
  });

  it("ends at once when it is asked to", async () => {
    await makePartitionsFrom(database.pool, "2020-03-01", 2);
    expect((await keepHouseOn(null, AbortSignal.abort())).dropped).toEqual([]);
  });
});
