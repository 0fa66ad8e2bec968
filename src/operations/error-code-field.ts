import { z } from "zod";
import { END_REASONS } from "../model/end-reasons.ts";
import { ATTEMPT_ERROR_CODES } from "../model/error-codes.ts";
import { STATUS_ERROR_CODE } from "../model/http-status-errors.ts";

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
  let nearest: string | null = null;
  // Half of the letters may differ; what is further away was not meant.
  let least = input.length / 2;
  for (const code of ATTEMPT_ERROR_CODES) {
    const edits = editsBetween(input, code);
    if (edits >= least) continue;
    least = edits;
    nearest = code;
  }
  return nearest;
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
