import type { ClientBase } from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { NO_FILTER } from "../../src/store/delivery-filter.ts";
import { advanceReplays, createReplay, findReplay, type StoredReplay } from "../../src/store/replays.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { deleteRows, insertAccount, publish, publishMany, rowOf } from "../support/installation.ts";
import { takeWakeups } from "../support/wakeup-jobs.ts";

const RETENTION_MS = 7 * 86_400_000;
const LIMITS = { runningMax: 100, waitingMax: 1_000_000 };
let database: TestDatabase;
let accountId: string;
let serial = 0;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());
beforeEach(async () => {
  accountId = await insertAccount(database.pool);
});

/** Without a target a delivery is abandoned at once. */
async function abandoned(): Promise<string> {
  return await publish(database.pool, accountId, `{"id":"r-${++serial}","status":"succeeded"}`);
}

function make(client: ClientBase, ratePerSecond: number, limits: Partial<typeof LIMITS> = {}) {
  const asked = { filter: NO_FILTER, asked: {}, ratePerSecond, analysisRetentionMs: RETENTION_MS };
  return createReplay(client, accountId, { ...asked, limits: { ...LIMITS, ...limits } });
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
    await advanceReplays(database.pool, RETENTION_MS, new Date(first.createdAt.getTime() + 2_000));
    expect(await findReplay(database.pool, accountId, first.id)).toMatchObject({ status: "delivering" });
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
    const at = new Date(replays[0]!.createdAt.getTime() + 2_000);
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
    await advanceReplays(database.pool, RETENTION_MS, new Date(replay.createdAt.getTime() + 2_000));
    const { ids, jobs } = await takeWakeups(database.pool);
    expect(ids.sort()).toEqual(started.sort());
    expect(jobs, "of 50 each").toBe(3);
  });
});
