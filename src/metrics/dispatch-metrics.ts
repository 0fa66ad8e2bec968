import type { MetricsRegistry } from "./registry.ts";

export type DispatchMetrics = ReturnType<typeof createDispatchMetrics>;

const ATTEMPT_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30];
const STEP_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15];
const WAIT_SECONDS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1_800];
/** From the first attempt of a good day to the last of a bad one. */
const DELIVERY_SECONDS = [
  0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 20, 80, 320, 1_200, 5_000, 22_000, 100_000,
];
const BATCH_ROWS = [1, 2, 5, 10, 20, 50, 100, 200];
const BATCH_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

const BATCHES = ["claim", "record"] as const;
const LEADER_WORK = ["lead", "promote", "advance_replays", "sweep_jobs", "keep_house"] as const;

/** What one dispatcher counts. Attempts that a process of its own posts alone are not among them. */
export function createDispatchMetrics(registry: MetricsRegistry) {
  return {
    attempts: registry.counter({
      name: "sealpost_attempts_total",
      help: "Attempts that ended, by outcome and error code (none: it succeeded; statuses few know are status_other).",
      unit: "attempts",
      labels: { outcome: null, error_code: null },
    }),
    deliveriesEnded: registry.counter({
      name: "sealpost_deliveries_ended_total",
      help: "Deliveries with no more attempts to come, by final status and why they were abandoned (none: succeeded).",
      unit: "deliveries",
      labels: { status: null, reason: null },
    }),
    firstAttemptWait: registry.histogram({
      name: "sealpost_first_attempt_wait_seconds",
      help: "Time from publishing to the start of the first attempt: our own part of being late.",
      unit: "seconds",
      labels: {},
      buckets: WAIT_SECONDS,
    }),
    deliverySeconds: registry.histogram({
      name: "sealpost_delivery_seconds",
      help: "Time from publishing to success, by the attempt that succeeded: the first, a retry, or one of a replay.",
      unit: "seconds",
      labels: { attempt: ["first", "retry", "replay"] },
      buckets: DELIVERY_SECONDS,
    }),
    attemptSeconds: registry.histogram({
      name: "sealpost_attempt_seconds",
      help: "Time that one attempt took, from the name's lookup to the end of the answer.",
      unit: "seconds",
      labels: {},
      buckets: ATTEMPT_SECONDS,
    }),
    stepSeconds: registry.histogram({
      name: "sealpost_attempt_step_seconds",
      help: "Time of an attempt's steps; dns, connect and tls only where a fresh connection was made.",
      unit: "seconds",
      labels: { step: ["dns", "connect", "tls", "first_byte"] },
      buckets: STEP_SECONDS,
    }),
    unrecorded: registry.counter({
      name: "sealpost_attempts_unrecorded_total",
      help: "Attempts whose result did not count: the lease was taken over, or ended while the database was away.",
      unit: "attempts",
      labels: { how: ["taken_over", "given_up"] },
    }),
    leasesReturned: registry.counter({
      name: "sealpost_leases_returned_total",
      help:
        "Leases given back without using up an attempt: we stopped, the egress proxy is down, or nothing was posted " +
        "because it was too late or met a fault of our own.",
      unit: "leases",
      labels: { why: ["shut_down", "egress_proxy_failed", "local_resources_exhausted", "not_posted"] },
    }),
    leasesRecovered: registry.counter({
      name: "sealpost_leases_recovered_total",
      help: "Leases found expired: the dispatcher that had them died, and the attempt was made again.",
      unit: "leases",
      labels: {},
    }),
    sentAlone: registry.counter({
      name: "sealpost_deliveries_sent_alone_total",
      help: "Deliveries interrupted twice in a row, handed to a process of their own.",
      unit: "deliveries",
      labels: {},
    }),
    wakeupsLetGo: registry.counter({
      name: "sealpost_wakeups_let_go_total",
      help: "Wake-ups not kept in memory because their lane had enough; the promoter brings them back.",
      unit: "deliveries",
      labels: {},
    }),
    faults: registry.counter({
      name: "sealpost_faults_total",
      help: "Faults of our own or of the database while claiming, delivering or recording; each is tried again.",
      unit: "faults",
      labels: { work: ["claim", "deliver", "record"] },
    }),
    wakeupRunnerRestarts: registry.counter({
      name: "sealpost_wakeup_runner_restarts_total",
      help: "Times that the runner of wake-ups ended by itself and was started again: the database went away.",
      unit: "restarts",
      labels: {},
    }),
    batchRows: registry.histogram({
      name: "sealpost_batch_rows",
      help: "Deliveries in one claim or one record statement.",
      unit: "deliveries",
      labels: { batch: BATCHES },
      buckets: BATCH_ROWS,
    }),
    batchSeconds: registry.histogram({
      name: "sealpost_batch_seconds",
      help: "Time of one claim or one record statement, the wait for a connection included.",
      unit: "seconds",
      labels: { batch: BATCHES },
      buckets: BATCH_SECONDS,
    }),
    leads: registry.gauge({
      name: "sealpost_leader",
      help: "1 where this dispatcher leads: promotes what is due, paces replays and keeps house for all.",
      unit: "boolean",
      labels: {},
    }),
    leaderRuns: registry.counter({
      name: "sealpost_leader_runs_total",
      help: "Steps of the leader's work, by kind and result.",
      unit: "steps",
      labels: { work: LEADER_WORK, result: ["done", "failed"] },
    }),
    leaderRows: registry.counter({
      name: "sealpost_leader_rows_total",
      help: "What those steps did: deliveries woken, replays advanced, stuck wake-ups swept away.",
      unit: "rows",
      labels: { work: ["promote", "advance_replays", "sweep_jobs"] },
    }),
    partitions: registry.counter({
      name: "sealpost_partitions_total",
      help: "Day partitions that this dispatcher made or dropped as the leader.",
      unit: "partitions",
      labels: { change: ["made", "dropped"] },
    }),
    inFlight: registry.gauge({
      name: "sealpost_attempts_in_flight",
      help: "Attempts under way in this dispatcher, those just being claimed included.",
      unit: "attempts",
      labels: {},
    }),
    inFlightMax: registry.gauge({
      name: "sealpost_attempts_in_flight_max",
      help: "How many attempts this dispatcher makes at once at most (DISPATCH_IN_FLIGHT_MAX).",
      unit: "attempts",
      labels: {},
    }),
    waiting: registry.gauge({
      name: "sealpost_deliveries_in_memory",
      help: "Due deliveries that this dispatcher remembers and has not started yet.",
      unit: "deliveries",
      labels: {},
    }),
    unrecordedNow: registry.gauge({
      name: "sealpost_outcomes_waiting",
      help: "Outcomes of ended attempts that wait to be recorded.",
      unit: "attempts",
      labels: {},
    }),
    lanes: registry.gauge({
      name: "sealpost_lanes",
      help: "Lanes (one account's one receiver) of this dispatcher: held at their cap with more waiting, or silent.",
      unit: "lanes",
      labels: { state: ["held", "silent"] },
    }),
    connections: registry.gauge({
      name: "sealpost_target_connections",
      help: "Open connections to receivers, busy with a POST or kept for the next.",
      unit: "connections",
      labels: { state: ["busy", "idle"] },
    }),
  };
}
