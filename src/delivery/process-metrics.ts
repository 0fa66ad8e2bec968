import { createDatabaseMetrics, createFaults } from "../base/metrics/database-metrics.ts";
import { createDispatchMetrics } from "../base/metrics/dispatch-metrics.ts";
import type { MetricsRegistry } from "../base/metrics/registry.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { LaneLimits } from "./lane.ts";

export type ProcessMetrics = ReturnType<typeof createProcessMetrics>;

/** All metrics of a dispatcher's process. */
export function createProcessMetrics(registry: MetricsRegistry) {
  return {
    registry,
    dispatch: createDispatchMetrics(registry),
    database: createDatabaseMetrics(registry),
    faults: createFaults(registry),
  };
}

/** Sets the gauges whenever the metrics are read. */
export function watchDispatcher(
  { registry, dispatch }: ProcessMetrics,
  dispatcher: Dispatcher,
  { inFlightMax }: Pick<LaneLimits, "inFlightMax">,
): void {
  dispatch.inFlightMax.of({}).set(inFlightMax);
  registry.onRead(() => {
    const { lanes, bytes } = dispatcher;
    dispatch.inFlight.of({}).set(lanes.inFlight);
    dispatch.silentInFlight.of({}).set(lanes.silentInFlight);
    dispatch.accounts.of({ state: "active" }).set(lanes.activeAccounts);
    dispatch.accounts.of({ state: "over_budget" }).set(bytes.accountsOverBudget);
    dispatch.waiting.of({}).set(lanes.waitingIds);
    dispatch.lanes.of({ state: "at_capacity" }).set(lanes.lanesAtCapacity);
    dispatch.lanes.of({ state: "silent" }).set(lanes.silentLanes);
    dispatch.lanes.of({ state: "overflowing" }).set(lanes.overflowingLanes);
  });
}
