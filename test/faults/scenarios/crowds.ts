// Too much at once: from one endpoint's past, for one account, for receivers that never answer.
import { equal } from "node:assert/strict";
import { patience } from "../../support/time-limits.ts";
import type { Arrival, Behaviour } from "../harness/arrival.ts";
import { type Cluster, DEADLINE_MS } from "../harness/cluster.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Figures,
  type Place,
  p99,
  quantile,
  type Scenario,
  wait,
  withCluster,
} from "../harness/scenario.ts";

const HEALTHY_ACCOUNTS = 14;
/** Of all of them. */
const HEALTHY_PER_SECOND = 60;
/** Below these the machine's own noise is larger than any neighbour's. */
const QUIET_P50_MS = 20;
const QUIET_P99_MS = 50;
/** Promised for every first attempt, whatever another account does. */
const WORST_MS = 2_000;
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

/** As in src/app/dispatch-process.ts. */
const LANE_IN_FLIGHT_MAX = 128;

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
      expectAtMost(most, 2 * LANE_IN_FLIGHT_MAX, "POSTs to one endpoint at once");
      return { ...countsOf(verdict), "at once": most, "drained ms": drainedMs };
    }),
};

/** Milliseconds from commit to first arrival, of what was published in the window for these accounts. */
function latencies(cluster: Cluster, accounts: ReadonlySet<string>, { fromMs, untilMs }: Window): number[] {
  const arrivedAt = new Map<string, number>();
  for (const { deliveryId, atMs } of cluster.receiver.arrivals) {
    if (!arrivedAt.has(deliveryId)) arrivedAt.set(deliveryId, atMs);
  }
  return cluster.producer.publications
    .filter((one) => accounts.has(one.accountId) && one.acknowledgedAtMs !== null)
    .filter(({ triedAtMs }) => triedAtMs >= fromMs && triedAtMs < untilMs)
    .map((one) => (arrivedAt.get(one.deliveryId!) ?? Number.POSITIVE_INFINITY) - one.acknowledgedAtMs!);
}

/** Moments in milliseconds of the wall clock. */
type Window = { readonly fromMs: number; readonly untilMs: number };

type Neighbours = {
  /**
   * What the neighbour does, until it resolves; the signal says that enough was seen. Resolves to when it did what is
   * compared with being alone, where that is not all the time: publishing thousands takes the database's time, and
   * thousands of new connections the processor's.
   */
  readonly disturb: (cluster: Cluster, signal: AbortSignal) => Promise<Window | undefined>;
  /** Within which all that was published ends. */
  readonly endMs: number;
  /** Its receivers answer, so they hold ordinary places: the healthy ones' p99 is bounded with the worst alone. */
  readonly doesAnswer?: boolean;
  readonly env?: Readonly<Record<string, string>>;
};

/** How long the healthy accounts' first attempts wait without and with a neighbour, and how much worse it is. */
async function playNeighbours(
  place: Place,
  { disturb, endMs, doesAnswer = false, env = {} }: Neighbours,
): Promise<Figures> {
  return await withCluster(place, { env: { ...IN_FLIGHT, ...env } }, async (cluster) => {
    const phaseMs = place.scale === "quick" ? 2_000 : 20_000;
    const accounts: string[] = [];
    for (let n = 0; n < HEALTHY_ACCOUNTS; n++)
      accounts.push((await cluster.createAccount("/healthy")).accountId);
    const healthy = new Set(accounts);
    const publishing = new AbortController();
    const published = cluster.producer.run(HEALTHY_PER_SECOND, accounts, publishing.signal);
    await cluster.receiver.waitFor(60);
    const aloneFrom = Date.now();
    await wait(phaseMs);
    const disturbing = new AbortController();
    const disturbedFrom = Date.now();
    const disturbed = disturb(cluster, disturbing.signal);
    await wait(phaseMs);
    disturbing.abort();
    const compared = (await disturbed) ?? { fromMs: disturbedFrom, untilMs: Date.now() };
    publishing.abort();
    await published;
    await cluster.drain(endMs);
    const alone = latencies(cluster, healthy, { fromMs: aloneFrom, untilMs: disturbedFrom });
    const beside = latencies(cluster, healthy, compared);
    const always = latencies(cluster, healthy, { fromMs: disturbedFrom, untilMs: Date.now() });
    const [p99Alone, p99Beside] = [p99(alone) ?? 0, p99(beside) ?? 0];
    const [p50Alone, p50Beside] = [quantile(alone, 0.5) ?? 0, quantile(beside, 0.5) ?? 0];
    const worst = quantile(always, 1) ?? 0;
    const verdict = await cluster.check();
    expectSafe(verdict);
    // While everything is tested at once, the machine itself is the worst neighbour.
    if (place.scale === "quick") expectAtMost(p99(always), patience(3_000), "ms p99 beside a bad neighbour");
    else {
      expectAtMost(p50Beside, Math.max(QUIET_P50_MS, 1.5 * p50Alone), "ms p50 beside a bad neighbour");
      const p99Max = doesAnswer ? patience(WORST_MS) : Math.max(QUIET_P99_MS, 1.5 * p99Alone);
      expectAtMost(p99Beside, p99Max, "ms p99 beside a bad neighbour");
      expectAtMost(worst, patience(WORST_MS), "ms at worst beside a bad neighbour");
    }
    return {
      ...countsOf(verdict),
      "p50 ms alone": p50Alone,
      "p50 ms beside": p50Beside,
      "p99 ms alone": p99Alone,
      "p99 ms beside": p99Beside,
      "worst ms beside": worst,
    };
  });
}

export const silentNeighbours: Scenario = {
  name: "silent-neighbours",
  fault: "30 % of the endpoints always time out",
  play: (place) =>
    playNeighbours(place, {
      disturb: async (cluster, signal) => {
        await cluster.receiver.behave("/silent", { isSilent: true });
        const accounts: string[] = [];
        for (let n = 0; n < 6; n++) accounts.push((await cluster.createAccount("/silent")).accountId);
        await cluster.producer.run(25, accounts, signal);
        // They have shown what they do; that they go on for all their attempts is told elsewhere.
        await cluster.receiver.behave("/silent", {});
        return undefined;
      },
      endMs: 120_000,
    }),
};

export const flood: Scenario = {
  name: "flood",
  fault: "one account publishes a hundred times as much as the others",
  play: (place) =>
    playNeighbours(place, {
      disturb: async (cluster, signal) => {
        await cluster.receiver.behave("/flood", { delayMs: 5 });
        const { accountId } = await cluster.createAccount("/flood");
        await cluster.producer.run((100 * HEALTHY_PER_SECOND) / HEALTHY_ACCOUNTS, [accountId], signal);
        return undefined;
      },
      endMs: 180_000,
    }),
};

export const burst: Scenario = {
  name: "burst",
  fault: "one account publishes thousands at once",
  play: (place) =>
    playNeighbours(place, {
      disturb: async (cluster) => {
        await cluster.receiver.behave("/burst", { delayMs: 5 });
        const { accountId } = await cluster.createAccount("/burst");
        await cluster.producer.publishMany(place.scale === "quick" ? 1_000 : 8_600, accountId);
        const fromMs = Date.now();
        await wait(place.scale === "quick" ? 1_000 : 10_000);
        return { fromMs, untilMs: Date.now() };
      },
      doesAnswer: true,
      endMs: 180_000,
    }),
};

/** To so many hosts, each named once. */
async function publishToHosts(
  cluster: Cluster,
  path: string,
  accountId: string,
  hosts: number,
): Promise<void> {
  for (let from = 0; from < hosts; from += 100) {
    await Promise.all(
      Array.from({ length: Math.min(100, hosts - from) }, (_, n) =>
        cluster.producer.publish(
          accountId,
          cluster.receiver.url(path, `h${from + n}-${accountId.slice(-4)}.many.localhost`),
        ),
      ),
    );
  }
}

type Hostile = {
  readonly behaviour: Behaviour;
  readonly doesAnswer?: boolean;
  readonly accounts: number;
  /** Of all accounts together; the quick ones publish a tenth. */
  readonly toHosts: number;
  readonly toEndpoints: number;
  readonly env?: Readonly<Record<string, string>>;
};

/** Accounts whose receivers all behave like this flood the dispatcher; 4,000 are published. */
function hostileAccounts(name: string, fault: string, hostileOf: (place: Place) => Hostile): Scenario {
  return {
    name,
    fault,
    play: (place) => {
      const { behaviour, doesAnswer = false, toHosts, toEndpoints, env = {}, ...hostile } = hostileOf(place);
      const disturb = async (cluster: Cluster) => {
        await cluster.receiver.behave("/hostile", behaviour);
        const accounts: string[] = [];
        for (let n = 0; n < hostile.accounts; n++)
          accounts.push((await cluster.createAccount("/hostile")).accountId);
        const each = (place.scale === "quick" ? 0.1 : 1) / hostile.accounts;
        await Promise.all(
          accounts.map(async (accountId) => {
            await cluster.producer.publishMany(toEndpoints * each, accountId);
            await publishToHosts(cluster, "/hostile", accountId, toHosts * each);
          }),
        );
        const fromMs = Date.now();
        await wait(place.scale === "quick" ? 1_000 : 10_000);
        const untilMs = Date.now();
        // They have shown what they do; that they go on for all their attempts is told elsewhere.
        await cluster.receiver.behave("/hostile", {});
        return { fromMs, untilMs };
      };
      return playNeighbours(place, { disturb, doesAnswer, env, endMs: 240_000 });
    },
  };
}

export const names = hostileAccounts(
  "names-flood",
  "one account publishes to thousands of new hosts that never answer",
  () => ({ behaviour: { isSilent: true }, accounts: 1, toHosts: 4_000, toEndpoints: 0 }),
);

export const namesOfMany = hostileAccounts(
  "names-flood-of-many",
  "twenty accounts at once publish to new hosts that never answer",
  () => ({ behaviour: { isSilent: true }, accounts: 20, toHosts: 4_000, toEndpoints: 0 }),
);

/** The deadline as it is in production; the quick ones have no time for it. */
const deadlineMs = ({ scale }: Place) => (scale === "quick" ? DEADLINE_MS : 15_000);
const withDeadline = (place: Place) => ({ ATTEMPT_DEADLINE_MS: String(deadlineMs(place)) });

export const hanging = hostileAccounts(
  "hang-after-good-answers",
  "receivers answer until they get as much at once as they can, and then hang",
  (place) => ({
    behaviour: { answersMax: place.scale === "quick" ? 100 : 1_000 },
    doesAnswer: true,
    accounts: 2,
    toHosts: 0,
    toEndpoints: 4_000,
    env: withDeadline(place),
  }),
);

export const lateAnswers = hostileAccounts(
  "answers-at-the-deadline",
  "twenty accounts' receivers answer just before the deadline",
  (place) => ({
    behaviour: { delayMs: deadlineMs(place) - deadlineMs(place) / 15 },
    doesAnswer: true,
    accounts: 20,
    toHosts: 2_000,
    toEndpoints: 2_000,
    env: withDeadline(place),
  }),
);
