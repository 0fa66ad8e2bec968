import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { createWakeupQueue } from "../base/database/graphile-worker.ts";
import { createDispatchPool, createGeneralPool, shareOf } from "../base/database/pools.ts";
import { tryToLockTable } from "../base/database/table-lock.ts";
import type { DatabaseMetrics, PoolName } from "../base/metrics/database-metrics.ts";
import type { DispatchObserver } from "../delivery/attempt-observers.ts";
import { claimDeliveries } from "../delivery/claim-sql.ts";
import { createDelivering, type DeliveringOptions } from "../delivery/deliver.ts";
import { type Attempts, type BeginTrace, createAttempts, Dispatcher } from "../delivery/dispatcher.ts";
import { advanceHolds } from "../delivery/endpoint-sql.ts";
import { forgetDelivered } from "../delivery/erase-sql.ts";
import { LANE_LIMITS } from "../delivery/lane.ts";
import { startLeader, sweepMs } from "../delivery/leader.ts";
import { type ProcessMetrics, watchDispatcher } from "../delivery/process-metrics.ts";
import {
  createPromoting,
  createWakingProven,
  freeLeases,
  sweepStuckJobs,
  takeBackOverflow,
  wakeSoon,
} from "../delivery/promote-sql.ts";
import { receiverTurns } from "../delivery/receiver-turns.ts";
import { findAnsweredLanes, findEndedRests, rememberAnsweredLanes } from "../delivery/receivers-sql.ts";
import { recordOutcomes } from "../delivery/record-sql.ts";
import { createWakeups } from "../delivery/wakeups.ts";
import { countAllActivity } from "../log/activity-sql.ts";
import { advanceReplays, REPLAY_STEP_MAX } from "../log/replay-steps-sql.ts";
import { eraseFromRuns, idsOfRuns } from "./areas.ts";
import { poolOptions } from "./database.ts";
import { keepHouse, repeat, retentionOf } from "./housekeeping.ts";

/** The share of attempts in flight that silent receivers may hold. */
const SILENT_SHARE = 0.25;
/** Attempts at one receiver, however fast it answers. */
const LANE_IN_FLIGHT_MAX = 128;

/** Graphile-worker's: one listens, one reads the queue, one deletes what is done, and one is for when these overlap. */
const WAKEUP_CONNECTIONS_MAX = 4;

/**
 * How a dispatcher shares out its connections: claims and records; graphile-worker; everything else, half of it open to
 * what may take long. At rest the first are closed.
 */
export function dispatcherConnections(connectionsMax: number) {
  const general = Math.max(2, Math.floor(connectionsMax / 3));
  const wakeups = Math.min(WAKEUP_CONNECTIONS_MAX, general);
  return { dispatch: connectionsMax - wakeups - general, wakeups, general, slow: Math.floor(general / 2) };
}

export type DispatcherPools = ReturnType<typeof openDispatcherPools>;

export function openDispatcherPools(
  { config, databaseUrl, log }: Pick<DispatchProcessOptions, "config" | "databaseUrl" | "log">,
  database: DatabaseMetrics,
) {
  const connections = dispatcherConnections(config.databaseConnectionsMax);
  const optionsOf = (name: PoolName & keyof typeof connections) => ({
    ...poolOptions(config, databaseUrl, `sealpost ${name}`, log),
    connectionsMax: connections[name],
    onQuery: database.observer(name),
  });
  /** For claims and records. */
  const dispatch = createDispatchPool(optionsOf("dispatch"));
  /** For graphile-worker. */
  const wakeups = createWakeupQueue(optionsOf("wakeups"));
  /** For what is short and must not wait: promoting, what lanes need, the feed's steps, metrics and probes. */
  const general = createGeneralPool(optionsOf("general"));
  /** Its share for housekeeping, counting activity, notices and objects: they may take seconds. */
  const slow = shareOf(general, connections.slow);
  /** And one for turns of unproven receivers, of which an account may ask for thousands. */
  const turns = shareOf(general, connections.slow);
  const own = { dispatch, wakeups: wakeups.pool, general };
  for (const [name, pool] of Object.entries(own)) database.watch(name as keyof typeof own, pool);
  const end = async () => void (await Promise.all(Object.values(own).map((pool) => pool.end())));
  return { dispatch, wakeups, general, slow, turns, end };
}

export type DispatchProcessOptions = DeliveringOptions & {
  readonly databaseUrl: string;
  readonly log: Logger;
  readonly observer: DispatchObserver;
  readonly beginTrace?: BeginTrace | undefined;
  /** Somebody has published something. */
  readonly onPublished?: () => void;
  readonly metrics: ProcessMetrics;
  /** Absent: LANE_IN_FLIGHT_MAX. */
  readonly laneInFlightMax?: number;
};

export type DispatchProcess = ReturnType<typeof startDispatching>;

/** Wires one dispatcher to its database and its egress, and starts it. */
export function startDispatching(options: DispatchProcessOptions, pools: DispatcherPools) {
  const { config, log, metrics } = options;
  const { dispatch: pool, general, slow } = pools;
  const analysisRetentionMs = config.analysisRetentionSeconds * 1_000;
  const delivering = createDelivering({ ...options, turns: receiverTurns(pools.turns, pool) });
  const laneLimits = {
    ...LANE_LIMITS,
    inFlightMax: config.dispatchInFlightMax,
    silentInFlightMax: Math.max(1, Math.floor(config.dispatchInFlightMax * SILENT_SHARE)),
    laneInFlightMax: options.laneInFlightMax ?? LANE_IN_FLIGHT_MAX,
  };
  const dispatcher = new Dispatcher({
    delivering,
    lanes: laneLimits,
    upkeep: {
      findAnswered: (lanes) => findAnsweredLanes(general, lanes),
      rememberAnswered: (lanes) => rememberAnsweredLanes(general, lanes),
      findEndedRests: (resting) => findEndedRests(pool, resting),
      takeBack: (overflows) => takeBackOverflow(general, overflows),
    },
    claim: (input) => claimDeliveries(pool, { ...input, at: null }),
    write: (recordings) => recordOutcomes(pool, recordings),
    giveBack: (deliveryIds) => wakeSoon(pool, deliveryIds),
    freeLeases: (deliveryIds, leaseToken) => freeLeases(pool, deliveryIds, leaseToken),
    observer: options.observer,
    beginTrace: options.beginTrace,
  });
  const wakeups = createWakeups({
    queue: pools.wakeups,
    onPublished: options.onPublished,
    wake: (waiting) => dispatcher.wake(waiting),
    random: options.random,
    onRunnerEnded: (err, restarts) => {
      metrics.faults.of({ work: "wakeups" }).add();
      log.warn({ err, restarts }, "the wake-up runner ended; running it again");
    },
  });
  const promoting = createPromoting(general, {
    leaseMs: delivering.leaseMs,
    jobsFrom: () => pools.wakeups.bound.from,
    onClock: (atMs) => pools.wakeups.bound.learnClock(atMs),
  });
  const leads = metrics.dispatch.leads.of({});
  watchDispatcher(metrics, dispatcher, laneLimits);
  // Without the webhooks nothing is claimed here. The leader's work needs nobody but the database.
  if (config.areas.includes("webhooks")) wakeups.start();
  const stopLeader = startLeader({
    sweepMs: sweepMs(delivering.policy.windowMs),
    lead: async (holder, leaseMs) => {
      const found = await promoting.lead(holder, leaseMs);
      leads.set(found.leads ? 1 : 0);
      return found;
    },
    promote: promoting.promote,
    advanceReplays: () => advanceReplays(general, analysisRetentionMs, null, REPLAY_STEP_MAX),
    advanceHolds: async () => {
      const { released, expired, isGathering } = await advanceHolds(general, analysisRetentionMs, null);
      const ended = { status: "abandoned", reason: "analysis_expired" };
      if (expired > 0) metrics.dispatch.deliveriesEnded.of(ended).add(expired);
      return released + expired + (isGathering ? 1 : 0);
    },
    wakeProven: createWakingProven(general),
    sweepJobs: () => sweepStuckJobs(general),
    countActivity: (signal) => countAllActivity(slow, delivering.leaseMs, signal),
    forget: (signal) =>
      repeat(signal, () =>
        forgetDelivered(slow, eraseFromRuns, config.forgetAfterSeconds * 1_000, idsOfRuns),
      ),
    keepHouse: (signal) => keepHouse(slow, { retention: retentionOf(config), at: null, signal, log }),
    onError: (work, err) => {
      if (work === "lead") leads.set(0);
      metrics.faults.of({ work }).add();
      log.warn({ err, work }, "the leader's work failed; trying again");
    },
  });
  return {
    dispatcher,
    /** Claims nothing more, finishes what is in flight within the deadline, and records it. */
    stop: async () => {
      await Promise.all([wakeups.stop(), stopLeader(), dispatcher.stop()]);
      await dispatcher.giveBackWaiting();
      await delivering.poster.close();
    },
  };
}

const CLAIM_RETRY_MS = 2_000;

/**
 * Posts deliveries that were in flight twice in a row when their dispatcher died, one after the other, in a process
 * where nothing else is in flight. If one of them is what kills processes, it takes no other along this time, and the
 * next claim abandons it.
 *
 * A process of its own, not an emptied dispatcher: one hanging receiver would keep everybody else waiting for a whole
 * deadline. One process for many, not one for each: a dispatcher that dies twice with a thousand in flight sends a
 * thousand into quarantine, and a process takes half a second to start.
 *
 * `busy`: another quarantine process of the cluster is at work, and nothing was done here.
 * @param asked once aborted, no further delivery is started
 */
export async function deliverInQuarantine(
  options: Omit<DispatchProcessOptions, "metrics">,
  deliveryIds: readonly string[],
  asked: AbortSignal,
): Promise<"done" | "busy"> {
  const { config, databaseUrl, log } = options;
  const pool = createDispatchPool({
    ...poolOptions(config, databaseUrl, "sealpost dispatch alone", log),
    connectionsMax: 2,
  });
  const lock = await pool.connect();
  try {
    if (!(await tryToLockTable(lock, "quarantine_lock"))) return "busy";
    const delivering = createDelivering({ ...options, turns: receiverTurns(pool, pool) });
    const attempts = createAttempts({
      delivering,
      claim: (input) => claimDeliveries(pool, { ...input, at: null }),
      write: (recordings) => recordOutcomes(pool, recordings),
      observer: options.observer,
      beginTrace: options.beginTrace,
      isInQuarantine: true,
    });
    for (const deliveryId of deliveryIds) {
      if (asked.aborted) break;
      await postOne(deliveryId, attempts, options.observer);
    }
    await delivering.poster.close();
    return "done";
  } finally {
    // Ending the session frees the lock.
    lock.release(true);
    await pool.end();
  }
}

async function postOne(deliveryId: string, attempts: Attempts, observer: DispatchObserver): Promise<void> {
  const leaseToken = randomUUID();
  const claim = () => attempts.claim([deliveryId], leaseToken, Number.MAX_SAFE_INTEGER);
  // Once more: a lost answer may have leased it, and a lease that is left behind here abandons the delivery.
  const { deliveries, askedAtMs } = await claim().catch(async (error: unknown) => {
    observer.failed("claim", error);
    await wait(CLAIM_RETRY_MS);
    return await claim();
  });
  const [delivery] = deliveries;
  // Otherwise it is not due, or gone: somebody else saw to it.
  if (delivery?.kind === "leased") await attempts.run(delivery, askedAtMs);
}
