import type { Entry } from "./explanation.ts";

const SAME_ID = "If the same id arrives again, treat it as the same event.";
const NOTHING_TO_DO = "No action is needed on the receiver's side. This does not count as an attempt.";

/** Failures on our side. */
export const INTERNAL_ERRORS = {
  interrupted: {
    outcome: "interrupted",
    isOurs: true,
    message:
      "Our service was interrupted during this attempt. The receiver may or may not have seen the event.",
    remedy: SAME_ID,
  },
  shut_down: {
    outcome: "interrupted",
    isOurs: true,
    message:
      "The attempt was cut off because our service restarted. The receiver may or may not have seen the event.",
    remedy: SAME_ID,
  },
  unrecordable_answer: {
    outcome: "rejected",
    message: "The receiver returned an error, and the text of its response could not be stored.",
    remedy: "Return a 2xx. An empty body is enough.",
  },
  egress_proxy_failed: {
    outcome: "unreachable",
    isOurs: true,
    message: "Our outbound proxy failed before anything was sent. The receiver is not at fault.",
    remedy: NOTHING_TO_DO,
  },
  local_resources_exhausted: {
    outcome: "unreachable",
    isOurs: true,
    message: "Our service was too busy to open another connection, so nothing was sent.",
    remedy: NOTHING_TO_DO,
  },
} as const satisfies Record<string, Entry>;
