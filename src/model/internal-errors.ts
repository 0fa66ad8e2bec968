import type { Entry } from "./explanation.ts";

const SAME_ID = "Treat another delivery with the same id as the same event.";
const NOTHING_TO_DO = "Nothing needs doing on the receiver's side. This one does not count as an attempt.";

/** Failures on our side. */
export const INTERNAL_ERRORS = {
  interrupted: {
    outcome: "interrupted",
    isOurs: true,
    message:
      "We were interrupted in the middle of this attempt. The receiver may or may not have seen the event.",
    remedy: SAME_ID,
  },
  shut_down: {
    outcome: "interrupted",
    isOurs: true,
    message:
      "The attempt was cut because our service was restarted. The receiver may or may not have seen the event.",
    remedy: SAME_ID,
  },
  unrecordable_answer: {
    outcome: "rejected",
    message: "The receiver answered with an error, and the text of its answer could not be stored.",
    remedy: "Answer with a 2xx status. An empty body is enough.",
  },
  egress_proxy_failed: {
    outcome: "unreachable",
    isOurs: true,
    message: "Our own way out to the internet failed before anything was sent. The receiver is not at fault.",
    remedy: NOTHING_TO_DO,
  },
  local_resources_exhausted: {
    outcome: "unreachable",
    isOurs: true,
    message: "Our service was too busy to open another connection, so nothing was sent.",
    remedy: NOTHING_TO_DO,
  },
} as const satisfies Record<string, Entry>;
