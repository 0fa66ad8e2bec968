// Too much at once: from one endpoint's past, for one account, for receivers that never answer.
import { equal } from "node:assert/strict";
import { LANE_LIMITS } from "../../../src/dispatch/lanes.ts";
import { patience } from "../../support/time-limits.ts";
import type { Arrival } from "../harness/arrival.ts";
import type { Cluster } from "../harness/cluster.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Figures,
  type Place,
  p99,
  type Scenario,
  wait,
  withCluster,
} from "../harness/scenario.ts";

/** Below this the machine's own noise is larger than any neighbour's. */
const QUIET_P99_MS = 50;
const IN_FLIGHT = { DISPATCH_IN_FLIGHT_MAX: "200", LOG_LEVEL: "warn" };

/** The most POSTs under way at the same moment. */
function atOnceMax(arrivals: readonly Arrival[]): number {
  const changes = arrivals.flatMap(({ atMs, answer }) => [
    { atMs, change: 1 },
    { atMs: answer?.atMs ?? Number.POSITIVE_INFINITY, change: -1 },
  ]);
  // What ends in the millisecond in which another begins was over before.
  changes.sort((a, b) => a.atMs - b.atMs || a.change - b.change);
  let atOnce = 0;
  let most = 0;
  for (const { change } of changes) {
    atOnce += change;
    most = Math.max(most, atOnce);
  }
  return most;
}

export const dueAtOnce: Scenario = {
  name: "due-at-once",
  fault: "everything of one endpoint is due at once, now that it is back",
  play: (place) =>
    withCluster(place, { dispatchers: 0, env: IN_FLIGHT }, async (cluster) => {
      const count = place.scale === "quick" ? 400 : 10_000;
      await cluster.receiver.behave("/", { delayMs: 20 });
      const { accountId } = await cluster.createAccount();
      await cluster.producer.publishMany(count, accountId);
      await Promise.all([cluster.startDispatcher(), cluster.startDispatcher()]);
      const drainedMs = await cluster.drain(180_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, count);
      expectAtMost(verdict.duplicated, verdict.unanswered, "duplicates");
      const most = atOnceMax(cluster.receiver.arrivals);
      expectAtMost(most, 2 * LANE_LIMITS.laneInFlightMax, "POSTs to one endpoint at once");
      return { ...countsOf(verdict), "at once": most, "drained ms": drainedMs };
    }),
};

/** Milliseconds from commit to first arrival, of what was published since `fromMs` for these accounts. */
function latencies(cluster: Cluster, accounts: ReadonlySet<string>, fromMs: number): number[] {
  const arrivedAt = new Map<string, number>();
  for (const { deliveryId, atMs } of cluster.receiver.arrivals) {
    if (!arrivedAt.has(deliveryId)) arrivedAt.set(deliveryId, atMs);
  }
  return cluster.producer.publications
    .filter((one) => accounts.has(one.accountId) && one.triedAtMs >= fromMs && one.acknowledgedAtMs !== null)
    .map((one) => (arrivedAt.get(one.deliveryId!) ?? Number.POSITIVE_INFINITY) - one.acknowledgedAtMs!);
}

/** The healthy accounts' p99 without and with a neighbour, and how much worse it is. */
async function playNeighbours(
  place: Place,
  disturb: (cluster: Cluster, signal: AbortSignal) => Promise<unknown>,
  endMs: number,
): Promise<Figures> {
  return await withCluster(place, { env: IN_FLIGHT }, async (cluster) => {
    const phaseMs = place.scale === "quick" ? 2_000 : 20_000;
    const accounts: string[] = [];
    for (let n = 0; n < 14; n++) accounts.push((await cluster.createAccount("/healthy")).accountId);
    const healthy = new Set(accounts);
    const publishing = new AbortController();
    const published = cluster.producer.run(60, accounts, publishing.signal);
    await cluster.receiver.waitFor(60);
    const aloneFrom = Date.now();
    await wait(phaseMs);
    const disturbing = new AbortController();
    const disturbedFrom = Date.now();
    const disturbed = disturb(cluster, disturbing.signal);
    await wait(phaseMs);
    publishing.abort();
    disturbing.abort();
    await Promise.all([published, disturbed]);
    await cluster.drain(endMs);
    const alone = p99(latencies(cluster, healthy, aloneFrom).slice(0, -1)) ?? 0;
    const beside = p99(latencies(cluster, healthy, disturbedFrom)) ?? 0;
    const verdict = await cluster.check();
    expectSafe(verdict);
    // While everything is tested at once, the machine itself is the worst neighbour.
    if (place.scale === "quick") expectAtMost(beside, patience(3_000), "ms p99 beside a bad neighbour");
    else expectAtMost(beside, Math.max(QUIET_P99_MS, 1.5 * alone), "ms p99 beside a bad neighbour");
    return { ...countsOf(verdict), "p99 ms alone": alone, "p99 ms beside": beside };
  });
}

export const silentNeighbours: Scenario = {
  name: "silent-neighbours",
  fault: "30 % of the endpoints always time out",
  play: (place) =>
    playNeighbours(
      place,
      async (cluster, signal) => {
        await cluster.receiver.behave("/silent", { isSilent: true });
        const accounts: string[] = [];
        for (let n = 0; n < 6; n++) accounts.push((await cluster.createAccount("/silent")).accountId);
        await cluster.producer.run(25, accounts, signal);
        // They have shown what they do; that they go on for all their attempts is told elsewhere.
        await cluster.receiver.behave("/silent", {});
      },
      120_000,
    ),
};

export const flood: Scenario = {
  name: "flood",
  fault: "one account publishes a hundred times as much as the others",
  play: (place) =>
    playNeighbours(
      place,
      async (cluster) => {
        await cluster.receiver.behave("/flood", { delayMs: 5 });
        const { accountId } = await cluster.createAccount("/flood");
        await cluster.producer.publishMany(place.scale === "quick" ? 1_000 : 8_600, accountId);
      },
      180_000,
    ),
};
