import type { Entry } from "./explanation.ts";

/** The request was sent, wholly or in part, and no usable answer came back. */
export const RESPONSE_ERRORS = {
  response_timeout: {
    outcome: "timed_out",
    message: "The receiver took the request but did not answer in time.",
    remedy: "Answer with a 2xx as soon as the event is accepted, and do the work afterwards.",
  },
  connection_reset: {
    outcome: "unreachable",
    message:
      "The connection was reset before an answer arrived. The receiver may or may not have seen the event.",
    remedy:
      "Look for crashes, restarts or limits in the receiver's logs, and in the proxy or load balancer before it.",
  },
  connection_closed: {
    outcome: "unreachable",
    message: "The receiver closed the connection without an answer. It may or may not have seen the event.",
    remedy:
      "Look for crashes, restarts or time limits in the receiver's logs, and in the proxy or load balancer before it.",
  },
  bad_response: {
    outcome: "unreachable",
    message: "What the receiver answered is not valid HTTP/1.1.",
    remedy:
      "Check that the port of the webhook URL is that of a web server, and that the answer's headers are well formed.",
  },
  response_head_too_large: {
    outcome: "unreachable",
    message: "The headers of the receiver's answer are larger than we read.",
    remedy: "Keep the answer's headers below 16 KiB in all; large cookies are the usual cause.",
  },
  unexpected_failure: {
    outcome: "unreachable",
    message: "The attempt failed in a way that we have no better words for yet.",
    remedy: "If you see this more than once, tell support the delivery's id.",
  },
} as const satisfies Record<string, Entry>;
