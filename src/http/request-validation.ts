import type { IncomingHttpHeaders } from "node:http";
import { z } from "zod";
import { FIELD_ERROR_CHARS_MAX, FIELD_ERRORS_MAX, JSON_LEVELS_MAX } from "./limits.ts";
import type { JsonBody, Operation, RawBody, ReceivedBody } from "./operation.ts";
import { type FieldError, invalidRequest, Problem } from "./problems.ts";

/** A body has room for many thousands. Each place may have two: zod reports a second bound of whole numbers. */
const ISSUES_LOOKED_AT_MAX = 2 * FIELD_ERRORS_MAX;

/**
 * The 400 for zod's issues in one part of the request: `path`, `query` or `body`. Repeated query parameters are only
 * seen if zod reports its input.
 */
export function invalidRequestFrom(place: string, error: z.ZodError): Problem {
  const issues = nearestBounds(error.issues.slice(0, ISSUES_LOOKED_AT_MAX));
  return invalidFields(issues.flatMap((issue) => fieldErrors(place, issue)));
}

/** zod reports the bounds of exact integers beside the declared bounds, which are tighter. */
function nearestBounds(issues: readonly z.core.$ZodIssue[]): readonly z.core.$ZodIssue[] {
  const isAboutExactness = (issue: z.core.$ZodIssue) => "origin" in issue && issue.origin === "int";
  const sideOf = (issue: z.core.$ZodIssue) => [issue.code, ...issue.path].join();
  const declared = new Set(issues.filter((issue) => !isAboutExactness(issue)).map(sideOf));
  return issues.filter((issue) => !isAboutExactness(issue) || !declared.has(sideOf(issue)));
}

/** The 400 for several fields. Bounded, because paths and messages may hold what the caller sent. */
function invalidFields(mistakes: readonly FieldError[]): Problem {
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
    return issue.keys.slice(0, FIELD_ERRORS_MAX).map((key) => ({
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
      return bound("least", issue.minimum, issue.origin);
    case "too_big":
      return bound("most", issue.maximum, issue.origin);
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

/** "have at least 3 characters", "be at most 7" */
function bound(side: "least" | "most", limit: unknown, origin: string): string {
  const unit = UNITS[origin];
  return `Must ${unit === undefined ? "be" : "have"} at ${side} ${limit}${unit ?? ""}.`;
}

function bounded(text: string): string {
  const isLong = text.length > FIELD_ERROR_CHARS_MAX;
  return (isLong ? `${text.slice(0, FIELD_ERROR_CHARS_MAX - 1)}…` : text).toWellFormed();
}

const JSON_NUMBER = /^-?\d{1,16}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?$/i;
/** Of a text, by the type that is wanted; what does not convert stays a text. */
const READERS: Readonly<Record<string, (text: string) => unknown>> = {
  // Past 2^53 it is inexact and `z.int()` rejects it; past 308 digits it would be infinite.
  integer: (text) => (/^-?\d{1,308}$/.test(text) ? Number(text) : text),
  number: (text) => (JSON_NUMBER.test(text) ? Number(text) : text),
  boolean: (text) => (text === "true" ? true : text === "false" ? false : text),
};

type Query = Readonly<Record<string, unknown>>;

/**
 * Converts query strings to the types that a schema expects. Compiled once from the schema, so that declarations say
 * `z.int()` and the reference says integer. (`z.coerce` would read `""` as 0 and `"0x10"` as 16, and shows as a string
 * in the reference.)
 */
function compileQueryCoercion(schema: z.ZodObject): (query: Query) => Query {
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  const readers = new Map<string, (value: unknown) => unknown>();
  for (const [name, property] of Object.entries(json.properties ?? {})) {
    if (typeof property !== "object") continue;
    const items = typeof property.items === "object" && !Array.isArray(property.items) ? property.items : {};
    const isList = property.type === "array";
    const reader = READERS[String(isList ? items.type : property.type)];
    const read = (value: unknown) => (typeof value === "string" && reader ? reader(value) : value);
    // A list of one is a single parameter; a repeated one that is no list is left for the schema to reject.
    readers.set(name, isList ? (value) => [value].flat().map(read) : read);
  }
  return (query) => {
    const read: Record<string, unknown> = Object.create(null);
    for (const [name, value] of Object.entries(query)) read[name] = readers.get(name)?.(value) ?? value;
    return read;
  };
}

export const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Parses a JSON body. Throws a 400 that says why it is invalid. */
export function parseJsonBody(bytes: Uint8Array): unknown {
  const text = orRefuse(() => utf8.decode(bytes), "The body is not valid UTF-8.");
  const written = countWritten(text, JSON_LEVELS_MAX);
  if (written.isTooDeep) {
    throw invalidRequest("body", `The body is nested deeper than ${JSON_LEVELS_MAX} levels.`);
  }
  const isBlank = text.trim() === "";
  const value: unknown = orRefuse(
    () => JSON.parse(text),
    isBlank ? "The body is empty." : "The body is not valid JSON.",
  );
  // Looking for the places takes ten times as long as parsing.
  const repeated = countMembers(value) === written.members ? [] : findRepeatedMembers(text, FIELD_ERRORS_MAX);
  if (repeated.length > 0) {
    throw invalidFields(repeated.map((path) => ({ path: `body.${path}`, message: "Duplicate field." })));
  }
  return value;
}

/** The engine's message quotes its input, and a body may hold a secret. */
export function orRefuse<T>(read: () => T, message: string): T {
  try {
    return read();
  } catch {
    throw invalidRequest("body", message);
  }
}

/** Counts brackets and colons outside strings. What comes of invalid JSON does not matter: the parser rejects it. */
function countWritten(text: string, levelsMax: number): { isTooDeep: boolean; members: number } {
  let levels = 0;
  let members = 0;
  let isInString = false;
  for (let index = 0; index < text.length; index++) {
    const char = text.charCodeAt(index);
    if (isInString) {
      if (char === 0x5c) index++;
      else if (char === 0x22) isInString = false;
    } else if (char === 0x22) isInString = true;
    else if (char === 0x3a) members++;
    else if (char === 0x5b || char === 0x7b) {
      if (++levels > levelsMax) return { isTooDeep: true, members };
    } else if (char === 0x5d || char === 0x7d) levels--;
  }
  return { isTooDeep: false, members };
}

/** Of all objects in it, each name once. */
function countMembers(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  let count = 0;
  if (Array.isArray(value)) for (const item of value) count += countMembers(item);
  else {
    const names = Object.keys(value);
    count = names.length;
    for (const name of names) count += countMembers((value as Record<string, unknown>)[name]);
  }
  return count;
}

/**
 * Paths of the first `placesMax` duplicate members, each once: JSON.parse silently takes the last one. `text` is valid
 * JSON, so what stands outside strings says all; names are compared unescaped. A path may be hundreds of levels long,
 * so none is made for the others.
 *
 * Losing option: a library's scanner. It makes a token of everything, and takes the one thread ten times as long.
 */
function findRepeatedMembers(text: string, placesMax: number): readonly string[] {
  const places = new Set<string>();
  const noNames = new Set<string>();
  /** What is open, with the name or index of where it is read. */
  const open: { readonly names: Set<string>; at: string | number }[] = [];
  let string = 0;
  for (let [index, found] = [0, 0]; found < placesMax && index < text.length; index++) {
    const char = text[index];
    if (char === '"') {
      string = index;
      index = endOfString(text, index);
    } else if (char === "{") open.push({ names: new Set(), at: "" });
    else if (char === "[") open.push({ names: noNames, at: 0 });
    else if (char === "}" || char === "]") open.pop();
    else if (char === ",") {
      const inner = open.at(-1)!;
      if (typeof inner.at === "number") inner.at++;
    } else if (char === ":") {
      const inner = open.at(-1)!;
      const name: string = JSON.parse(text.slice(string, index));
      inner.at = name;
      if (inner.names.has(name)) places.add(open.map(({ at }) => at).join("."));
      found += Number(inner.names.has(name));
      inner.names.add(name);
    }
  }
  return [...places];
}

/** Where the quote is that ends a string of valid JSON. */
export function endOfString(text: string, begin: number): number {
  for (let index = begin + 1; ; index++) {
    const char = text.charCodeAt(index);
    if (char === 0x22) return index;
    if (char === 0x5c) index++;
  }
}

/** A request as received. `body`: undefined if none was sent. */
export type ReceivedRequest = {
  readonly params: unknown;
  readonly query: unknown;
  readonly body: Buffer | undefined;
  /** What comes in its place where it is streamed. */
  readonly stream?: ReceivedBody;
};

/** Compiles an operation's schemas into a function that returns the valid request or throws the 400. */
export function compileRequestValidator(operation: Operation) {
  const { params, query, body } = operation;
  const checkParams = compilePart("path", params);
  const coerce = query === null ? (received: Query) => received : compileQueryCoercion(query);
  const checkQuery = compilePart("query", query);
  return (received: ReceivedRequest) => ({
    params: checkParams(refuseEmptyParams(received.params)),
    query: checkQuery(coerce(received.query as Query)),
    body: body?.kind === "stream" ? received.stream : readBody(body, received.body),
  });
}

/** The router lets `{id}` be empty, but there is nothing at `/v1/boxes/`. */
function refuseEmptyParams(params: unknown): unknown {
  if (Object.values(params as object).includes("")) throw new Problem("not_found");
  return params;
}

/** Unknown names are rejected: a misspelt filter that is ignored selects far more than was meant. */
function compilePart(place: string, schema: z.ZodObject | null): (value: unknown) => unknown {
  const strict = schema?.strict();
  return (value) => {
    if (!strict) {
      const [unknown] = Object.keys(value as object);
      if (unknown !== undefined) throw invalidRequest(`${place}.${unknown.slice(0, 100)}`, "Unknown field.");
      return {};
    }
    const result = strict.safeParse(value, { reportInput: true });
    if (!result.success) throw invalidRequestFrom(place, result.error);
    return result.data;
  };
}

function readBody(body: JsonBody | RawBody | null, bytes: Buffer | undefined): unknown {
  const isEmpty = bytes === undefined || bytes.length === 0;
  if (body === null) {
    if (!isEmpty && !isEmptyObject(parseJsonBody(bytes)))
      throw invalidRequest("body", "This operation takes no body.");
    return undefined;
  }
  if (isEmpty && !(body.kind === "json" && body.isOptional))
    throw invalidRequest("body", "The body is empty.");
  if (body.kind === "raw") return bytes;
  const result = body.schema.safeParse(isEmpty ? {} : parseJsonBody(bytes));
  if (!result.success) throw invalidRequestFrom("body", result.error);
  return result.data;
}

/** Many clients send `{}` with every POST. */
function isEmptyObject(value: unknown): boolean {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject && Object.keys(value).length === 0;
}

const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset[ \t]*=[ \t]*"?utf-8"?[ \t]*)?;?$/i;

/**
 * Rejects a non-empty body that is not declared as plain UTF-8 JSON. Called before the body is read, with its
 * announced length, and again with its actual length: a chunked body announces none.
 */
export function refuseMediaType(headers: IncomingHttpHeaders, bodyBytes: number): void {
  if (bodyBytes === 0) return;
  const coding = headers["content-encoding"] ?? "identity";
  const isJson = JSON_TYPE.test(headers["content-type"] ?? "");
  if (!isJson || coding.toLowerCase() !== "identity") throw new Problem("unsupported_media_type");
}
