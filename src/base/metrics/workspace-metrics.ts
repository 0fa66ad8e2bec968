import type { MetricsRegistry } from "./registry.ts";

export type MovingMetrics = ReturnType<typeof createMovingMetrics>;

/** The metrics of moving and removing stored objects, in dispatchers. */
export function createMovingMetrics(registry: MetricsRegistry) {
  return {
    moved: registry.counter({
      name: "sealpost_objects_moved_total",
      help: "Documents that this dispatcher has given a new storage_key after a rename.",
      unit: "documents",
      labels: {},
    }),
    removed: registry.counter({
      name: "sealpost_objects_removed_total",
      help: "Objects that this dispatcher has removed because no document has them: moved away, or left behind.",
      unit: "objects",
      labels: {},
    }),
    lost: registry.counter({
      name: "sealpost_objects_lost_total",
      help:
        "Tries to move a document whose object is not where its storage_key says. One that stays missing counts " +
        "each time, at last hourly.",
      unit: "tries",
      labels: {},
    }),
    faults: registry.counter({
      name: "sealpost_object_faults_total",
      help: "Errors of the database or the object store while moving or removing objects; each is retried.",
      unit: "faults",
      labels: { work: ["move", "remove", "clean"] },
    }),
    waiting: registry.gauge({
      name: "sealpost_moves_waiting",
      help: "Renames whose objects are not all moved yet.",
      unit: "renames",
      labels: {},
    }),
    oldest: registry.gauge({
      name: "sealpost_moves_oldest_seconds",
      help: "Age of the oldest rename whose objects are not all moved yet; 0: there is none.",
      unit: "seconds",
      labels: {},
    }),
  };
}

export type RunMetrics = ReturnType<typeof createRunMetrics>;

/** The metrics of workflow runs, in dispatchers. */
export function createRunMetrics(registry: MetricsRegistry) {
  return {
    ended: registry.counter({
      name: "sealpost_workflow_runs_ended_total",
      help: "Workflow runs that this dispatcher has brought to their end. Cancelled ones end in the API.",
      unit: "runs",
      labels: { status: ["SUCCEEDED", "FAILED"] },
    }),
    faults: registry.counter({
      name: "sealpost_workflow_faults_total",
      help:
        "Errors of the database or the object store while taking steps of workflow runs, and deaths of the process " +
        "that takes them; each is retried.",
      unit: "faults",
      labels: { work: ["look", "step", "clean", "process"] },
    }),
    unfinished: registry.gauge({
      name: "sealpost_workflow_runs_unfinished",
      help: "Workflow runs that have not ended.",
      unit: "runs",
      labels: { status: ["QUEUED", "ACTIVE", "WAITING"] },
    }),
    ready: registry.gauge({
      name: "sealpost_workflow_steps_ready",
      help: "Steps of workflow runs that could be taken at once and nobody has taken yet, up to 1,000.",
      unit: "steps",
      labels: {},
    }),
    oldest: registry.gauge({
      name: "sealpost_workflow_steps_oldest_seconds",
      help: "How long the oldest of those steps has been waiting for somebody to take it; 0: there is none.",
      unit: "seconds",
      labels: {},
    }),
    taken: registry.counter({
      name: "sealpost_workflow_steps_taken_total",
      help: "Steps of workflow runs that this dispatcher's process has taken to their end.",
      unit: "steps",
      labels: {},
    }),
    share: registry.gauge({
      name: "sealpost_workflow_steps_share",
      help:
        "The share of the time that this dispatcher's process of steps may take beside its webhooks: 1 with few of " +
        "them, 0.1 from 450 attempts a second on.",
      unit: "ratio",
      labels: {},
    }),
  };
}
