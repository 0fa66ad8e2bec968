import type { MetricsRegistry } from "./registry.ts";

/** The metrics of moving and removing stored objects, in dispatchers. */
export function createMovingMetrics(registry: MetricsRegistry) {
  return {
    lost: registry.counter({
      name: "sealpost_objects_lost_total",
      help:
        "Attempts to relocate a document whose object is not where its storage_key says. A missing object is " +
        "counted on each retry, eventually once an hour.",
      unit: "tries",
    }),
    oldest: registry.gauge({
      name: "sealpost_relocations_oldest_seconds",
      help: "Age of the oldest rename whose objects are not all relocated yet; 0: there is none.",
    }),
  };
}

export type RunMetrics = ReturnType<typeof createRunMetrics>;

/** The metrics of workflow runs, in dispatchers. */
export function createRunMetrics(registry: MetricsRegistry) {
  return {
    oldest: registry.gauge({
      name: "sealpost_workflow_steps_oldest_seconds",
      help: "How long the oldest step of a run has been ready without being taken; 0: none is.",
    }),
    taken: registry.counter({
      name: "sealpost_workflow_steps_taken_total",
      help: "Workflow run steps that this dispatcher's process has finished.",
      unit: "steps",
    }),
    share: registry.gauge({
      name: "sealpost_workflow_steps_share",
      help:
        "The share of the time that this dispatcher's step process may use alongside webhooks: 1 with few of them, " +
        "0.1 at 450 attempts a second or more.",
      unit: "ratio",
    }),
  };
}
