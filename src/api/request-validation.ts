import type { IncomingHttpHeaders } from "node:http";
import type { z } from "zod";
import { invalidRequestFrom } from "./field-errors.ts";
import { parseJsonBody } from "./json-body.ts";
import type { Operation } from "./operation.ts";
import type { JsonBody, ReceivedBody } from "./operation-io.ts";
import { invalidRequest, Problem } from "./problems.ts";
import { compileQueryCoercion } from "./query-coercion.ts";

export type ValidRequest = { readonly params: unknown; readonly query: unknown; readonly body: unknown };

/** A request as received. `body`: undefined if none was sent. */
export type ReceivedRequest = {
  readonly params: unknown;
  readonly query: unknown;
  readonly body: Buffer | undefined;
  /** What comes in its place where it is streamed. */
  readonly stream?: ReceivedBody;
};

/** Compiles an operation's schemas into a function that returns the valid request or throws the 400. */
export function compileRequestValidator(operation: Operation): (received: ReceivedRequest) => ValidRequest {
  const checkParams = compilePart("path", operation.params);
  const readQueryText = operation.query ? compileQueryCoercion(operation.query) : sameQuery;
  const readQuery = compilePart("query", operation.query);
  const { body } = operation;
  return (received) => ({
    params: checkParams(refuseEmptyParams(received.params)),
    query: readQuery(readQueryText(received.query as Record<string, unknown>)),
    body: readBody(body, received),
  });
}

function readBody(body: Operation["body"], received: ReceivedRequest): unknown {
  switch (body?.kind) {
    case "raw":
      return readRaw(received.body);
    case "stream":
      return received.stream;
    default:
      return readJson(body, received.body);
  }
}

/** The router lets `{id}` be empty, but there is nothing at `/v1/boxes/`. */
function refuseEmptyParams(params: unknown): unknown {
  if (Object.values(params as object).includes("")) throw new Problem("not_found");
  return params;
}

const sameQuery = (query: Record<string, unknown>): Record<string, unknown> => query;

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

function readRaw(bytes: Buffer | undefined): Buffer {
  if (bytes === undefined || bytes.length === 0) throw invalidRequest("body", "The body is empty.");
  return bytes;
}

function readJson(body: JsonBody | null, bytes: Buffer | undefined): unknown {
  const isEmpty = bytes === undefined || bytes.length === 0;
  if (body === null) {
    if (!isEmpty && !isEmptyObject(parseJsonBody(bytes)))
      throw invalidRequest("body", "This operation takes no body.");
    return undefined;
  }
  if (isEmpty && !body.isOptional) throw invalidRequest("body", "The body is empty.");
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
