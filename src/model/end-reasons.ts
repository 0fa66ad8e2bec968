import type { Entry } from "./explanation.ts";

const ENDED = { outcome: null } as const;

/** Why a delivery was abandoned, explained: the one list of reasons. */
export const END_REASON_EXPLANATIONS = {
  attempts_exhausted: {
    ...ENDED,
    message: "All attempts failed, so there will be no more.",
    remedy: "See the last attempt for the cause, put it right, then replay the delivery.",
  },
  no_target: {
    ...ENDED,
    message: "There was no webhook URL: the request gave none, and the account had no endpoint.",
    remedy: "Configure an endpoint, then replay the delivery. The analysis can be read through the API.",
  },
  target_refused: {
    ...ENDED,
    outcome: "target_refused",
    concernsUrl: true,
    message: "The webhook URL is not one that we deliver to: it must be a public HTTPS address.",
    remedy: "Use a public https:// URL without a user name, password or fragment.",
  },
  window_ended: {
    ...ENDED,
    message: "The time for trying was over before all attempts were made.",
    remedy: "Check that the receiver is up and answers quickly, then replay the delivery.",
  },
  analysis_expired: {
    ...ENDED,
    message: "The analysis is no longer kept, so there is nothing left to deliver.",
    remedy: "Run the analysis again; its result can be delivered and read only while it is kept.",
  },
  interrupted: {
    ...ENDED,
    message:
      "Sending this event interrupted our service several times, so we stopped trying. It may have arrived.",
    remedy: "Tell support the delivery's id. The analysis can be read through the API.",
  },
} as const satisfies Record<string, Entry>;

/** The row's value, the metric's label and the log's field. */
export type EndReason = keyof typeof END_REASON_EXPLANATIONS;

export const END_REASONS = Object.keys(END_REASON_EXPLANATIONS) as readonly EndReason[];
