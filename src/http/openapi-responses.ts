import type { JsonSchema, SchemaWriter } from "./openapi-schemas.ts";
import type { Operation } from "./operation.ts";
import { raisedCodes } from "./problem-catalogue.ts";
import {
  explainProblem,
  PROBLEM_STATUSES,
  type ProblemCatalogue,
  type ProblemKind,
  RANGE_STATUS,
} from "./problems.ts";
import { problemType } from "./responses.ts";

type Status = ProblemKind["status"];

const text = (
  description: string,
  example: unknown,
  schema: JsonSchema = { type: "string" },
): JsonSchema => ({
  description,
  schema,
  example,
});

/** Every response header that this API defines. */
export const headerComponents: Readonly<Record<string, JsonSchema>> = {
  XRequestId: text("The request's X-Request-Id, or a generated one.", "7f1c9c1e-6a3d-4a55-9d0e-2b7b6f1f3c11"),
  RateLimit: text("Requests left in the window, and seconds until it resets.", '"default";r=599;t=60'),
  RateLimitPolicy: text(
    "Requests allowed per window, and the window's length in seconds.",
    '"default";q=600;w=60',
  ),
  RetryAfter: text("Seconds to wait before the next request.", 30, { type: "integer", minimum: 1 }),
  ETag: text("The entity tag of the body, for If-None-Match. On reads.", '"5pQ0bqY9XwAkZpC1vXbBzQ"'),
  CacheControl: text("How the response may be cached.", "private, no-cache"),
  Deprecation: text("When the operation was deprecated (RFC 9745). On deprecated operations.", "@1688169599"),
  Sunset: text(
    "When the operation will be retired (RFC 8594). On deprecated operations.",
    "Sun, 30 Jun 2024 23:59:59 GMT",
  ),
  IdempotentReplayed: text(
    "Present when the response is that of an earlier request with the same Idempotency-Key.",
    "true",
    { type: "string", const: "true" },
  ),
  AcceptRanges: text("Ranges can be requested.", "bytes"),
  ContentRange: text("Which bytes these are, and of how many.", "bytes 0-499/1234"),
  ContentDisposition: text(
    "The file's name (RFC 6266), to save it under.",
    "attachment; filename=report.pdf",
  ),
  ContentSecurityPolicy: text(
    "Keeps a file from acting as a page of this site.",
    "sandbox; default-src 'none'",
  ),
  Allow: text("The methods that the URL supports.", "GET, HEAD"),
  WwwAuthenticate: text("How to authenticate.", "Bearer"),
};

/** References to them, by the headers' own names: `X-Request-Id` is the component `XRequestId`. */
function headersOf(...names: readonly string[]): JsonSchema {
  const componentOf = (name: string) => name.replace("WWW", "Www").replaceAll("-", "");
  return Object.fromEntries(
    names.map((name) => [name, { $ref: `#/components/headers/${componentOf(name)}` }]),
  );
}

const always = headersOf("X-Request-Id", "RateLimit", "RateLimit-Policy", "Cache-Control");
const onSuccess = { ...always, ...headersOf("ETag", "Deprecation", "Sunset", "Idempotent-Replayed") };
const ofContent = headersOf("Accept-Ranges", "Content-Disposition", "Content-Security-Policy");

/** What OpenAPI 3.0 called a file, which generators of clients still know best. */
export const fileSchema: JsonSchema = { type: "string", format: "binary" };

/** The successes of an operation, and 304 for reads. */
export function successResponses(operation: Operation, schemas: SchemaWriter): JsonSchema {
  const { response, effect } = operation;
  const own = Object.fromEntries(
    Object.entries<string>(response.headers).map(([name, description]) => [
      name,
      { description, schema: { type: "string" } },
    ]),
  );
  const headers = { ...onSuccess, ...own, ...(response.kind === "content" ? ofContent : {}) };
  const content = contentOf(operation, schemas);
  const success: Record<string, JsonSchema> = {
    [response.status]: { description: SUCCESSES[response.status], headers, ...content },
  };
  if (response.kind === "json" && response.other) {
    const { status, schema, description } = response.other;
    const otherContent = { "application/json": { schema: schemas.write(schema, "output") } };
    success[status] = { description, headers: onSuccess, content: otherContent };
  }
  if (response.kind === "content") {
    const ranged = { ...headers, ...headersOf("Content-Range") };
    success[206] = { description: "The range that was asked for.", headers: ranged, ...content };
  }
  if (effect !== "read") return success;
  return { ...success, 304: { $ref: "#/components/responses/304" } };
}

function contentOf({ response }: Operation, schemas: SchemaWriter): JsonSchema {
  if (response.kind === "empty") return {};
  // Of any media type; the other is for generators of clients, of which some read no response that is of any.
  const ofFile = { schema: fileSchema };
  if (response.kind === "content") return { content: { "application/octet-stream": ofFile, "*/*": ofFile } };
  const type = response.kind === "json" ? "application/json" : response.mediaType;
  const schema = response.kind === "json" ? response.schema : response.documentedAs;
  return { content: { [type]: { schema: schemas.write(schema, "output") } } };
}

const SUCCESSES: Readonly<Record<200 | 201 | 202 | 204, string>> = {
  200: "Success.",
  201: "Created.",
  202: "Accepted: the work continues after this response.",
  204: "Success, without a body.",
};

/**
 * Writes what operations share: 304, and the sixteen error responses of one, or those it raises. All errors have one
 * schema: of one for each status and its codes, generators of clients made thousands of classes.
 */
export function createSharedResponses(problems: ProblemCatalogue, docsUrl: string, errors: "all" | "raised") {
  const responses: Record<string, JsonSchema> = {
    304: { description: "Not modified: a tag in If-None-Match is still current.", headers: onSuccess },
  };
  const examples: Record<string, JsonSchema> = {};
  const body = { $ref: "#/components/schemas/Problem" };

  function problemsOf(operation: Operation): JsonSchema {
    const raised = raisedCodes(operation);
    const codesOf = (status: Status) => raised.filter((code) => problems[code]?.status === status);
    const isFolded = (status: Status) => errors === "raised" && codesOf(status).length === 0;
    const ofContents = operation.response.kind === "content" ? ([RANGE_STATUS] as const) : [];
    const entries = [...PROBLEM_STATUSES, ...ofContents]
      .filter((status) => !isFolded(status))
      .map((status) => [status, { $ref: `#/components/responses/${componentFor(status, codesOf(status))}` }]);
    const folded = PROBLEM_STATUSES.filter(isFolded);
    const description = `Declared on every operation; never returned by this one: ${folded.join(", ")}.`;
    const others = { description, content: { "application/problem+json": { schema: body } } };
    return { ...Object.fromEntries(entries), ...(folded.length > 0 ? { default: others } : {}) };
  }

  function componentFor(status: Status, raised: readonly string[]): string {
    const name = `${status}-${raised.length > 0 ? raised.join("-") : "not-raised"}`;
    responses[name] ??= problemResponse(status, raised);
    return name;
  }

  function problemResponse(status: Status, raised: readonly string[]): JsonSchema {
    const ofStatus = Object.keys(problems).filter((code) => problems[code]?.status === status);
    const codes = raised.length > 0 ? raised : ofStatus;
    const meanings = raised.map((code) => `\`${code}\`: ${problems[code]?.meaning ?? ""}`);
    for (const code of codes) examples[code] ??= { value: example(code) };
    const shown = codes.map((code) => [code, { $ref: `#/components/examples/${code}` }]);
    return {
      description: meanings.join("\n") || "Declared on every operation; never returned by this one.",
      headers: { ...always, ...extraHeaders(status) },
      content: { "application/problem+json": { schema: body, examples: Object.fromEntries(shown) } },
    };
  }

  function example(code: string): JsonSchema {
    const kind = problems[code]!;
    const errors = [{ path: "query.limit", message: "Must be at most 100." }];
    return {
      type: problemType(docsUrl, code),
      title: explainProblem(code, kind).title,
      status: kind.status,
      code,
      request_id: "7f1c9c1e-6a3d-4a55-9d0e-2b7b6f1f3c11",
      ...(kind.hasErrors ? { errors } : {}),
    };
  }

  return { problemsOf, responses, examples };
}

function extraHeaders(status: Status): JsonSchema {
  if (status === 401) return headersOf("WWW-Authenticate");
  if (status === 405) return headersOf("Allow");
  if (status === RANGE_STATUS) return headersOf("Content-Range");
  return status === 429 || status === 503 ? headersOf("Retry-After") : {};
}

/** The body of every error response: five members, and `errors` for codes that name fields. */
export const problemSchema: JsonSchema = {
  type: "object",
  description: "Why the request failed (RFC 9457).",
  properties: {
    type: { type: "string", format: "uri", description: "A page that explains the code and what to do." },
    title: { type: "string" },
    status: { type: "integer", description: "The HTTP status." },
    code: { type: "string", description: "Stable, for programs to switch on." },
    request_id: { type: "string", description: "The response's X-Request-Id." },
    errors: {
      type: "array",
      description: "The invalid fields: where, and what is wrong. Only with some codes.",
      items: {
        type: "object",
        properties: { path: { type: "string" }, message: { type: "string" } },
        required: ["path", "message"],
      },
    },
  },
  required: ["type", "title", "status", "code", "request_id"],
};
