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
