import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import type { Logger } from "pino";
import type { Config } from "../base/config/config.ts";
import { createWakeupQueue, type WakeupQueue } from "../base/database/graphile-worker.ts";
import {
  createDispatchPool,
  createGeneralPool,
  isRefusedData,
  isUnreadableData,
  shareOf,
} from "../base/database/pools.ts";
import type { DatabaseMetrics, PoolName } from "../base/metrics/database-metrics.ts";
import { DAY_MS } from "../base/model/time.ts";
import { findAnsweredLanes, rememberAnsweredLanes } from "../delivery/answered-lanes-sql.ts";
import type { DispatchObserver } from "../delivery/attempt-observers.ts";
import { LEASE_MARGIN_MS } from "../delivery/attempts.ts";
import { claimDeliveries } from "../delivery/claim-sql.ts";
import { createDelivering, type DeliveringOptions } from "../delivery/deliver.ts";
import { Dispatcher } from "../delivery/dispatcher.ts";
import { advanceHolds } from "../delivery/endpoint-sql.ts";
import { LANE_LIMITS } from "../delivery/lane.ts";
import { Leader, sweepMs } from "../delivery/leader.ts";
import { type ProcessMetrics, watchDispatcher } from "../delivery/process-metrics.ts";
import {
  createPromoting,
  freeLeases,
  sweepStuckJobs,
  takeBackOverflow,
  wakeSoon,
} from "../delivery/promote-sql.ts";
import { recordOutcomes } from "../delivery/record-sql.ts";
import { createWakeups } from "../delivery/wakeups.ts";
import { countAllActivity } from "../log/activity-sql.ts";
import { advanceReplays, REPLAY_STEP_MAX } from "../log/replay-steps-sql.ts";
import { keepHouse } from "./housekeeping.ts";

/** The share of attempts in flight that silent receivers may hold. */
const SILENT_SHARE = 0.25;
/** Attempts at one receiver, however fast it answers. */
const LANE_IN_FLIGHT_MAX = 128;
const KEEP_HOUSE_EVERY_MS = 3_600_000;
const AUDIT_RETENTION_DAYS = 365;

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

/** Of the process that a dispatcher has for what areas compute: one for each step, one to look and to hold leases. */
export const STEP_CONNECTIONS = 3;

/** The connections of a dispatcher. */
export type DispatcherPools = {
  /** For claims and records. */
  readonly dispatch: Pool;
  /** For graphile-worker. */
  readonly wakeups: WakeupQueue;
  /** For what is short and must not wait: promoting, what lanes need, the feed's steps, metrics and probes. */
  readonly general: Pool;
  /** Its share for housekeeping, counting activity, notices and objects: they may take seconds. */
  readonly slow: Pool;
  end(): Promise<void>;
};

export function openDispatcherPools(
  { config, databaseUrl, log }: Pick<DispatchProcessOptions, "config" | "databaseUrl" | "log">,
  database: DatabaseMetrics,
): DispatcherPools {
  const connections = dispatcherConnections(config.databaseConnectionsMax);
  const optionsOf = (name: PoolName & keyof typeof connections) => ({
    databaseUrl,
    cell: config.cell,
    connectionsMax: connections[name],
    applicationName: `sealpost ${name}`,
    onError: (err: Error) => log.warn({ err }, "a database connection broke"),
    onQuery: database.observer(name),
  });
  const own = {
    dispatch: createDispatchPool(optionsOf("dispatch")),
    wakeups: createWakeupQueue(optionsOf("wakeups")),
    general: createGeneralPool(optionsOf("general")),
  };
  database.watch("dispatch", own.dispatch);
  database.watch("wakeups", own.wakeups.pool);
  database.watch("general", own.general);
  return {
    ...own,
    slow: shareOf(own.general, connections.slow),
    end: async () =>
      void (await Promise.all([own.dispatch, own.wakeups.pool, own.general].map((pool) => pool.end()))),
  };
}

export type DispatchProcessOptions = DeliveringOptions & {
  readonly databaseUrl: string;
  readonly log: Logger;
  readonly observer: DispatchObserver;
  /** Somebody has published something. */
  readonly onPublished?: () => void;
  /** Wall clock, milliseconds since the epoch: only for telling which days are over. */
  readonly wallClockMs: () => number;
  readonly metrics: ProcessMetrics;
  /** Absent: LANE_IN_FLIGHT_MAX. */
  readonly laneInFlightMax?: number;
};

export type DispatchProcess = {
  readonly dispatcher: Dispatcher;
  /** Claims nothing more, finishes what is in flight within the deadline, and records it. */
  stop(): Promise<void>;
};

/** Wires one dispatcher to its database and its egress, and starts it. */
export function startDispatching(options: DispatchProcessOptions, pools: DispatcherPools): DispatchProcess {
  const { config, log, metrics } = options;
  const { dispatch: pool, general, slow } = pools;
  const delivering = createDelivering(options);
  const laneLimits = {
    ...LANE_LIMITS,
    inFlightMax: config.dispatchInFlightMax,
    silentInFlightMax: Math.max(1, Math.floor(config.dispatchInFlightMax * SILENT_SHARE)),
    accountInFlightMax: config.dispatchInFlightMax,
    laneInFlightMax: options.laneInFlightMax ?? LANE_IN_FLIGHT_MAX,
  };
  const dispatcher = new Dispatcher({
    delivering,
    lanes: laneLimits,
    upkeep: {
      findAnswered: (lanes) => findAnsweredLanes(general, lanes),
      rememberAnswered: (lanes) => rememberAnsweredLanes(general, lanes),
      takeBack: (overflow) => takeBackOverflow(general, overflow),
    },
    claim: (input) => claimDeliveries(pool, { ...input, at: null }),
    write: (recordings) => recordOutcomes(pool, recordings),
    giveBack: (deliveryIds) => wakeSoon(pool, deliveryIds),
    freeLeases: (deliveryIds, leaseToken) => freeLeases(pool, deliveryIds, leaseToken),
    isUnreadableData,
    isRefusedData,
    observer: options.observer,
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
    leaseMs: delivering.deadlineMs + LEASE_MARGIN_MS,
    jobsFrom: () => pools.wakeups.bound.from,
  });
  const leads = metrics.dispatch.leads.of({});
  const leader = new Leader({
    sweepMs: sweepMs(delivering.policy.windowMs),
    holder: randomUUID(),
    lead: async (holder, leaseMs) => {
      const found = await promoting.lead(holder, leaseMs);
      leads.set(found.leads ? 1 : 0);
      return found;
    },
    promote: promoting.promote,
    advanceReplays: () =>
      advanceReplays(general, config.analysisRetentionSeconds * 1000, null, REPLAY_STEP_MAX),
    advanceHolds: async () => {
      const { released, expired, isGathering } = await advanceHolds(
        general,
        config.analysisRetentionSeconds * 1000,
        null,
      );
      const ended = { status: "abandoned", reason: "analysis_expired" };
      if (expired > 0) metrics.dispatch.deliveriesEnded.of(ended).add(expired);
      return released + expired + (isGathering ? 1 : 0);
    },
    sweepJobs: () => sweepStuckJobs(general),
    countActivity: (signal) => countAllActivity(slow, delivering.deadlineMs, signal),
    keepHouse: (signal) =>
      keepHouse(slow, {
        retention: retentionOf(config),
        at: null,
        signal,
        log: houseLog(log),
      }),
    keepHouseEveryMs: KEEP_HOUSE_EVERY_MS,
    onError: (work, err) => {
      if (work === "lead") leads.set(0);
      metrics.faults.of({ work }).add();
      log.warn({ err, work }, "the leader's work failed; trying again");
    },
  });

  watchDispatcher(metrics, dispatcher, laneLimits);
  // Without the webhooks nothing is claimed here. The leader's work needs nobody but the database.
  if (config.areas.includes("webhooks")) wakeups.start();
  leader.start();
  return {
    dispatcher,
    stop: async () => {
      await Promise.all([wakeups.stop(), leader.stop(), dispatcher.stop()]);
      await dispatcher.giveBackWaiting();
      await delivering.poster.close();
    },
  };
}

function retentionOf(config: Config) {
  return {
    analysisRetentionMs: config.analysisRetentionSeconds * 1000,
    logRetentionMs: config.logRetentionDays * DAY_MS,
    auditRetentionMs: AUDIT_RETENTION_DAYS * DAY_MS,
    idempotencyRetentionMs: DAY_MS,
  };
}

function houseLog(log: Logger) {
  return {
    made: (count: number) => log.info({ count }, "made partitions"),
    dropped: (partition: string) => log.info({ partition }, "dropped a partition"),
    kept: (partition: string, openDeliveries: number) =>
      log.warn({ partition, openDeliveries }, "an old partition stays: it still has open deliveries"),
  };
}
