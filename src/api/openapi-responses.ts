import type { JsonSchema, SchemaWriter } from "./openapi-schemas.ts";
import type { Operation } from "./operation.ts";
import { raisedCodes } from "./problem-catalogue.ts";
import { problemType } from "./problem-responses.ts";
import { PROBLEM_STATUSES, type ProblemCatalogue, type ProblemStatus } from "./problems.ts";

type Described = { readonly [member: string]: unknown };

const text = (description: string, example: string): Described => ({
  description,
  schema: { type: "string" },
  example,
});

/** Every header of an answer that this API gives a meaning to. */
export const headerComponents: Readonly<Record<string, Described>> = {
  XRequestId: text(
    "The id that the request came with, or a fresh one.",
    "7f1c9c1e-6a3d-4a55-9d0e-2b7b6f1f3c11",
  ),
  RateLimit: text("What is left of the window, and the seconds until it ends.", '"default";r=599;t=60'),
  RateLimitPolicy: text("The requests that a window allows, and its seconds.", '"default";q=600;w=60'),
  RetryAfter: {
    description: "Seconds to wait before the next request.",
    schema: { type: "integer", minimum: 1 },
    example: 30,
  },
  ETag: text("The tag of exactly these bytes, for If-None-Match. On reads.", '"5pQ0bqY9XwAkZpC1vXbBzQ"'),
  CacheControl: text("Whether and how the answer may be kept.", "private, no-cache"),
  Deprecation: text("When the operation was deprecated (RFC 9745). On deprecated operations.", "@1688169599"),
  Sunset: text(
    "When the operation goes out of service (RFC 8594). On deprecated operations.",
    "Sun, 30 Jun 2024 23:59:59 GMT",
  ),
  IdempotentReplayed: {
    description: "Present when the answer is that of an earlier request under the same Idempotency-Key.",
    schema: { type: "string", const: "true" },
    example: "true",
  },
  Allow: text("The methods that the address exists for.", "GET, HEAD"),
  WwwAuthenticate: text("How to authenticate.", "Bearer"),
};

const header = (name: keyof typeof headerComponents) => ({ $ref: `#/components/headers/${name}` });

const always = {
  "X-Request-Id": header("XRequestId"),
  RateLimit: header("RateLimit"),
  "RateLimit-Policy": header("RateLimitPolicy"),
  "Cache-Control": header("CacheControl"),
};
const onSuccess = {
  ...always,
  ETag: header("ETag"),
  Deprecation: header("Deprecation"),
  Sunset: header("Sunset"),
  "Idempotent-Replayed": header("IdempotentReplayed"),
};

/** The success of an operation, and 304 where it can be asked for. */
export function successResponses(operation: Operation, schemas: SchemaWriter): Described {
  const { response, effect } = operation;
  const own = Object.fromEntries(
    Object.entries<string>(response.headers).map(([name, description]) => [
      name,
      { description, schema: { type: "string" } },
    ]),
  );
  const headers = { ...onSuccess, ...own };
  const content = contentOf(operation, schemas);
  const success: Record<string, Described> = {
    [response.status]: { description: describeSuccess(response.status), headers, ...content },
  };
  if (response.kind === "json" && response.other) {
    const { status, schema, description } = response.other;
    const otherContent = { "application/json": { schema: schemas.write(schema, "output") } };
    success[status] = { description, headers: onSuccess, content: otherContent };
  }
  if (effect !== "read") return success;
  return {
    ...success,
    304: { description: "What If-None-Match names is still current.", headers: onSuccess },
  };
}

function contentOf({ response }: Operation, schemas: SchemaWriter): Described {
  if (response.kind === "empty") return {};
  const type = response.kind === "json" ? "application/json" : response.mediaType;
  const schema = response.kind === "json" ? response.schema : response.documentedAs;
  return { content: { [type]: { schema: schemas.write(schema, "output") } } };
}

function describeSuccess(status: 200 | 201 | 202 | 204): string {
  switch (status) {
    case 200:
      return "Done.";
    case 201:
      return "Created.";
    case 202:
      return "Accepted: the work goes on after this answer.";
    case 204:
      return "Done; there is nothing to return.";
    default:
      throw new Error(`Undescribed status ${status satisfies never}`);
  }
}

/** Writes the sixteen error responses of an operation; equal ones are one component. */
export function createProblemResponses(problems: ProblemCatalogue, docsUrl: string) {
  const components: Record<string, Described> = {};

  function responses(operation: Operation): Described {
    const raised = raisedCodes(operation);
    const entries = PROBLEM_STATUSES.map((status) => {
      const codes = raised.filter((code) => problems[code]?.status === status);
      return [status, { $ref: `#/components/responses/${componentFor(status, codes)}` }];
    });
    return Object.fromEntries(entries);
  }

  function componentFor(status: ProblemStatus, raised: readonly string[]): string {
    const name = raised.length > 0 ? `${status}-${raised.join("-")}` : `${status}-not-raised`;
    const ofStatus = Object.keys(problems).filter((code) => problems[code]?.status === status);
    components[name] ??= problemResponse(status, raised.length > 0 ? raised : ofStatus, raised.length > 0);
    return name;
  }

  function problemResponse(status: ProblemStatus, codes: readonly string[], isRaised: boolean): Described {
    const titles = codes.map((code) => `\`${code}\`: ${problems[code]?.meaning ?? ""}`);
    const description = isRaised ? titles.join("\n") : "Declared on every operation; not raised by this one.";
    const schema: JsonSchema = {
      allOf: [
        { $ref: "#/components/schemas/Problem" },
        {
          type: "object",
          properties: { status: { const: status }, code: { enum: codes } },
          required: ["status", "code"],
        },
      ],
    };
    const examples = Object.fromEntries(codes.map((code) => [code, { value: example(code) }]));
    return {
      description,
      headers: { ...always, ...extraHeaders(status) },
      content: { "application/problem+json": { schema, examples } },
    };
  }

  function example(code: string): Described {
    const kind = problems[code];
    const errors = [{ path: "query.limit", message: "Too big: expected number to be <=100" }];
    return {
      type: problemType(docsUrl, code),
      title: kind?.title,
      status: kind?.status,
      code,
      request_id: "7f1c9c1e-6a3d-4a55-9d0e-2b7b6f1f3c11",
      ...(kind?.hasErrors ? { errors } : {}),
    };
  }

  return { responses, components };
}

function extraHeaders(status: ProblemStatus): Described {
  if (status === 401) return { "WWW-Authenticate": header("WwwAuthenticate") };
  if (status === 405) return { Allow: header("Allow") };
  return status === 429 || status === 503 ? { "Retry-After": header("RetryAfter") } : {};
}

/** The body of every refusal: five members, and `errors` where a request can hold several mistakes. */
export const problemSchema: JsonSchema = {
  type: "object",
  description: "Why a request was refused (RFC 9457).",
  properties: {
    type: { type: "string", format: "uri", description: "The page that explains the code and its remedy." },
    title: { type: "string" },
    status: { type: "integer", description: "The status of the answer." },
    code: { type: "string", description: "What to switch on: it never changes its meaning." },
    request_id: { type: "string", description: "The answer's X-Request-Id." },
    errors: {
      type: "array",
      description: "Each mistake in the request: where, and what. Only with some codes.",
      items: {
        type: "object",
        properties: { path: { type: "string" }, message: { type: "string" } },
        required: ["path", "message"],
      },
    },
  },
  required: ["type", "title", "status", "code", "request_id"],
};
