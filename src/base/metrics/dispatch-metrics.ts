import type { MetricsRegistry } from "./registry.ts";

export type DispatchMetrics = ReturnType<typeof createDispatchMetrics>;

const ATTEMPT_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30];
const STEP_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15];
const WAIT_SECONDS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1_800];
/** From a prompt first attempt to the last retry. */
const DELIVERY_SECONDS = [
  0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 20, 80, 320, 1_200, 5_000, 22_000, 100_000,
];

/** The metrics of a dispatcher. Quarantined attempts, which a process of their own posts, are not included. */
export function createDispatchMetrics(registry: MetricsRegistry) {
  return {
    attempts: registry.counter({
      name: "sealpost_attempts_total",
      help: "Attempts that ended, by outcome and error code (none: succeeded; uncommon statuses are status_other).",
      unit: "attempts",
      labels: { outcome: null, error_code: null },
    }),
    deliveriesEnded: registry.counter({
      name: "sealpost_deliveries_ended_total",
      help: "Deliveries that ended, by final status and reason for being abandoned (none: succeeded).",
      unit: "deliveries",
      labels: { status: null, reason: null },
    }),
    firstAttemptWait: registry.histogram({
      name: "sealpost_first_attempt_wait_seconds",
      help: "Time from publishing to the start of the first attempt: the part of the latency that is ours.",
      buckets: WAIT_SECONDS,
    }),
    deliverySeconds: registry.histogram({
      name: "sealpost_delivery_seconds",
      help: "Time from publishing to success, by the attempt that succeeded: the first, a retry, or one of a replay.",
      labels: { attempt: ["first", "retry", "replay"] },
      buckets: DELIVERY_SECONDS,
    }),
    attemptSeconds: registry.histogram({
      name: "sealpost_attempt_seconds",
      help: "Duration of an attempt, from the DNS lookup to the end of the response.",
      buckets: ATTEMPT_SECONDS,
    }),
    stepSeconds: registry.histogram({
      name: "sealpost_attempt_step_seconds",
      help: "Duration of an attempt's steps; dns, connect and tls only for new connections.",
      labels: { step: ["dns", "connect", "tls", "first_byte"] },
      buckets: STEP_SECONDS,
    }),
    unrecorded: registry.counter({
      name: "sealpost_attempts_unrecorded_total",
      help: "Attempts whose result was discarded: the lease was taken over, or expired while the database was down.",
      unit: "attempts",
      labels: { how: ["taken_over", "given_up"] },
    }),
    leasesReturned: registry.counter({
      name: "sealpost_leases_returned_total",
      help:
        "Leases returned without using up an attempt: shutdown, egress proxy down, local resources exhausted, an " +
        "unproven receiver whose turn it was not, or not posted (too late, or an internal error).",
      unit: "leases",
      labels: {
        why: ["shut_down", "egress_proxy_failed", "not_proven", "local_resources_exhausted", "not_posted"],
      },
    }),
    leasesRecovered: registry.counter({
      name: "sealpost_leases_recovered_total",
      help: "Expired leases taken over: the dispatcher that held them died, and the attempt was repeated.",
      unit: "leases",
    }),
    sentAlone: registry.counter({
      name: "sealpost_deliveries_sent_alone_total",
      help: "Deliveries interrupted twice in a row and then sent from a process of their own.",
      unit: "deliveries",
    }),
    leads: registry.gauge({
      name: "sealpost_leader",
      help: "1 if this dispatcher is the leader, which promotes what is due, paces replays and does the housekeeping.",
      unit: "boolean",
    }),
    inFlight: registry.gauge({
      name: "sealpost_attempts_in_flight",
      help: "Attempts in flight in this dispatcher, those being claimed included.",
      unit: "attempts",
    }),
    inFlightMax: registry.gauge({
      name: "sealpost_attempts_in_flight_max",
      help: "Maximum number of attempts in flight in this dispatcher (DISPATCH_IN_FLIGHT_MAX).",
      unit: "attempts",
    }),
    silentInFlight: registry.gauge({
      name: "sealpost_silent_attempts_in_flight",
      help:
        "Of the attempts in flight, those to silent receivers (no answer last time, or never any): at most a quarter " +
        "of DISPATCH_IN_FLIGHT_MAX.",
      unit: "attempts",
    }),
    accounts: registry.gauge({
      name: "sealpost_accounts",
      help:
        "Accounts with deliveries in this dispatcher (active); those that start nothing because of the size of their " +
        "bodies in flight (over_budget).",
      unit: "accounts",
      labels: { state: ["active", "over_budget"] },
    }),
    waiting: registry.gauge({
      name: "sealpost_deliveries_in_memory",
      help: "Due deliveries queued in this dispatcher's memory.",
      unit: "deliveries",
    }),
    lanes: registry.gauge({
      name: "sealpost_lanes",
      help:
        "Lanes (one receiver of one account) of this dispatcher: at their cap with more waiting (at_capacity), " +
        "silent, or with due deliveries that are only in the database, as memory is full (overflowing).",
      unit: "lanes",
      labels: { state: ["at_capacity", "silent", "overflowing"] },
    }),
  };
}
