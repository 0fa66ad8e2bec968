import { explainStatus, type StatusErrorCode, statusOfErrorCode } from "./http-status-errors.ts";
import {
  END_REASON_EXPLANATIONS,
  type EndReason,
  type Entry,
  type Explanation,
  type Outcome,
} from "./statuses.ts";
import { URL_REFUSALS } from "./url-refusals.ts";

const SAME_ID = "If the same id arrives again, treat it as the same event.";
const NOTHING_TO_DO = "No action is needed on the receiver's side. This does not count as an attempt.";

/** Failures on our side. */
const INTERNAL_ERRORS = {
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
    isOurs: true,
    message: "Our outbound proxy failed before anything was sent. The receiver is not at fault.",
    remedy: NOTHING_TO_DO,
  },
  not_proven: {
    isOurs: true,
    message:
      "The receiver has returned no 2xx in the last 30 days, and gets one attempt at a time, at most ten a minute, " +
      "and fewer while others wait at its address.",
    remedy:
      "Return a 2xx to one of them (to a challenge, with its text), and all others follow. Waiting uses up no " +
      "attempt and no time.",
  },
  local_resources_exhausted: {
    isOurs: true,
    message: "Our service was too busy to open another connection, so nothing was sent.",
    remedy: NOTHING_TO_DO,
  },
} as const satisfies Record<string, Entry>;

/** The request was sent, at least in part, and no usable response came back. */
export const RESPONSE_ERRORS = {
  response_timeout: {
    outcome: "timed_out",
    message: "The receiver got the request but did not respond in time.",
    remedy: "Return a 2xx as soon as the event is stored, and process it afterwards.",
  },
  target_not_confirmed: {
    outcome: "rejected",
    message:
      "The receiver did not confirm that it wants webhooks: before the first one it gets a challenge, and its " +
      "response was not a 2xx with the challenge's text.",
    remedy:
      "Return the challenge's text, as the guide for receivers shows; the library reads it from the request.",
  },
  connection_reset: {
    message:
      "The connection was reset before a response arrived. The receiver may or may not have seen the event.",
    remedy:
      "Check the logs of the receiver, and of any proxy in front of it, for crashes, restarts and limits.",
  },
  connection_closed: {
    message: "The receiver closed the connection without responding. It may or may not have seen the event.",
    remedy:
      "Check the logs of the receiver, and of any proxy in front of it, for crashes, restarts and timeouts.",
  },
  bad_response: {
    message: "The receiver's response is not valid HTTP/1.1.",
    remedy:
      "Check that the port of the webhook URL belongs to a web server, and that the response headers are well-formed.",
  },
  response_head_too_large: {
    message: "The headers of the receiver's response are too large.",
    remedy: "Keep the response headers below 16 KiB in total; large cookies are the usual cause.",
  },
  unexpected_failure: {
    message: "The attempt failed for an unknown reason.",
    remedy: "If this happens more than once, contact support with the delivery's id.",
  },
} as const satisfies Record<string, Entry>;

/** No connection to the receiver's server; nothing was sent. */
export const CONNECT_ERRORS = {
  // Resolving the host name.
  dns_not_found: {
    concernsUrl: true,
    message: "The host name of the webhook URL does not exist in DNS.",
    remedy: "Check the URL for typos, and that the host name has an A or AAAA record.",
  },
  dns_failed: {
    message: "The name servers of the webhook URL's host returned an error.",
    remedy: "Check the domain's name servers and its DNSSEC configuration.",
  },
  dns_timeout: {
    message: "The name servers of the webhook URL's host did not respond in time.",
    remedy: "Check that the domain's name servers are up and reachable from the internet.",
  },
  target_not_public: {
    outcome: "target_refused",
    message:
      "The host name of the webhook URL resolves to an address that is not public, so nothing was sent. " +
      "Webhooks are sent to public addresses only.",
    remedy:
      "Make sure that every A and AAAA record of the name is a public address: one private address blocks them all.",
  },
  target_refused_by_proxy: {
    outcome: "target_refused",
    message:
      "Our outbound proxy does not allow connections to the host or port of the webhook URL, so nothing was sent. " +
      "Usually the host name resolves to an address that is not public.",
    remedy:
      "Make sure that every A and AAAA record of the name is a public address. If all are, contact support: " +
      "our proxy may have a rule against this host or port.",
  },

  // Connecting.
  connect_refused: {
    message: "The receiver's server refused the connection: nothing is listening on that port.",
    remedy:
      "Check that the server is running and listens on the port of the webhook URL (443 if it names none).",
  },
  connect_timeout: {
    message: "The connection to the receiver's server timed out.",
    remedy: "Check that the server is up, and that no firewall silently drops connections from the internet.",
  },
  connect_reset: {
    message:
      "The receiver's server, or a firewall in front of it, reset the connection while it was being opened.",
    remedy:
      "Check the firewall and the load balancer in front of the server; some reset connections from unknown addresses.",
  },
  connect_failed: {
    message: "We could not connect to the receiver's server.",
    remedy: "Check that the server is up and reachable from the internet on the port of the webhook URL.",
  },
  host_unreachable: {
    message: "There is no network route to the receiver's server.",
    remedy: "Check that DNS has the server's current address, and that it is reachable from the internet.",
  },
} as const satisfies Record<string, Entry>;

/** The server was reached, but no trusted TLS connection could be made; nothing was sent. */
export const TLS_ERRORS = {
  tls_expired: {
    message: "The receiver's TLS certificate has expired, so nothing was sent.",
    remedy: "Renew the certificate, and check that the server has loaded the new one.",
  },
  tls_not_yet_valid: {
    message: "The receiver's TLS certificate is not valid yet, so nothing was sent.",
    remedy: "Check the date from which the certificate is valid, or install one that is valid now.",
  },
  tls_self_signed: {
    message: "The receiver's TLS certificate is self-signed, so nothing was sent.",
    remedy: "Install a certificate from a public certificate authority, such as Let's Encrypt.",
  },
  tls_wrong_name: {
    concernsUrl: true,
    message: "The receiver's TLS certificate is for a different host name, so nothing was sent.",
    remedy: "Install a certificate that covers the host of the webhook URL, or correct the URL.",
  },
  tls_untrusted: {
    message:
      "The receiver's TLS certificate does not chain to a trusted certificate authority, so nothing was sent.",
    remedy:
      "Usually the intermediate certificate is missing: make the server send the full chain. " +
      "Otherwise install a certificate from a public certificate authority.",
  },
  tls_version: {
    message: "The receiver's server supports only outdated TLS versions, so nothing was sent.",
    remedy: "Enable TLS 1.2 or 1.3 on the server.",
  },
  tls_not_spoken: {
    concernsUrl: true,
    message: "The server on the port of the webhook URL does not speak TLS, so nothing was sent.",
    remedy: "Use the server's HTTPS port. The usual cause is a port that speaks plain HTTP.",
  },
  tls_protocol: {
    message: "The TLS handshake with the receiver's server failed.",
    remedy:
      "Enable TLS 1.2 or 1.3 with current cipher suites on that port, " +
      "and do not require a client certificate.",
  },
  tls_closed: {
    message: "The receiver's server closed the connection during the TLS handshake, so nothing was sent.",
    remedy:
      "Check that the server has a certificate for the host of the webhook URL, " +
      "and that no firewall closes the connection.",
  },
  tls_timeout: {
    message: "The receiver's server accepted the connection but did not complete the TLS handshake in time.",
    remedy: "Check that the port of the webhook URL speaks HTTPS, and that the server is not overloaded.",
  },
} as const satisfies Record<string, Entry>;

/** The groups, each with what holds for its codes where an entry says nothing else. */
const GROUPS = [
  [{ outcome: null }, END_REASON_EXPLANATIONS],
  [{ outcome: "target_refused", isBeforeSending: true, concernsUrl: true }, URL_REFUSALS],
  [{ outcome: "unreachable", isBeforeSending: true }, CONNECT_ERRORS],
  [{ outcome: "tls_failed", isBeforeSending: true }, TLS_ERRORS],
  [{ outcome: "unreachable" }, RESPONSE_ERRORS],
  // Last: `interrupted` ends a delivery, too, and here it is an attempt's.
  [{ outcome: "unreachable" }, INTERNAL_ERRORS],
] as const satisfies readonly (readonly [Partial<Entry>, Readonly<Record<string, Entry>>])[];

type CodeOf<Group> = Group extends readonly [unknown, infer Entries] ? keyof Entries : never;

/** Codes are part of the API: stored, filtered by and alerted on. Never rename one. */
export type NamedErrorCode = CodeOf<(typeof GROUPS)[number]>;

/** Every code of an attempt or an ended delivery. */
export type ErrorCode = NamedErrorCode | StatusErrorCode;

const CATALOGUE: ReadonlyMap<string, Entry> = new Map(
  GROUPS.flatMap(([ofAll, entries]) =>
    Object.entries(entries).map(([code, entry]) => [code, { ...ofAll, ...entry }] as const),
  ),
);

/** All codes except the computed `status_NNN`. */
export const NAMED_ERROR_CODES = [...CATALOGUE.keys()] as readonly NamedErrorCode[];

/** Those that an attempt can end with; the others only say why there are no more. */
export const ATTEMPT_ERROR_CODES = NAMED_ERROR_CODES.filter((code) => outcomeOfErrorCode(code) !== null);

export function isErrorCode(code: string): code is ErrorCode {
  return CATALOGUE.has(code) || statusOfErrorCode(code) !== null;
}

/** What happened, and what the receiver's owner can do. Any string: a newer version may have written the row. */
export function explainErrorCode(code: string): Explanation {
  const named = CATALOGUE.get(code);
  if (named !== undefined) return named;
  const status = statusOfErrorCode(code);
  if (status !== null) return explainStatus(status);
  return {
    message: `The attempt failed with code ${code}.`,
    remedy: "Contact support with the delivery's id and this code.",
  };
}

/** Why a delivery was abandoned and what can be done about it. */
export function explainEndReason(reason: EndReason): Explanation {
  return END_REASON_EXPLANATIONS[reason];
}

/** The outcome of an attempt that ended with `code`; null for a code that only ever ends a delivery. */
export function outcomeOfErrorCode(code: ErrorCode): Outcome | null {
  return CATALOGUE.has(code) ? (CATALOGUE.get(code)?.outcome ?? null) : "rejected";
}

/** Whether the failure is ours, not the receiver's: if nothing was written, the attempt does not count. */
export function isOurFailure(code: ErrorCode): boolean {
  return CATALOGUE.get(code)?.isOurs === true;
}

/** Whether an attempt with this code ended before a byte of the request was sent. */
export function endsBeforeSending(code: string): boolean {
  return CATALOGUE.get(code)?.isBeforeSending === true;
}
