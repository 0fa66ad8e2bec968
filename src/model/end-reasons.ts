import type { Entry } from "./explanation.ts";

const ENDED = { outcome: null } as const;

/** The one list of reasons for abandoning a delivery, each with its explanation. */
export const END_REASON_EXPLANATIONS = {
  attempts_exhausted: {
    ...ENDED,
    message: "All attempts failed, and there will be no more.",
    remedy: "See the last attempt for the cause, fix it, then replay the delivery.",
  },
  no_target: {
    ...ENDED,
    message: "There was no webhook URL: the request had none, and the account had no endpoint.",
    remedy: "Configure an endpoint, then replay the delivery. The analysis is available through the API.",
  },
  target_refused: {
    ...ENDED,
    outcome: "target_refused",
    concernsUrl: true,
    message: "The webhook URL is not allowed: it must be a public HTTPS address.",
    remedy: "Use a public https:// URL without a user name, password or fragment.",
  },
  window_ended: {
    ...ENDED,
    message: "The delivery ran out of time before all attempts were made.",
    remedy: "Check that the receiver is up and responds quickly, then replay the delivery.",
  },
  analysis_expired: {
    ...ENDED,
    message: "The analysis has expired and is no longer kept, so there is nothing left to deliver.",
    remedy: "Run the analysis again. A result can be delivered and read only while it is kept.",
  },
  interrupted: {
    ...ENDED,
    message:
      "Our service was interrupted several times while sending this event, so we stopped trying. It may have arrived.",
    remedy: "Contact support with the delivery's id. The analysis is available through the API.",
  },
} as const satisfies Record<string, Entry>;

/** Rows, metric labels and log fields use the same string. */
export type EndReason = keyof typeof END_REASON_EXPLANATIONS;

export const END_REASONS = Object.keys(END_REASON_EXPLANATIONS) as readonly EndReason[];
