import type { z } from "zod";
import { FIELD_ERROR_CHARS_MAX, FIELD_ERRORS_MAX } from "./limits.ts";
import { type FieldError, Problem } from "./problems.ts";

/**
 * The 400 for zod's issues in one part of the request: `path`, `query` or `body`. Repeated query parameters are only
 * seen if zod reports its input.
 */
export function invalidRequestFrom(place: string, error: z.ZodError): Problem {
  return invalidFields(nearestBounds(error.issues).flatMap((issue) => fieldErrors(place, issue)));
}

/** zod reports the bounds of exact integers beside the declared bounds, which are tighter. */
function nearestBounds(issues: readonly z.core.$ZodIssue[]): readonly z.core.$ZodIssue[] {
  const isAboutExactness = (issue: z.core.$ZodIssue) => "origin" in issue && issue.origin === "int";
  const sideOf = (issue: z.core.$ZodIssue) => [issue.code, ...issue.path].join();
  const declared = new Set(issues.filter((issue) => !isAboutExactness(issue)).map(sideOf));
  return issues.filter((issue) => !isAboutExactness(issue) || !declared.has(sideOf(issue)));
}

/** The 400 for several fields. Bounded, because paths and messages may hold what the caller sent. */
export function invalidFields(mistakes: readonly FieldError[]): Problem {
  const errors = mistakes
    .slice(0, FIELD_ERRORS_MAX)
    .map(({ path, message }) => ({ path: bounded(path), message: bounded(message) }));
  return new Problem("invalid_request", { errors });
}

function fieldErrors(place: string, issue: z.core.$ZodIssue): FieldError[] {
  // A parameter that is given several times has no numbers in the query.
  const parts = place === "query" ? issue.path.slice(0, 1) : issue.path;
  const path = [place, ...parts.map(String)].join(".");
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({
      path: `${path}.${key}`,
      message: "Unknown field.",
    }));
  }
  const isRepeated = place === "query" && isListForOne(issue);
  return [{ path, message: isRepeated ? "Given more than once." : inWords(issue) }];
}

/** A parameter becomes a list only if it is repeated. */
function isListForOne({ code, input }: z.core.$ZodIssue): boolean {
  return Array.isArray(input) && (code === "invalid_type" || code === "invalid_value");
}

/** zod's messages ("Invalid input: expected number, received string") are for programmers; these say what is valid. */
function inWords(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case "invalid_type":
      if (issue.message.endsWith("received undefined")) return "Missing.";
      return `Must be ${TYPES[issue.expected] ?? issue.expected}.`;
    case "invalid_value":
      return `Must be ${issue.values.length > 1 ? "one of " : ""}${issue.values.map(String).join(", ")}.`;
    case "invalid_format":
      if (issue.format === "regex") return aboutPattern(issue);
      return FORMATS[issue.format] ?? `Must be in the format ${issue.format}.`;
    case "too_small":
      return `Must ${verb(issue.origin)} at least ${issue.minimum}${unit(issue.origin)}.`;
    case "too_big":
      return `Must ${verb(issue.origin)} at most ${issue.maximum}${unit(issue.origin)}.`;
    default:
      return issue.message;
  }
}

/** The schema's own message, if it has one; zod's quotes the expression, which is not for people. */
function aboutPattern({ message, pattern = "" }: z.core.$ZodIssueInvalidStringFormat): string {
  return message.includes(pattern) ? "Has characters or a length that are not allowed." : message;
}

const TYPES: Readonly<Record<string, string>> = {
  array: "an array",
  boolean: "true or false",
  int: "a whole number",
  null: "null",
  number: "a number",
  object: "an object",
  record: "an object",
  string: "a string",
};

const FORMATS: Readonly<Record<string, string>> = {
  guid: "Must be a UUID, such as 019aa3f0-7d2c-7c3a-9b1e-3f6f2f6f0a11.",
  uuid: "Must be a UUID, such as 019aa3f0-7d2c-7c3a-9b1e-3f6f2f6f0a11.",
  datetime: "Must be a time in ISO 8601, such as 2027-01-15T08:00:00.000Z.",
};

const UNITS: Readonly<Record<string, string>> = { string: " characters", array: " items" };

function unit(origin: string): string {
  return UNITS[origin] ?? "";
}

function verb(origin: string): string {
  return UNITS[origin] === undefined ? "be" : "have";
}

function bounded(text: string): string {
  const isLong = text.length > FIELD_ERROR_CHARS_MAX;
  return (isLong ? `${text.slice(0, FIELD_ERROR_CHARS_MAX - 1)}…` : text).toWellFormed();
}
