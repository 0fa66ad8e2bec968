import { EventEmitter, once } from "node:events";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../src/base/model/audit.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { PACED_STEPS_PER_SWEEP, startLeader as start, sweepMs } from "../../src/delivery/leader.ts";
import { lead, promoteDue } from "../../src/delivery/promote-sql.ts";
import { advanceReplays, REPLAY_STEP_MAX } from "../../src/log/replay-steps-sql.ts";
import { createReplay, findReplay, type StoredReplay } from "../../src/log/replays-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { countRows, deleteRows, insertAccount, publishMany } from "../support/installation.ts";
import { patience, patientSignal } from "../support/time-limits.ts";

const RETENTION_MS = 7 * 86_400_000;
const NEIGHBOURS = 20;
/** Of each neighbour, in each of its replays: far more than a step's share of one account, for as long as we look. */
const DELIVERIES = 200;

let database: TestDatabase;
const neighbours: string[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  for (let n = 0; n < NEIGHBOURS; n++) neighbours.push(await accountWithAbandoned(DELIVERIES));
}, patience(120_000));
afterAll(() => database.drop());
beforeEach(async () => {
  await deleteRows(database.pool, "replays");
  await deleteRows(database.pool, "leader");
});

/** Without a target a delivery is abandoned at once. */
async function accountWithAbandoned(count: number): Promise<string> {
  const accountId = await insertAccount(database.pool);
  const numbers = Array.from({ length: count }, (_, n) => n);
  await publishMany(
    database.pool,
    numbers.map(() => accountId),
    numbers.map((n) => `{"id":"r-${n}","status":"succeeded"}`),
    numbers.map(() => null),
  );
  return accountId;
}

/** `runningMax`: what one account may have. */
async function replayAll(accountId: string, ratePerSecond: number, runningMax: number) {
  const limits = { runningMax, waitingMax: 200_000 };
  const unasked = {
    filter: {},
    note: null,
    expectedMatched: null,
    createdBy: COMMAND_LINE,
  };
  const asked = { ...unasked, ratePerSecond, analysisRetentionMs: RETENTION_MS, limits };
  return await inTransaction(database.pool, (client) => createReplay(client, wholeAccount(accountId), asked));
}

/** The real leader with its real steps, and how many it has made. */
function startLeader() {
  const events = new EventEmitter();
  const errors: unknown[] = [];
  let steps = 0;
  const stop = start({
    sweepMs: sweepMs(86_400_000),
    lead: (holder, leaseMs) => lead(database.pool, holder, leaseMs),
    promote: () => promoteDue(database.pool, null),
    advanceHolds: async () => 0,
    advanceReplays: async () => {
      const advanced = await advanceReplays(database.pool, RETENTION_MS, null, REPLAY_STEP_MAX);
      steps++;
      events.emit("step");
      return advanced;
    },
    wakeProven: async () => undefined,
    sweepJobs: async () => 0,
    countActivity: async () => undefined,
    forget: async () => undefined,
    keepHouse: async () => undefined,
    onError: (work, error) => errors.push(work, error),
  });
  return {
    stop,
    errors,
    steps: () => steps,
    step: (signal: AbortSignal) => once(events, "step", { signal }),
  };
}

describe("a bulk replay of 50 at 100 a second starts all of them within 5 seconds", () => {
  it.each([
    ["the 5 that each of 20 neighbours may have", 5],
    ["30 of each of 20 neighbours, with the cap lifted", 30],
  ])("beside %s", { timeout: patience(180_000) }, async (_, each) => {
    await Promise.all(
      neighbours.map(async (accountId) => {
        for (let n = 0; n < each; n++) {
          expect(await replayAll(accountId, 1_000, each)).toMatchObject({ status: "running" });
        }
        expect(await replayAll(accountId, 1_000, each)).toBe("too_many_replays");
      }),
    );
    const accountId = await accountWithAbandoned(50);
    const leader = startLeader();
    try {
      const signal = patientSignal(60_000);
      await leader.step(signal);
      const stepsBefore = leader.steps();
      const { id } = (await replayAll(accountId, 100, 5)) as StoredReplay;
      let replay = await findReplay(database.pool, wholeAccount(accountId), id);
      while (replay?.status === "running") {
        await leader.step(signal);
        replay = await findReplay(database.pool, wholeAccount(accountId), id);
      }
      expect(leader.errors).toEqual([]);
      expect(replay).toMatchObject({ status: "delivering", replayed: 50, skipped: 0 });
      // Not more than there are in four seconds, however slow this machine is: of a step's 200 it gets 9.
      expect(leader.steps() - stepsBefore, "steps of the leader").toBeLessThanOrEqual(
        4 * PACED_STEPS_PER_SWEEP,
      );
      const running = await countRows(database.pool, "replays", { status: "running" });
      expect(running, "the neighbours' are still at it").toBeGreaterThan(NEIGHBOURS);
    } finally {
      await leader.stop();
    }
  });
});
