/** The one list of reasons for abandoning a delivery, each with its explanation. */
export const END_REASON_EXPLANATIONS = {
  attempts_exhausted: {
    message: "All attempts failed, and there will be no more.",
    remedy: "See the last attempt for the cause, fix it, then replay the delivery.",
  },
  no_target: {
    message: "There was no webhook URL: the request had none, and the account had no endpoint.",
    remedy: "Configure an endpoint, then replay the delivery. The analysis is available through the API.",
  },
  target_refused: {
    outcome: "target_refused",
    concernsUrl: true,
    message: "The webhook URL is not allowed: it must be a public HTTPS address.",
    remedy: "Use a public https:// URL without a user name, password or fragment.",
  },
  refused_by_receiver: {
    concernsUrl: true,
    message:
      "The receiver refuses webhooks from this account at this URL: it answered 410 with webhook-refuse: 1.",
    remedy:
      "Ask the receiver's owner. Then lift the refusal (once a day), which makes another try, and replay the delivery.",
  },
  window_ended: {
    message: "The delivery ran out of time before all attempts were made.",
    remedy: "Check that the receiver is up and responds quickly, then replay the delivery.",
  },
  analysis_expired: {
    message: "The analysis has expired and is no longer kept, so there is nothing left to deliver.",
    remedy: "Run the analysis again. A result can be delivered and read only while it is kept.",
  },
  analysis_erased: {
    message: "The analysis was erased, so there is nothing left to deliver.",
    remedy: "Run the analysis again if its result is still wanted. What was erased cannot be brought back.",
  },
  interrupted: {
    message:
      "Our service was interrupted several times while sending this event, so we stopped trying. It may have arrived.",
    remedy: "Contact support with the delivery's id. The analysis is available through the API.",
  },
} as const satisfies Record<string, Entry>;

/** Whether a delivery that ended so has nothing left that could be delivered. */
export const hasNothingLeft = (reason: string | null) =>
  reason === "analysis_expired" || reason === "analysis_erased";

/** Rows, metric labels and log fields use the same string. */
export type EndReason = keyof typeof END_REASON_EXPLANATIONS;

export const END_REASONS = Object.keys(END_REASON_EXPLANATIONS) as readonly EndReason[];

/**
 * How an attempt ended. Rows, metric labels, log fields and the API use the same string.
 *
 * - `succeeded`: the receiver returned a 2xx
 * - `rejected`: a response whose status is not 2xx
 * - `timed_out`: connected, but no response within the attempt's deadline
 * - `unreachable`: DNS or connect failure, a dropped connection, or a response that is not HTTP
 * - `tls_failed`: no trusted TLS connection, so nothing was sent
 * - `target_refused`: the target is not a public HTTPS address, so nothing was sent
 * - `interrupted`: our process stopped midway; the event may have arrived
 */
export const OUTCOMES = [
  "succeeded",
  "rejected",
  "timed_out",
  "unreachable",
  "tls_failed",
  "target_refused",
  "interrupted",
] as const;

export type Outcome = (typeof OUTCOMES)[number];

/** A delivery's statuses, each with what it means, for the OpenAPI document. */
export const DELIVERY_STATES = {
  pending: { meaning: "no attempt of the current run has ended", hasEnded: false, isReplayable: false },
  failed: { meaning: "the last attempt failed and another follows", hasEnded: false, isReplayable: true },
  succeeded: { meaning: "the receiver returned a 2xx", hasEnded: true, isReplayable: false },
  abandoned: { meaning: "no more attempts, see `reason`", hasEnded: true, isReplayable: true },
} as const;

/** A delivery's status, in rows, filters and the API. */
export type DeliveryStatus = keyof typeof DELIVERY_STATES;

export const DELIVERY_STATUSES = Object.keys(DELIVERY_STATES) as readonly DeliveryStatus[];

/** Bulk replays include these. Only these are in the partial index `deliveries_undelivered`. */
export const REPLAYABLE_STATUSES = DELIVERY_STATUSES.filter(isReplayable);

type ReplayableStatus = {
  [Status in DeliveryStatus]: (typeof DELIVERY_STATES)[Status]["isReplayable"] extends true ? Status : never;
}[DeliveryStatus];

export function isReplayable(status: DeliveryStatus): status is ReplayableStatus {
  return DELIVERY_STATES[status].isReplayable;
}

export function hasEnded(status: DeliveryStatus): boolean {
  return DELIVERY_STATES[status].hasEnded;
}

/** Where a bulk replay stands: `delivering` once all its deliveries are started, `done` once they have all ended. */
export const REPLAY_STATUSES = ["running", "delivering", "done", "cancelled"] as const;

export type ReplayStatus = (typeof REPLAY_STATUSES)[number];

/** The result of replaying a single delivery. */
export const REPLAY_OUTCOMES = [
  "replayed",
  "not_found",
  "not_replayable",
  "expired",
  "erased",
  "too_often",
] as const;

/** Of one delivery, so that its receiver is not hammered by replays; the same in sql/0011_log.sql. */
export const RUNS_PER_HOUR_MAX = 60;
/** Where a key of a user asks for one more; the rest is left for the account. */
export const RUNS_PER_HOUR_OF_USER_MAX = 30;

export type ReplayOutcome = (typeof REPLAY_OUTCOMES)[number];

/** Shown in the delivery log; `remedy` is what the receiver's owner can do. */
export type Explanation = {
  message: string;
  remedy: string;
  /** True where the fix may be another webhook URL, which a delivery published with its own URL cannot get. */
  concernsUrl?: true;
  /** True where the receiver may have the wrong signing secret. */
  concernsSecret?: true;
};

export type Entry = Explanation & {
  /** The outcome of an attempt with this code; null if the code only ends deliveries. */
  outcome?: Outcome | null;
  /** True where the failure is ours, not the receiver's; if nothing was written, the attempt does not count. */
  isOurs?: true;
  /** True where an attempt ends so before a byte of the request was sent. */
  isBeforeSending?: true;
};
