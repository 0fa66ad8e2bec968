import type { CodeGroup, ExplainedCode } from "../api/error-pages.ts";
import { END_REASONS, type EndReason } from "../model/end-reasons.ts";
import {
  ATTEMPT_ERROR_CODES,
  explainEndReason,
  explainErrorCode,
  isErrorCode,
  outcomeOfErrorCode,
} from "../model/error-codes.ts";
import { EXPLAINED_STATUSES, statusErrorCode } from "../model/http-status-errors.ts";

/** What the delivery log says went wrong: the pages of the API's own errors explain these, too. */
export const codeGroups: readonly CodeGroup[] = [
  {
    name: "attempt",
    heading: "Error codes of attempts",
    about:
      "Why an attempt failed: `error_code` of an attempt, `last_error_code` of a delivery. An answer that is not a " +
      "2xx is `status_` and its three digits; only the more usual ones are listed.",
    codes: [...ATTEMPT_ERROR_CODES, ...EXPLAINED_STATUSES.map(statusErrorCode)].flatMap(
      (code) => attemptCode(code) ?? [],
    ),
    find: attemptCode,
  },
  {
    name: "reason",
    heading: "Reasons why a delivery was abandoned",
    about: "Why no more attempts follow: `reason` of a delivery whose status is `abandoned`.",
    codes: END_REASONS.map(reasonCode),
    find: (code) => {
      const reason = END_REASONS.find((one) => one === code);
      return reason === undefined ? null : reasonCode(reason);
    },
  },
];

function attemptCode(code: string): ExplainedCode | null {
  const outcome = isErrorCode(code) ? outcomeOfErrorCode(code) : null;
  if (outcome === null) return null;
  const { message, remedy } = explainErrorCode(code);
  return { code, facts: { outcome }, meaning: message, remedy };
}

function reasonCode(code: EndReason): ExplainedCode {
  const { message, remedy } = explainEndReason(code);
  return { code, facts: {}, meaning: message, remedy };
}
