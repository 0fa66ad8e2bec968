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
  const leads = dispatch.leads.of({});
  const rows = {
    promote: dispatch.leaderRows.of({ work: "promote" }),
    advance_replays: dispatch.leaderRows.of({ work: "advance_replays" }),
    advance_holds: dispatch.leaderRows.of({ work: "advance_holds" }),
    sweep_jobs: dispatch.leaderRows.of({ work: "sweep_jobs" }),
  };

  async function count<T>(
    work: LeaderWork,
    does: () => Promise<T>,
    onDone: (result: T) => void = () => undefined,
  ): Promise<T> {
    try {
      const result = await does();
      dispatch.leaderRuns.of({ work, result: "done" }).add();
      onDone(result);
      return result;
    } catch (error) {
      dispatch.leaderRuns.of({ work, result: "failed" }).add();
      if (work === "lead") leads.set(0);
      throw error;
    }
  }

  const { lead, promote, advanceReplays, advanceHolds, sweepJobs, countActivity, keepHouse } = steps;
  return {
    lead: (...asked) =>
      count(
        "lead",
        () => lead(...asked),
        (isLeader) => leads.set(isLeader ? 1 : 0),
      ),
    promote: () => count("promote", promote, ({ woken }) => rows.promote.add(woken)),
    advanceReplays: () =>
      count("advance_replays", advanceReplays, (count) => rows.advance_replays.add(count)),
    advanceHolds: () => count("advance_holds", advanceHolds, (count) => rows.advance_holds.add(count)),
    sweepJobs: () => count("sweep_jobs", sweepJobs, (count) => rows.sweep_jobs.add(count)),
    countActivity: (signal) => count("count_activity", () => countActivity(signal)),
    keepHouse: (signal) => count("keep_house", () => keepHouse(signal)),
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
    dispatch.accounts.of({ state: "held" }).set(bytes.heldAccounts);
    dispatch.waiting.of({}).set(lanes.waitingIds);
    dispatch.unrecordedNow.of({}).set(recorder.backlog);
    dispatch.lanes.of({ state: "held" }).set(lanes.heldLanes);
    dispatch.lanes.of({ state: "silent" }).set(lanes.silentLanes);
    dispatch.lanes.of({ state: "letting_go" }).set(lanes.lettingGoLanes);
    const { openConnections, idleConnections } = poster.gauges();
    dispatch.connections.of({ state: "busy" }).set(openConnections - idleConnections);
    dispatch.connections.of({ state: "idle" }).set(idleConnections);
  });
}
