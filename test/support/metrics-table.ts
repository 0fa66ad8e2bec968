import { createApiMetrics } from "../../src/base/metrics/api-metrics.ts";
import {
  createBuildInfo,
  createCapacityMetrics,
  createDatabaseMetrics,
  createDroppedSpans,
  createFaults,
} from "../../src/base/metrics/database-metrics.ts";
import { createDispatchMetrics } from "../../src/base/metrics/dispatch-metrics.ts";
import {
  createFeedLag,
  createNoticeMails,
  createQueueMetrics,
} from "../../src/base/metrics/queue-metrics.ts";
import { createMetricsRegistry, type Declared } from "../../src/base/metrics/registry.ts";
import { createMovingMetrics, createRunMetrics } from "../../src/base/metrics/workspace-metrics.ts";

/** Every metric of every process. */
export function declaredMetrics(): readonly Declared[] {
  const registry = createMetricsRegistry();
  createDispatchMetrics(registry);
  createQueueMetrics(registry);
  createCapacityMetrics(registry);
  createFeedLag(registry);
  createApiMetrics(registry);
  createDatabaseMetrics(registry);
  createNoticeMails(registry);
  createMovingMetrics(registry);
  createRunMetrics(registry);
  createBuildInfo(registry);
  createFaults(registry);
  createDroppedSpans(registry);
  return registry.declared;
}

/** The operators' table of metrics in Markdown, generated from the declarations. */
export function metricsTable(): string {
  const rows = declaredMetrics().map(({ name, kind, unit, labels, help }) => {
    const shown = Object.keys(labels).map((label) => `\`${label}\``);
    return `| \`${name}\` | ${kind}, ${unit} | ${shown.join(", ")} | ${help} |`;
  });
  return ["| metric | kind, unit | labels | tells |", "|---|---|---|---|", ...rows].join("\n");
}
