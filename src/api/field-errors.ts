import type { z } from "zod";
import { FIELD_ERROR_CHARS_MAX, FIELD_ERRORS_MAX } from "./limits.ts";
import { type FieldError, Problem } from "./problems.ts";

/** The 400 for what zod found wrong in one place of the request: `path`, `query` or `body`. */
export function invalidRequestFrom(place: string, error: z.ZodError): Problem {
  const errors = error.issues.flatMap((issue) => fieldErrors(place, issue)).slice(0, FIELD_ERRORS_MAX);
  return new Problem("invalid_request", { errors });
}

function fieldErrors(place: string, issue: z.core.$ZodIssue): FieldError[] {
  const path = [place, ...issue.path.map(String)].join(".");
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => fieldError(`${path}.${key}`, "Not known here; check the spelling."));
  }
  return [fieldError(path, issue.message)];
}

/** Bounded, because keys and messages may hold what the caller sent. */
function fieldError(path: string, message: string): FieldError {
  return { path: bounded(path), message: bounded(message) };
}

function bounded(text: string): string {
  const isLong = text.length > FIELD_ERROR_CHARS_MAX;
  return (isLong ? `${text.slice(0, FIELD_ERROR_CHARS_MAX - 1)}…` : text).toWellFormed();
}
