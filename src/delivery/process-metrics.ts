import { createDatabaseMetrics, type DatabaseMetrics } from "../base/metrics/database-metrics.ts";
import { createDispatchMetrics, type DispatchMetrics } from "../base/metrics/dispatch-metrics.ts";
import type { MetricsRegistry } from "../base/metrics/registry.ts";
import type { Poster } from "../egress/post/post.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { LaneLimits } from "./lane.ts";
import type { LeaderOptions, LeaderWork } from "./leader.ts";
import type { Recording } from "./record-sql.ts";

/** All metrics of a dispatcher's process. */
export type ProcessMetrics = {
  readonly registry: MetricsRegistry;
  readonly dispatch: DispatchMetrics;
  readonly database: DatabaseMetrics;
};

export function createProcessMetrics(registry: MetricsRegistry): ProcessMetrics {
  return {
    registry,
    dispatch: createDispatchMetrics(registry),
    database: createDatabaseMetrics(registry),
  };
}

type Write = (recordings: readonly Recording[]) => Promise<ReadonlySet<string>>;

/** The same, with the batches' sizes and times counted. */
export function countRecords({ dispatch }: ProcessMetrics, write: Write): Write {
  const rows = dispatch.batchRows.of({ batch: "record" });
  const seconds = dispatch.batchSeconds.of({ batch: "record" });
  return async (recordings) => {
    const startedAt = performance.now();
    const ours = await write(recordings);
    rows.observe(recordings.length);
    seconds.observe((performance.now() - startedAt) / 1_000);
    return ours;
  };
}

type LeaderSteps = Pick<
  LeaderOptions,
  "lead" | "promote" | "advanceReplays" | "advanceHolds" | "sweepJobs" | "countActivity" | "keepHouse"
>;

/** The same, with every step counted, and whether this dispatcher leads. */
export function countLeaderWork({ dispatch }: ProcessMetrics, steps: LeaderSteps): LeaderSteps {
  async function count<T>(work: LeaderWork, does: () => Promise<T>): Promise<T> {
    try {
      const result = await does();
      dispatch.leaderRuns.of({ work, result: "done" }).add();
      return result;
    } catch (error) {
      dispatch.leaderRuns.of({ work, result: "failed" }).add();
      throw error;
    }
  }

  async function countRows(
    work: "advance_replays" | "advance_holds" | "sweep_jobs",
    does: () => Promise<number>,
  ): Promise<number> {
    const rows = await count(work, does);
    dispatch.leaderRows.of({ work }).add(rows);
    return rows;
  }

  return {
    lead: async (holder, leaseMs) => {
      dispatch.leads.of({}).set(0);
      const found = await count("lead", () => steps.lead(holder, leaseMs));
      dispatch.leads.of({}).set(found.leads ? 1 : 0);
      return found;
    },
    promote: async () => {
      const promotion = await count("promote", steps.promote);
      dispatch.leaderRows.of({ work: "promote" }).add(promotion.woken);
      return promotion;
    },
    advanceReplays: () => countRows("advance_replays", steps.advanceReplays),
    advanceHolds: () => countRows("advance_holds", steps.advanceHolds),
    sweepJobs: () => countRows("sweep_jobs", steps.sweepJobs),
    countActivity: (signal) => count("count_activity", () => steps.countActivity(signal)),
    keepHouse: (signal) => count("keep_house", () => steps.keepHouse(signal)),
  };
}

/** Sets the gauges whenever the metrics are read. */
export function watchDispatcher(
  { registry, dispatch }: ProcessMetrics,
  dispatcher: Dispatcher,
  poster: Poster,
  { inFlightMax, silentInFlightMax }: Pick<LaneLimits, "inFlightMax" | "silentInFlightMax">,
): void {
  dispatch.inFlightMax.of({}).set(inFlightMax);
  dispatch.silentInFlightMax.of({}).set(silentInFlightMax);
  dispatch.leads.of({}).set(0);
  registry.onRead(() => {
    const { lanes, bytes, recorder } = dispatcher;
    dispatch.inFlight.of({}).set(lanes.inFlight);
    dispatch.silentInFlight.of({}).set(lanes.silentInFlight);
    dispatch.bytesInFlight.of({}).set(bytes.total);
    dispatch.accounts.of({ state: "active" }).set(lanes.activeAccounts);
    dispatch.accounts.of({ state: "capped" }).set(lanes.cappedAccounts);
    dispatch.accounts.of({ state: "held" }).set(bytes.accountsOverBudget);
    dispatch.waiting.of({}).set(lanes.waitingIds);
    dispatch.unrecordedNow.of({}).set(recorder.backlog);
    dispatch.lanes.of({ state: "held" }).set(lanes.lanesAtCapacity);
    dispatch.lanes.of({ state: "silent" }).set(lanes.silentLanes);
    dispatch.lanes.of({ state: "letting_go" }).set(lanes.overflowingLanes);
    const { openConnections, idleConnections } = poster.gauges();
    dispatch.connections.of({ state: "busy" }).set(openConnections - idleConnections);
    dispatch.connections.of({ state: "idle" }).set(idleConnections);
  });
}
