import type { MetricsRegistry } from "./registry.ts";

/** What a process is, as a series that others can be joined with. */
export function createBuildMetrics(registry: MetricsRegistry) {
  return {
    info: registry.gauge({
      name: "sealpost_build_info",
      help: "Always 1; with the versions of Sealpost and Node that this process runs, and its cell (none: unset).",
      unit: "boolean",
      labels: { version: null, node: null, cell: null },
    }),
  };
}
