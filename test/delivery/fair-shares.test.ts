import { beforeEach, describe, expect, it } from "vitest";
import type { Overflow } from "../../src/delivery/lane.ts";
import { takeBackOverflow } from "../../src/delivery/promote-sql.ts";
import {
  findAnsweredLanes,
  forgetAnsweredLanes,
  rememberAnsweredLanes,
} from "../../src/delivery/receivers-sql.ts";
import { claimOne, openRow, publishAt } from "../support/delivery-rows.ts";
import {
  changeRows,
  countRows,
  forgetOpen,
  insertAccount,
  insertRow,
  rowOf,
} from "../support/installation.ts";
import { openForDispatch } from "../support/open.ts";
import { takeWakeups } from "../support/wakeup-jobs.ts";

const { database, pool } = await openForDispatch();
let accountId: string;
let serial = 0;
const STARTED_MS = Date.now() - 100_000;

beforeEach(async () => {
  await forgetOpen(database.pool);
  await takeWakeups(database.pool);
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});

const WAKE_AFTER_MS = 15_000;

async function publishSome(
  count: number,
  of = accountId,
  webhookUrl: string | null = null,
): Promise<string[]> {
  // Ids of one moment are in no order.
  const at = new Date(STARTED_MS + serial);
  const names = Array.from({ length: count }, () => `f-${serial++}`);
  return (await publishAt(pool, of, at, names, webhookUrl)).sort();
}

async function laneOf(deliveryId: string): Promise<{ accountId: string; lane: string }> {
  const { rows } = await pool.query<{ accountId: string; lane: string }>(
    `select account_id as "accountId", lane from sealpost.open_deliveries where delivery_id = $1`,
    [deliveryId],
  );
  return rows[0]!;
}

describe("wake-ups", () => {
  it("name the account of each delivery, in its order", async () => {
    const other = await insertAccount(database.pool, "https://other.example.com/");
    const { rows } = await database.pool.query<{ ids: string[] }>(
      "select sealpost.publish_analyses($1, $2, $3) as ids",
      [
        [accountId, other, accountId],
        ["a", "b", "c"].map((name) => `{"id":"w-${name}","status":"succeeded"}`),
        [null, null, null],
      ],
    );
    const { rows: jobs } = await database.pool.query(
      "select payload from graphile_worker._private_jobs order by id desc limit 1",
    );
    expect(jobs[0].payload).toMatchObject({ ids: rows[0]!.ids, accounts: [accountId, other, accountId] });
  });
});

describe("promoting", () => {
  it("gives every account its share, whatever another has due, and that one's lanes in turn", async () => {
    const flood = await publishSome(30);
    const floodElsewhere = await publishSome(10, accountId, "https://elsewhere.example.com/");
    const neighbour = await insertAccount(database.pool, "https://neighbour.example.com/");
    const theirs = await publishSome(3, neighbour);
    await takeWakeups(database.pool);
    const at = new Date(Date.now() + 2 * WAKE_AFTER_MS);
    const { rows } = await pool.query("select looked, woken from sealpost.promote($1, 10000, 5, 200)", [at]);
    expect(rows[0]).toEqual({ looked: 43, woken: 13 });
    const { ids } = await takeWakeups(database.pool);
    const of = (some: readonly string[]) => ids.filter((id) => some.includes(id)).length;
    expect([of(flood), of(floodElsewhere), of(theirs)]).toEqual([5, 5, 3]);
    const waits = await Promise.all(flood.map(async (id) => (await openRow(pool, id))!.wake_at.getTime()));
    expect(Math.max(...waits) - at.getTime(), "the last of thirty").toBeLessThanOrEqual(WAKE_AFTER_MS);
  });
});

describe("what a lane let go", () => {
  const takeBack = async (overflow: Overflow) => (await takeBackOverflow(pool, [overflow]))[0]!;

  it("is taken back from an id on, as much as there is room for, and only once at a time", async () => {
    const ids = await publishSome(10);
    const lane = await laneOf(ids[0]!);
    const first = await takeBack({ ...lane, fromId: ids[2]!, room: 3 });
    expect(first).toEqual({ deliveryIds: ids.slice(2, 5), nextFromId: ids[5] });
    const rest = await takeBack({ ...lane, fromId: ids[5]!, room: 100 });
    expect(rest).toEqual({ deliveryIds: ids.slice(5), nextFromId: null });
    const again = await takeBack({ ...lane, fromId: ids[0]!, room: 100 });
    expect(again.deliveryIds, "another dispatcher has just got the others").toEqual(ids.slice(0, 2));
  });

  it("is neither what is not due, nor what is leased, nor another lane's", async () => {
    const ids = await publishSome(3);
    const lane = await laneOf(ids[0]!);
    await publishSome(3, accountId, "https://elsewhere.example.com/");
    await claimOne(pool, ids[0]!);
    await changeRows(
      database.pool,
      "open_deliveries",
      { delivery_id: ids[1] },
      { due_at: new Date(2 ** 42) },
    );
    expect(await takeBack({ ...lane, fromId: ids[0]!, room: 100 })).toEqual({
      deliveryIds: [ids[2]],
      nextFromId: null,
    });
  });

  it("is taken back for many lanes at once, from where the first of all are", async () => {
    const here = await publishSome(5);
    const there = await publishSome(5, accountId, "https://elsewhere.example.com/");
    const neighbour = await insertAccount(database.pool, "https://neighbour.example.com/");
    const theirs = await publishSome(3, neighbour);
    const at = async (ids: readonly string[], from: number, room: number) => ({
      ...(await laneOf(ids[0]!)),
      fromId: ids[from]!,
      room,
    });
    const overflows = [await at(there, 1, 2), await at(here, 3, 100), await at(theirs, 0, 100)];
    expect(await takeBackOverflow(pool, overflows)).toEqual([
      { deliveryIds: there.slice(1, 3), nextFromId: there[3] },
      { deliveryIds: here.slice(3), nextFromId: null },
      { deliveryIds: theirs, nextFromId: null },
    ]);
  });

  it("is looked for among ten thousand at a time, behind which more may follow", async () => {
    const first = await publishSome(1);
    const lane = await laneOf(first[0]!);
    await publishSome(9_998, accountId, "https://elsewhere.example.com/");
    const [second, third] = await publishSome(2);
    const elsewhere = { ...(await laneOf(third!)), room: 1 };
    expect(await takeBack({ ...lane, fromId: first[0]!, room: 100 })).toEqual({
      deliveryIds: [first[0], second],
      nextFromId: second,
    });
    const neighbour = await insertAccount(database.pool, "https://neighbour.example.com/");
    const [last] = await publishSome(1, neighbour);
    const behind = { ...(await laneOf(last!)), fromId: last!, room: 1 };
    expect(await takeBackOverflow(pool, [{ ...elsewhere, fromId: first[0]! }, behind])).toEqual([
      { deliveryIds: [], nextFromId: second },
      { deliveryIds: [], nextFromId: last },
    ]);
  });
});

describe("receivers that answered", () => {
  it("are remembered once, and found among those that are asked for", async () => {
    const lanes = [1, 2, 3].map((lane) => ({ accountId, lane: String(lane), isSuspended: false }));
    await rememberAnsweredLanes(pool, [...lanes.slice(0, 2), lanes[0]!]);
    await rememberAnsweredLanes(pool, lanes.slice(0, 2));
    expect(await countRows(database.pool, "answered_lanes", { account_id: accountId })).toBe(2);
    const other = await insertAccount(database.pool);
    const asked = [...lanes, { accountId: other, lane: "1" }];
    const found = await findAnsweredLanes(pool, asked);
    expect([...found].sort((one, two) => Number(one.lane) - Number(two.lane))).toEqual(lanes.slice(0, 2));
  });

  it("are remembered for as long as they go on answering", async () => {
    const ago = new Date(Date.now() - 2 * 86_400_000);
    const one = { accountId, lane: "1", isSuspended: null };
    const row = { account_id: accountId, lane: 1 };
    await insertRow(database.pool, "answered_lanes", { ...row, answered_at: ago, suspended_at: ago });
    await rememberAnsweredLanes(pool, [one]);
    const { answered_at, suspended_at } = await rowOf(database.pool, "answered_lanes", row);
    expect(answered_at.getTime()).toBeGreaterThan(Date.now() - 60_000);
    expect(suspended_at, "nobody knows better").toEqual(ago);
  });

  it("are suspended until they are told otherwise, however lately they answered", async () => {
    const told = { accountId, lane: "1" };
    for (const isSuspended of [false, true, true, false]) {
      await rememberAnsweredLanes(pool, [{ ...told, isSuspended }]);
      expect(await findAnsweredLanes(pool, [told])).toEqual([{ ...told, isSuspended }]);
    }
  });

  it("are forgotten a month after they answered, and beyond what is kept of one account", async () => {
    const month = 31 * 86_400_000;
    await insertRow(database.pool, "answered_lanes", {
      account_id: accountId,
      lane: 1,
      answered_at: new Date(Date.now() - month),
    });
    await insertRow(database.pool, "answered_lanes", { account_id: accountId, lane: 2 });
    expect(await forgetAnsweredLanes(pool)).toBe(1);
    const { rows } = await database.pool.query(
      `insert into sealpost.answered_lanes (account_id, lane, answered_at)
       select $1, n, now() - n * interval '1 second' from generate_series(10, 29) as n
       returning lane`,
      [accountId],
    );
    expect(rows).toHaveLength(20);
    const kept = await database.pool.query(
      "select sealpost.forget_answered_lanes(interval '1 year', 5, 1000) as forgotten",
    );
    expect(kept.rows).toEqual([{ forgotten: 16 }]);
    expect(await countRows(database.pool, "answered_lanes", { account_id: accountId })).toBe(5);
  });
});
