import type { MetricsRegistry } from "./registry.ts";

/** What a process is, as a series that others can be joined with. */
export function createBuildMetrics(registry: MetricsRegistry) {
  return {
    info: registry.gauge({
      name: "sealpost_build_info",
      help: "Always 1; its labels are the version of Sealpost that this process runs, and that of Node.",
      unit: "boolean",
      labels: { version: null, node: null },
    }),
  };
}
