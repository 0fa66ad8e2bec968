import { CONNECT_ERRORS } from "./connect-errors.ts";
import { END_REASON_EXPLANATIONS, type EndReason } from "./end-reasons.ts";
import type { Entry, Explanation } from "./explanation.ts";
import { explainStatus, type StatusErrorCode, statusOfErrorCode } from "./http-status-errors.ts";
import { INTERNAL_ERRORS } from "./internal-errors.ts";
import type { Outcome } from "./outcomes.ts";
import { RESPONSE_ERRORS } from "./response-errors.ts";
import { TLS_ERRORS } from "./tls-errors.ts";
import { URL_REFUSALS } from "./url-refusals.ts";

/** Codes are part of the API: stored, filtered by and alerted on. Never rename one. */
const CATALOGUE = {
  // First: `interrupted` is also an attempt's code, and INTERNAL_ERRORS must override it here.
  ...END_REASON_EXPLANATIONS,
  ...URL_REFUSALS,
  ...CONNECT_ERRORS,
  ...TLS_ERRORS,
  ...RESPONSE_ERRORS,
  ...INTERNAL_ERRORS,
} as const satisfies Record<string, Entry>;

export type NamedErrorCode = keyof typeof CATALOGUE;

/** Every code of an attempt or an ended delivery. */
export type ErrorCode = NamedErrorCode | StatusErrorCode;

/** All codes except the computed `status_NNN`. */
export const NAMED_ERROR_CODES = Object.keys(CATALOGUE) as readonly NamedErrorCode[];

/** Those that an attempt can end with; the others only say why there are no more. */
export const ATTEMPT_ERROR_CODES = NAMED_ERROR_CODES.filter((code) => CATALOGUE[code].outcome !== null);

export function isErrorCode(code: string): code is ErrorCode {
  return isNamed(code) || statusOfErrorCode(code) !== null;
}

/** Cached for known codes only: the number of unknown ones is unbounded. */
const explained = new Map<string, Explanation>();

/**
 * What happened in an attempt and what the receiver's owner can do about it. Takes any string, because the row
 * may have been written by a newer version.
 */
export function explainErrorCode(code: string): Explanation {
  const before = explained.get(code);
  if (before !== undefined) return before;
  const known = explainKnownCode(code);
  if (known !== null) {
    explained.set(code, known);
    return known;
  }
  return {
    message: `The attempt failed with code ${code}.`,
    remedy: "Contact support with the delivery's id and this code.",
  };
}

function explainKnownCode(code: string): Explanation | null {
  if (isNamed(code)) return explanationOf(CATALOGUE[code]);
  const status = statusOfErrorCode(code);
  return status === null ? null : explainStatus(status);
}

/** Why a delivery was abandoned and what can be done about it. */
export function explainEndReason(reason: EndReason): Explanation {
  return explanationOf(END_REASON_EXPLANATIONS[reason]);
}

/** The outcome of an attempt that ended with `code`; null for a code that only ever ends a delivery. */
export function outcomeOfErrorCode(code: ErrorCode): Outcome | null {
  return isNamed(code) ? CATALOGUE[code].outcome : "rejected";
}

/** Whether the failure is ours, not the receiver's: if nothing was written, the attempt does not count. */
export function isOurFailure(code: ErrorCode): boolean {
  const entry: Entry | undefined = isNamed(code) ? CATALOGUE[code] : undefined;
  return entry?.isOurs === true;
}

/** Whether an attempt with this code ended before a byte of the request was sent. */
export function endsBeforeSending(code: string): boolean {
  return BEFORE_SENDING.some((entries) => Object.hasOwn(entries, code));
}

const BEFORE_SENDING = [URL_REFUSALS, CONNECT_ERRORS, TLS_ERRORS];

function explanationOf({ message, remedy, concernsUrl }: Entry): Explanation {
  return concernsUrl === true ? { message, remedy, concernsUrl } : { message, remedy };
}

function isNamed(code: string): code is NamedErrorCode {
  return Object.hasOwn(CATALOGUE, code);
}
