import type { StoredResponse } from "../base/model/idempotency.ts";
import { entityTag } from "./bytes.ts";
import { ANSWER_BYTES_IN_TURN_MIN, RETRY_AFTER_UNAVAILABLE_SECONDS } from "./limits.ts";
import type { Content, Deprecation, ErasedResult, Operation } from "./operation.ts";
import {
  explainProblem,
  invalidRequest,
  Problem,
  type ProblemCatalogue,
  type ProblemKind,
  TemporarilyUnavailable,
} from "./problems.ts";

/** A success, ready to be sent or stored. */
export type OperationResponse = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Null: no body. */
  readonly body: Buffer | null;
  /** Null for writes, whose responses are not compared. */
  readonly etag: string | null;
  /** In place of a body: what is read only when it is sent. */
  readonly content?: Content;
};

/** What came of an operation: its handler's result, or whatever was thrown. */
export type Outcome = { readonly result: ErasedResult } | { readonly error: unknown };
/** For tests. @throws for an outcome that the operation does not declare */
export type CheckOutcome = (operation: Operation, outcome: Outcome) => void;

/** Compiles how an operation's results become responses. */
export function compileResponse(
  operation: Operation,
  check?: CheckOutcome,
): (result: ErasedResult) => OperationResponse {
  const { response, effect } = operation;
  const { status } = response;
  const isTagged = effect === "read";
  return (result) => {
    check?.(operation, { result });
    if (!result) return { status, headers: {}, body: null, etag: null };
    if ("content" in result) return { status, headers: {}, body: null, etag: null, content: result.content };
    if ("bytes" in result) {
      const { bytes } = result;
      const body = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      const type = response.kind === "bytes" ? response.mediaType : "application/octet-stream";
      return { status, headers: { "content-type": type }, body, etag: isTagged ? entityTag(body) : null };
    }
    const headers = { "content-type": "application/json" };
    if ("other" in result) {
      const { status: declared } = response.kind === "json" && response.other ? response.other : response;
      return { status: declared, headers, body: Buffer.from(JSON.stringify(result.other)), etag: null };
    }
    const body = Buffer.from(JSON.stringify(result.body));
    const own = ownHeaders(result.headers ?? {});
    // Covers the operation's own headers, too, so a 304 cannot hide that they changed.
    const besides = Object.keys(own).length === 0 ? "" : JSON.stringify(own);
    const etag = isTagged ? entityTag(body, besides) : null;
    return { status, headers: { ...headers, ...own }, body, etag };
  };
}

/** Whether making its response keeps the thread for long: what is in it is counted until that is clear. */
export function isLarge(result: ErasedResult): boolean {
  if (!result || "content" in result) return false;
  if ("bytes" in result) return result.bytes.length >= ANSWER_BYTES_IN_TURN_MIN;
  let bytesLeft = ANSWER_BYTES_IN_TURN_MIN;
  const hasRoom = (value: unknown): boolean => {
    bytesLeft -= typeof value === "string" ? value.length : 8;
    if (typeof value === "object" && value !== null) Object.values(value).every(hasRoom);
    return bytesLeft > 0;
  };
  return !hasRoom("other" in result ? result.other : result.body);
}

function ownHeaders(declared: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const own: Record<string, string> = {};
  for (const [name, value] of Object.entries(declared)) {
    if (value !== undefined) own[name.toLowerCase()] = value;
  }
  return own;
}

/** The headers that are the same on every success of an operation. */
export function successHeaders(operation: Operation): Readonly<Record<string, string>> {
  // Responses depend on the key and can change at any time: no shared caches, and revalidation by entity tag.
  const caching = operation.holdsSecret || operation.effect === "write" ? "no-store" : "private, no-cache";
  return { "cache-control": caching, ...lifecycleHeaders(operation.deprecated) };
}

export function toStoredResponse(response: OperationResponse, holdsSecret: boolean): StoredResponse {
  const { status, headers, body } = response;
  return { status, headers, body, holdsSecret };
}

/** Deprecation (RFC 9745: a structured date) and Sunset (RFC 8594: an HTTP date). */
function lifecycleHeaders(deprecated: Deprecation | null): Readonly<Record<string, string>> {
  if (!deprecated) return {};
  const deprecation = `@${Math.floor(new Date(deprecated.at).getTime() / 1000)}`;
  if (deprecated.sunsetAt === null) return { deprecation };
  return { deprecation, sunset: new Date(deprecated.sunsetAt).toUTCString() };
}

/** Renders problems as the platform does: type, title, status, code, request_id, and `errors` where declared. */
export function createProblemRenderer(problems: ProblemCatalogue, docsUrl: string) {
  return (problem: Problem, requestId: string) => {
    const { code, errors } = problem;
    const kind = problems[code];
    if (!kind) throw unknownCode(code, problem);
    const members = {
      type: problemType(docsUrl, code),
      title: explainProblem(code, kind).title,
      status: kind.status,
      code,
      request_id: requestId,
      ...(kind.hasErrors ? { errors } : {}),
    };
    const headers = {
      "content-type": "application/problem+json",
      "cache-control": "no-store",
      ...standingHeaders(kind),
      ...problem.headers,
    };
    return { status: kind.status, headers, body: Buffer.from(JSON.stringify(members)) };
  };
}

/** The problem's page: `{docs_url}/errors/{code}`. */
export function problemType(docsUrl: string, code: string): string {
  return `${docsUrl.replace(/\/+$/, "")}/errors/${code}`;
}

function standingHeaders({ status }: ProblemKind): Readonly<Record<string, string>> {
  if (status === 401) return { "www-authenticate": "Bearer" };
  if (status === 503) return { "retry-after": String(RETRY_AFTER_UNAVAILABLE_SECONDS) };
  return {};
}

/** Maps any error to a problem. The `cause` of an `internal_error` is for the log: the caller learns nothing of it. */
export function problemFrom(error: unknown, problems: ProblemCatalogue): Problem {
  if (error instanceof TemporarilyUnavailable)
    return new Problem("temporarily_unavailable", { cause: error });
  if (!(error instanceof Problem))
    return frameworkProblem(error) ?? new Problem("internal_error", { cause: error });
  if (Object.hasOwn(problems, error.code)) return error;
  return new Problem("internal_error", { cause: unknownCode(error.code, error) });
}

function unknownCode(code: string, cause: unknown): Error {
  return new Error(`No catalogue has the problem code ${code}.`, { cause });
}

/** Null for an error that fastify did not raise about the request. */
function frameworkProblem(error: unknown): Problem | null {
  const code = error instanceof Error && "code" in error ? error.code : null;
  if (code === "FST_ERR_CTP_INVALID_MEDIA_TYPE") return new Problem("unsupported_media_type");
  if (code === "FST_ERR_MAX_PARAM_LENGTH") return new Problem("not_found");
  if (code !== "FST_ERR_BAD_URL") return null;
  return invalidRequest("url", "The URL cannot be decoded: a % needs two hexadecimal digits after it.");
}
