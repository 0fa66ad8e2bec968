import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import type { Config } from "../base/config/config.ts";
import { createWakeupQueue } from "../base/database/graphile-worker.ts";
import {
  createDispatchPool,
  createGeneralPool,
  isRefusedData,
  isUnreadableData,
} from "../base/database/pools.ts";
import type { PoolName } from "../base/metrics/database-metrics.ts";
import { createMetricsRegistry } from "../base/metrics/registry.ts";
import { DAY_MS } from "../base/model/time.ts";
import { findAnsweredLanes, rememberAnsweredLanes } from "../delivery/answered-lanes-sql.ts";
import type { DispatchObserver } from "../delivery/attempt-observers.ts";
import { LEASE_MARGIN_MS } from "../delivery/attempts.ts";
import { claimDeliveries } from "../delivery/claim-sql.ts";
import { createDelivering, type DeliveringOptions } from "../delivery/deliver.ts";
import { Dispatcher } from "../delivery/dispatcher.ts";
import { advanceHolds } from "../delivery/holds-sql.ts";
import { LANE_LIMITS } from "../delivery/lane.ts";
import { Leader, sweepMs } from "../delivery/leader.ts";
import {
  countLeaderWork,
  countRecords,
  createProcessMetrics,
  type ProcessMetrics,
  watchDispatcher,
} from "../delivery/process-metrics.ts";
import {
  createPromoting,
  freeLeases,
  sweepStuckJobs,
  takeBackOverflow,
  wakeSoon,
} from "../delivery/promote-sql.ts";
import { recordOutcomes } from "../delivery/record-sql.ts";
import { Wakeups } from "../delivery/wakeups.ts";
import { countAllActivity } from "../log/activity-sql.ts";
import { advanceReplays, REPLAY_STEP_MAX } from "../log/replay-steps-sql.ts";
import { keepHouse } from "./housekeeping.ts";

/** The share of attempts in flight that silent receivers may hold. */
const SILENT_SHARE = 0.25;
const KEEP_HOUSE_EVERY_MS = 3_600_000;
/** Of one dispatcher, by pool; its metrics and probes have one more, and a quarantine's process two of its own. */
export const DISPATCHER_CONNECTIONS = {
  dispatch: 4,
  wakeups: 4,
  /** For promoting, replaying, counting activity and housekeeping, none of which waits for another. */
  leader: 4,
  /** For what lanes need apart from claims: slow housekeeping must not leave a lane without work. */
  lanes: 2,
  /** For what happens to endpoints, and mails: src/app/notices.ts. */
  notices: 2,
  /** For moving stored objects, and for removing them. */
  objects: 2,
  /** Slow housekeeping must not keep the feed waiting either. */
  feed: 1,
} as const;

/** Of the process that a dispatcher has for what areas compute: one for each step, one to look and to hold leases. */
export const STEP_CONNECTIONS = 3;

export type DispatchProcessOptions = DeliveringOptions & {
  readonly databaseUrl: string;
  readonly log: Logger;
  readonly observer: DispatchObserver;
  /** Somebody has published something. */
  readonly onPublished?: () => void;
  /** Wall clock, milliseconds since the epoch: only for telling which days are over. */
  readonly wallClockMs: () => number;
  /** Absent: metrics that nobody reads. */
  readonly metrics?: ProcessMetrics;
};

export type DispatchProcess = {
  readonly dispatcher: Dispatcher;
  /** Claims nothing more, finishes what is in flight within the deadline, records it, closes everything. */
  stop(): Promise<void>;
};

/** Wires one dispatcher to its database and its egress, and starts it. */
export function startDispatching(options: DispatchProcessOptions): DispatchProcess {
  const { config, log, databaseUrl } = options;
  const onError = (error: Error) => log.warn({ err: error }, "a database connection broke");
  const metrics = options.metrics ?? createProcessMetrics(createMetricsRegistry());
  const common = (name: PoolName) => ({
    databaseUrl,
    cell: config.cell,
    onError,
    onQuery: metrics.database.observer(name),
  });
  const pool = createDispatchPool({
    ...common("dispatch"),
    connectionsMax: DISPATCHER_CONNECTIONS.dispatch,
    applicationName: "sealpost dispatch",
  });
  const queue = createWakeupQueue({
    ...common("wakeups"),
    connectionsMax: DISPATCHER_CONNECTIONS.wakeups,
    applicationName: "sealpost wakeups",
  });
  const housePool = createGeneralPool({
    ...common("leader"),
    connectionsMax: DISPATCHER_CONNECTIONS.leader,
    applicationName: "sealpost leader",
  });
  const lanesPool = createGeneralPool({
    ...common("lanes"),
    connectionsMax: DISPATCHER_CONNECTIONS.lanes,
    applicationName: "sealpost lanes",
  });

  const delivering = createDelivering(options);
  const laneLimits = {
    ...LANE_LIMITS,
    inFlightMax: config.dispatchInFlightMax,
    silentInFlightMax: Math.max(1, Math.floor(config.dispatchInFlightMax * SILENT_SHARE)),
    accountInFlightMax: config.accountInFlightMax ?? config.dispatchInFlightMax,
    laneInFlightMax: config.laneInFlightMax,
  };
  const dispatcher = new Dispatcher({
    delivering,
    lanes: laneLimits,
    upkeep: {
      findAnswered: (lanes) => findAnsweredLanes(lanesPool, lanes),
      rememberAnswered: (lanes) => rememberAnsweredLanes(lanesPool, lanes),
      takeBack: (overflow) => takeBackOverflow(lanesPool, overflow),
    },
    claim: (input) => claimDeliveries(pool, { ...input, at: null }),
    write: countRecords(metrics, (recordings) => recordOutcomes(pool, recordings)),
    giveBack: (deliveryIds) => wakeSoon(pool, deliveryIds),
    freeLeases: (deliveryIds, leaseToken) => freeLeases(pool, deliveryIds, leaseToken),
    isUnreadableData,
    isRefusedData,
    observer: options.observer,
  });
  const wakeups = new Wakeups({
    queue,
    onPublished: options.onPublished,
    wake: (waiting) => dispatcher.wake(waiting),
    random: options.random,
    onRunnerEnded: (err, restarts) => {
      metrics.dispatch.wakeupRunnerRestarts.of({}).add();
      log.warn({ err, restarts }, "the wake-up runner ended; running it again");
    },
  });
  const promoting = createPromoting(housePool, {
    leaseMs: delivering.deadlineMs + LEASE_MARGIN_MS,
    jobsFrom: () => queue.bound.from,
  });
  const leader = new Leader({
    sweepMs: sweepMs(delivering.policy.windowMs),
    holder: randomUUID(),
    ...countLeaderWork(metrics, {
      ...promoting,
      advanceReplays: () =>
        advanceReplays(housePool, config.analysisRetentionSeconds * 1000, null, REPLAY_STEP_MAX),
      advanceHolds: async () => {
        const { released, expired, isGathering } = await advanceHolds(
          housePool,
          config.analysisRetentionSeconds * 1000,
          null,
        );
        const ended = { status: "abandoned", reason: "analysis_expired" };
        if (expired > 0) metrics.dispatch.deliveriesEnded.of(ended).add(expired);
        return released + expired + (isGathering ? 1 : 0);
      },
      sweepJobs: () => sweepStuckJobs(housePool),
      countActivity: (signal) => countAllActivity(housePool, delivering.deadlineMs, signal),
      keepHouse: (signal) =>
        keepHouse(housePool, {
          retention: retentionOf(config),
          at: null,
          signal,
          log: houseLog(log, metrics),
        }),
    }),
    keepHouseEveryMs: KEEP_HOUSE_EVERY_MS,
    onError: (work, err) => log.warn({ err, work }, "the leader's work failed; trying again"),
  });

  watchDispatcher(metrics, dispatcher, delivering.poster, laneLimits);
  metrics.database.watch("dispatch", pool);
  metrics.database.watch("wakeups", queue.pool);
  metrics.database.watch("leader", housePool);
  metrics.database.watch("lanes", lanesPool);
  // Without the webhooks nothing is claimed here. The leader's work needs nobody but the database.
  if (config.areas.includes("webhooks")) wakeups.start();
  leader.start();
  return {
    dispatcher,
    stop: async () => {
      await Promise.all([wakeups.stop(), leader.stop(), dispatcher.stop()]);
      await dispatcher.giveBackWaiting();
      await delivering.poster.close();
      await Promise.all([pool, queue.pool, housePool, lanesPool].map((one) => one.end()));
    },
  };
}

function retentionOf(config: Config) {
  return {
    analysisRetentionMs: config.analysisRetentionSeconds * 1000,
    logRetentionMs: config.logRetentionDays * DAY_MS,
    auditRetentionMs: config.auditRetentionDays * DAY_MS,
    idempotencyRetentionMs: config.idempotencyRetentionSeconds * 1000,
  };
}

function houseLog(log: Logger, { dispatch }: ProcessMetrics) {
  return {
    made: (count: number) => {
      dispatch.partitions.of({ change: "made" }).add(count);
      log.info({ count }, "made partitions");
    },
    dropped: (partition: string) => {
      dispatch.partitions.of({ change: "dropped" }).add();
      log.info({ partition }, "dropped a partition");
    },
    kept: (partition: string, openDeliveries: number) =>
      log.warn({ partition, openDeliveries }, "an old partition stays: it still has open deliveries"),
  };
}
