import type { ClientBase } from "pg";
import { beforeEach, describe, expect, it } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../src/base/model/audit.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { advanceReplays } from "../../src/log/replay-steps-sql.ts";
import { createReplay, findReplay, type StoredReplay } from "../../src/log/replays-sql.ts";
import {
  countRows,
  deleteRows,
  insertAccount,
  insertRow,
  publish,
  publishMany,
  rowOf,
} from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { takeWakeups } from "../support/wakeup-jobs.ts";

const RETENTION_MS = 7 * 86_400_000;
const LONG_AGO = new Date(2 ** 40);
const LIMITS = { runningMax: 100, waitingMax: 1_000_000 };
const database = await openDatabase();
let accountId: string;
let serial = 0;

beforeEach(async () => {
  accountId = await insertAccount(database.pool);
});

/** Without a target a delivery is abandoned at once. */
async function abandoned(): Promise<string> {
  return await publish(database.pool, accountId, `{"id":"r-${++serial}","status":"succeeded"}`);
}

function make(client: ClientBase, ratePerSecond: number, limits: Partial<typeof LIMITS> = {}) {
  const unasked = {
    filter: {},
    note: null,
    expectedMatched: null,
    createdBy: COMMAND_LINE,
  };
  const asked = { ...unasked, ratePerSecond, analysisRetentionMs: RETENTION_MS };
  return createReplay(client, wholeAccount(accountId), { ...asked, limits: { ...LIMITS, ...limits } });
}

describe("bulk replays of one account", () => {
  it("is refused beyond what one account may have running, or waiting, and not beside another's", async () => {
    for (let i = 0; i < 3; i++) await abandoned();
    const create = (limits: Partial<typeof LIMITS>) =>
      inTransaction(database.pool, (client) => make(client, 1_000, limits));
    expect(await create({ waitingMax: 2 })).toBe("too_many_replays");
    const first = (await create({ runningMax: 2, waitingMax: 6 })) as StoredReplay;
    expect(first).toMatchObject({ status: "running", matched: 3 });
    const [second, third] = await Promise.all([create({ runningMax: 2 }), create({ runningMax: 2 })]);
    expect([second, third].filter((one) => one === "too_many_replays")).toHaveLength(1);
    expect(await create({ runningMax: 100, waitingMax: 8 })).toBe("too_many_replays");
    const before = accountId;
    accountId = await insertAccount(database.pool);
    expect(await create({ runningMax: 1 })).toMatchObject({ status: "done" });
    accountId = before;
    await advanceReplays(database.pool, RETENTION_MS, new Date(Date.parse(first.created_at) + 2_000));
    expect(await findReplay(database.pool, wholeAccount(accountId), first.id)).toMatchObject({
      status: "delivering",
    });
    expect(await create({ runningMax: 1 }), "what is delivering does not count").toMatchObject({
      matched: 0,
    });
  });

  it("shares a step by account first, so that nobody's many replays hold up another's one", async () => {
    await deleteRows(database.pool, "replays");
    const many = 400;
    const replays: StoredReplay[] = [];
    const greedy = accountId;
    await publishMany(
      database.pool,
      Array.from({ length: many }, () => greedy),
      Array.from({ length: many }, () => `{"id":"r-${++serial}","status":"failed"}`),
      Array.from({ length: many }, () => null),
    );
    for (let n = 0; n < 10; n++) await inTransaction(database.pool, (client) => make(client, 1_000));
    for (let n = 0; n < 3; n++) {
      accountId = await insertAccount(database.pool);
      for (let m = 0; m < 50; m++) await abandoned();
      replays.push(
        await inTransaction(database.pool, (client) => make(client, 100) as Promise<StoredReplay>),
      );
    }
    const at = new Date(Date.parse(replays[0]!.created_at) + 2_000);
    expect(await advanceReplays(database.pool, RETENTION_MS, at)).toBe(1_000);
    for (const { id } of replays) {
      expect(await rowOf(database.pool, "replays", { id })).toMatchObject({ replayed: 50 });
    }
  });

  it("wakes what a step starts together, so that nobody queues behind a thousand wake-ups", async () => {
    await deleteRows(database.pool, "replays");
    const started = await Promise.all(Array.from({ length: 120 }, abandoned));
    const replay = await inTransaction(
      database.pool,
      (client) => make(client, 1_000) as Promise<StoredReplay>,
    );
    await takeWakeups(database.pool);
    await advanceReplays(database.pool, RETENTION_MS, new Date(Date.parse(replay.created_at) + 2_000));
    const { ids, jobs } = await takeWakeups(database.pool);
    expect(ids.sort()).toEqual(started.sort());
    expect(jobs, "of 50 each").toBe(3);
  });

  /** An account that asks for this many at once, in replays of these sizes. */
  async function asking(...sizes: number[]): Promise<string> {
    const of = await insertAccount(database.pool);
    for (const size of sizes) {
      const paced = { rate_per_second: 1_000, created_at: LONG_AGO, paced_at: LONG_AGO, count_at: LONG_AGO };
      const row = { ...paced, account_id: of, status: "running", filter: {}, matched: size };
      await insertRow(database.pool, "replays", row);
    }
    return of;
  }

  /** Replays that wait to be counted, and have nothing left that is open. */
  async function delivering(count: number, from = LONG_AGO): Promise<string> {
    const of = await insertAccount(database.pool);
    await database.pool.query(
      `insert into sealpost.replays
         (account_id, status, filter, rate_per_second, matched, replayed, created_at, paced_at, count_at)
       select $1, 'delivering', '{}', 1, 1, 1, $2, $2, $2::timestamptz + nth * interval '1 microsecond'
       from generate_series(1, $3::integer) as nth`,
      [of, from, count],
    );
    return of;
  }
  const doneOf = (account_id: string) => countRows(database.pool, "replays", { account_id, status: "done" });
  const step = (second: number) =>
    advanceReplays(database.pool, RETENTION_MS, new Date(LONG_AGO.getTime() + 60_000 + second * 1_000));

  it.each([300, 3_000])("lets nobody's %i keep another's from being counted and done", async (count) => {
    await deleteRows(database.pool, "replays");
    const greedy = await delivering(count);
    const victim = await delivering(1, new Date(LONG_AGO.getTime() + 1_000));
    let steps = 0;
    while ((await doneOf(victim)) === 0) await step(steps++);
    expect(steps).toBeLessThanOrEqual(Math.ceil((count + 1) / 1_000));
    expect(await doneOf(greedy), "ten in each step").toBe(10 * steps);
  });

  it("counts all of an account's, however many, and an account with few is done at once", async () => {
    await deleteRows(database.pool, "replays");
    const [many, few] = [await delivering(55), await delivering(10)];
    await step(0);
    expect([await doneOf(many), await doneOf(few)]).toEqual([10, 10]);
    for (let second = 1; second < 60; second++) await step(second);
    expect(await doneOf(many)).toBe(55);
  });

  it("counts no more in a step than a bounded time allows, and those of many accounts in turn", async () => {
    await deleteRows(database.pool, "replays");
    const accounts: string[] = [];
    for (let n = 0; n < 150; n++) accounts.push(await delivering(2));
    await step(0);
    const first = await countRows(database.pool, "replays", { status: "done" });
    expect(first).toBe(100);
    for (let second = 1; second < 3; second++) await step(second);
    for (const account of accounts) expect(await doneOf(account)).toBe(2);
  });

  async function sharesOf(...accounts: string[]): Promise<number[][]> {
    const { rows } = await database.pool.query<{ account_id: string; allowed: number }>(
      "select account_id, allowed from sealpost.replay_shares(now(), 1000) order by allowed",
    );
    return accounts.map((of) => rows.filter(({ account_id }) => account_id === of).map((row) => row.allowed));
  }

  it("gives all to whoever asks for little, and the rest equally to all others", async () => {
    await deleteRows(database.pool, "replays");
    const [little, more] = [await asking(40), await asking(160)];
    const greedy = [await asking(2_000), await asking(1_500), await asking(500, 700), await asking(900)];
    expect(await sharesOf(little, more, ...greedy)).toEqual([[40], [160], [200], [200], [100, 100], [200]]);
  });

  it.each([2, 20])("gives a small one all it asks for beside %i greedy accounts", async (count) => {
    await deleteRows(database.pool, "replays");
    for (let n = 0; n < count; n++) await asking(2_000, 2_000, 2_000);
    for (let tries = 0; tries < 20; tries++) expect(await sharesOf(await asking(2))).toEqual([[2]]);
  });

  it("shares within an account in the same way", async () => {
    await deleteRows(database.pool, "replays");
    const accounts = [await asking(50, 1_000, 2_000), await asking(1_000)];
    expect(await sharesOf(...accounts)).toEqual([[50, 225, 225], [500]]);
  });

  it("lets nobody's thousands of replays take another's turn, and each of them has its own", async () => {
    await deleteRows(database.pool, "replays");
    const many = await asking(...Array.from({ length: 600 }, () => 10));
    const one = await asking(700);
    const [ofMany, ofOne] = await sharesOf(many, one);
    expect([ofMany?.length, ofOne]).toEqual([500, [500]]);
    const { rowCount } = await database.pool.query(
      `update sealpost.replays set paced_at = now() - interval '10 seconds'
       where id in (select id from sealpost.replay_shares(now(), 1000)) and account_id = $1`,
      [many],
    );
    expect(rowCount).toBe(500);
    const { rows } = await database.pool.query<{ first: number }>(
      `select count(*)::integer as first from sealpost.replay_shares(now(), 1000) as s
       join sealpost.replays as r on r.id = s.id where s.account_id = $1 and r.paced_at = $2`,
      [many, LONG_AGO],
    );
    expect(rows, "the hundred that had none come first").toEqual([{ first: 100 }]);
  });
});
