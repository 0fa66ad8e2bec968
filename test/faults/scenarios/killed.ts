// Dispatchers that are killed, at the worst of moments.
import { equal } from "node:assert/strict";
import { patience } from "../../support/time-limits.ts";
import type { Verdict } from "../harness/checker.ts";
import { LEASE_MS, SWEEP_MS } from "../harness/cluster.ts";
import { holdTable } from "../harness/held-table.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Figures,
  type Place,
  type Scenario,
  until,
  wait,
  withCluster,
} from "../harness/scenario.ts";

/**
 * After lease and sweep there is the job's way and the claim itself. The second that this may take is for a machine
 * that does nothing else; while everything is tested at once, on two cores, a new process alone has taken over three.
 */
function sentAgainMsMax({ scale }: Place): number {
  return LEASE_MS + SWEEP_MS + (scale === "quick" ? patience(5_000) : 1_000);
}

type Kills = {
  readonly count: number;
  /** How long after a kill the next one comes, at random. */
  readonly pauseMs: readonly [number, number];
  readonly drainMs: number;
  readonly perSecond?: number;
  readonly env?: Readonly<Record<string, string>>;
};

/** Kills one of two dispatchers after the other, each followed by a new one, while everything goes on. */
async function playKills(
  place: Place,
  { count, pauseMs, drainMs, perSecond = 20, env = {} }: Kills,
): Promise<[Verdict, Figures]> {
  return await withCluster(place, { dispatchers: 2, env }, async (cluster) => {
    const accounts: string[] = [];
    for (let n = 0; n < 4; n++) {
      await cluster.receiver.behave(`/${n}`, { jitterMs: 600 });
      accounts.push((await cluster.createAccount(`/${n}`)).accountId);
    }
    const publishing = new AbortController();
    const published = cluster.producer.run(perSecond, accounts, publishing.signal);
    await cluster.receiver.waitFor(5);
    let inFlight = 0;
    for (let n = 0; n < count; n++) {
      await wait(place.chance.between(...pauseMs));
      const victim = place.chance.pick(cluster.dispatchers);
      inFlight += await cluster.countLeased();
      await victim.kill();
      await cluster.startDispatcher();
    }
    publishing.abort();
    await published;
    const drainedMs = await cluster.drain(drainMs);
    const verdict = await cluster.check();
    expectSafe(verdict);
    expectAtMost(verdict.duplicated, inFlight + verdict.unanswered, "duplicates");
    equal(verdict.succeeded + (verdict.abandoned.interrupted ?? 0), verdict.published);
    const figures = {
      kills: count,
      ...countsOf(verdict),
      "in flight at kills": inFlight,
      "sent again ms": verdict.sentAgainMsMax,
      "drained ms": drainedMs,
    };
    return [verdict, figures];
  });
}

export const killedInMidPost: Scenario = {
  name: "killed-in-mid-post",
  fault: "kill -9 of a dispatcher with POSTs under way, and all quiet until they are sent again",
  play: async (place) => {
    const allowedMs = sentAgainMsMax(place);
    const [verdict, figures] = await playKills(place, {
      count: place.scale === "quick" ? 2 : 20,
      pauseMs: [LEASE_MS + SWEEP_MS, allowedMs],
      drainMs: 40_000,
      // With nine POSTs of each dispatcher under way, two kills cut none of them once in a hundred million runs.
      perSecond: 60,
    });
    expectAtMost(verdict.sentAgainMsMax, allowedMs, "ms until sent again");
    return { ...figures, "sent again ms allowed": allowedMs };
  },
};

/** Whoever was to send again may be killed in its turn, so there is no telling how soon that is. */
export const killedOverAndOver: Scenario = {
  name: "killed-over-and-over",
  fault: "kill -9 of one dispatcher after the other, at any moment",
  play: async (place) => {
    const [, figures] = await playKills(place, {
      count: place.scale === "quick" ? 4 : 100,
      pauseMs: [0, 900],
      drainMs: place.scale === "quick" ? 60_000 : 900_000,
      // A window of a minute would end some deliveries before a hundred kills have come to an end.
      env: { RETRY_WINDOW_SECONDS: "86400" },
    });
    return figures;
  },
};

export const killedBeforeRecording: Scenario = {
  name: "killed-before-recording",
  fault: "kill -9 of a dispatcher between a 2xx and its record",
  play: (place) =>
    withCluster(place, { dispatchers: 1 }, async (cluster) => {
      const { accountId } = await cluster.createAccount();
      const count = 8;
      const table = await holdTable(cluster.databaseUrl, "sealpost.attempts");
      await cluster.producer.publishMany(count, accountId);
      await cluster.receiver.waitFor(count, ({ answer }) => answer !== null);
      await cluster.dispatchers[0]!.kill();
      // What it had already sent to the database must not arrive there either.
      await table.endWaiters();
      const [next] = await Promise.all([cluster.startDispatcher(), table.letGo()]);
      await cluster.drain(30_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, count);
      // What the receiver accepted and nobody wrote down has to be sent again: once each.
      equal(verdict.duplicated, count);
      equal(verdict.interrupted, count);
      expectAtMost(verdict.sentAgainMsMax, sentAgainMsMax(place), "ms until sent again");
      equal(next.errors, "");
      return { ...countsOf(verdict), "sent again ms": verdict.sentAgainMsMax };
    }),
};

export const unwritableResult: Scenario = {
  name: "unwritable-result",
  fault: "the result cannot be written after a 2xx, for longer than the lease lasts",
  play: (place) =>
    withCluster(place, { dispatchers: 1 }, async (cluster) => {
      const { accountId } = await cluster.createAccount();
      const count = 8;
      const table = await holdTable(cluster.databaseUrl, "sealpost.attempts");
      await cluster.producer.publishMany(count, accountId);
      await cluster.receiver.waitFor(count, ({ answer }) => answer !== null);
      await until(async () => (await cluster.countLeased()) === 0);
      await table.letGo();
      await cluster.drain(30_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, count);
      // A last try that still waits for the table may be let in; all others are sent again.
      expectAtMost(verdict.duplicated, count, "duplicates");
      equal(verdict.duplicated, verdict.interrupted);
      return { ...countsOf(verdict), "sent again ms": verdict.sentAgainMsMax };
    }),
};

export const resultWrittenLate: Scenario = {
  name: "result-written-late",
  fault: "the result cannot be written after a 2xx, but can before the lease ends",
  play: (place) =>
    withCluster(place, { dispatchers: 1 }, async (cluster) => {
      const { accountId } = await cluster.createAccount();
      const table = await holdTable(cluster.databaseUrl, "sealpost.attempts");
      await cluster.producer.publishMany(8, accountId);
      await cluster.receiver.waitFor(8, ({ answer }) => answer !== null);
      await wait(1_000);
      await table.letGo();
      await cluster.drain(30_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.duplicated, 0);
      equal(verdict.interrupted, 0);
      return countsOf(verdict);
    }),
};
