import { z } from "zod";
import {
  ATTEMPT_ERROR_CODES,
  explainEndReason,
  explainErrorCode,
  isErrorCode,
  outcomeOfErrorCode,
} from "../base/model/error-codes.ts";
import { EXPLAINED_STATUSES, STATUS_ERROR_CODE, statusErrorCode } from "../base/model/http-status-errors.ts";
import { END_REASONS, type EndReason } from "../base/model/statuses.ts";
import type { CodeGroup, ExplainedCode } from "../http/error-pages.ts";

/** How an attempt failed: one of the list, or the status that the receiver returned. */
export const errorCode = z
  .union([z.enum(ATTEMPT_ERROR_CODES), z.string().regex(STATUS_ERROR_CODE, { abort: true })], {
    error: ({ input }) => refusal(input),
  })
  .meta({
    id: "AttemptErrorCode",
    description:
      "How an attempt failed: a name, or `status_` and the three digits of the receiver's answer, such as " +
      "`status_503`. Each has a page, `/errors/{code}`.",
  });

/** Names the code that was probably meant: a misspelt one would match nothing, without a word. */
function refusal(input: unknown): string {
  const rule =
    "Must be a code of an attempt, as /errors lists them, or status_ and three digits from 300 to 999.";
  if (typeof input !== "string" || input.length > LONGEST) return rule;
  if (END_REASONS.some((reason) => reason === input))
    return `${input} is a reason: filter by reason instead.`;
  const nearest = nearestCode(input.toLowerCase());
  return nearest === null ? rule : `There is no such code. Did you mean ${nearest}?`;
}

const LONGEST = 64;

function nearestCode(input: string): string | null {
  const [status] = /[3-9]\d\d/.exec(input) ?? [];
  if (status !== undefined) return `status_${status}`;
  const codes = ATTEMPT_ERROR_CODES.map((code) => ({ code, edits: editsBetween(input, code) }));
  const [nearest] = codes.sort((one, other) => one.edits - other.edits);
  // Half of the letters may differ; what is further away was not meant.
  return nearest !== undefined && nearest.edits < input.length / 2 ? nearest.code : null;
}

/** Letters to insert, remove or replace (Levenshtein): ten lines, for which a package is not worth its keep. */
function editsBetween(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (const [n, letter] of [...one].entries()) {
    const next = [n + 1];
    for (const [m, wanted] of [...other].entries()) {
      const replaced = row[m]! + (letter === wanted ? 0 : 1);
      next.push(Math.min(replaced, row[m + 1]! + 1, next[m]! + 1));
    }
    row = next;
  }
  return row.at(-1)!;
}

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
