import type { Entry } from "./explanation.ts";

/** The request was sent, at least in part, and no usable response came back. */
export const RESPONSE_ERRORS = {
  response_timeout: {
    outcome: "timed_out",
    message: "The receiver got the request but did not respond in time.",
    remedy: "Return a 2xx as soon as the event is stored, and process it afterwards.",
  },
  connection_reset: {
    outcome: "unreachable",
    message:
      "The connection was reset before a response arrived. The receiver may or may not have seen the event.",
    remedy:
      "Check the logs of the receiver, and of any proxy in front of it, for crashes, restarts and limits.",
  },
  connection_closed: {
    outcome: "unreachable",
    message: "The receiver closed the connection without responding. It may or may not have seen the event.",
    remedy:
      "Check the logs of the receiver, and of any proxy in front of it, for crashes, restarts and timeouts.",
  },
  bad_response: {
    outcome: "unreachable",
    message: "The receiver's response is not valid HTTP/1.1.",
    remedy:
      "Check that the port of the webhook URL belongs to a web server, and that the response headers are well-formed.",
  },
  response_head_too_large: {
    outcome: "unreachable",
    message: "The headers of the receiver's response are too large.",
    remedy: "Keep the response headers below 16 KiB in total; large cookies are the usual cause.",
  },
  unexpected_failure: {
    outcome: "unreachable",
    message: "The attempt failed for an unknown reason.",
    remedy: "If this happens more than once, contact support with the delivery's id.",
  },
} as const satisfies Record<string, Entry>;
