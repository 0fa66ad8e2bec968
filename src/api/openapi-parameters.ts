import { z } from "zod";
import { IDEMPOTENCY_KEY_CHARS_MAX, REQUEST_ID_CHARS_MAX } from "./limits.ts";
import type { JsonSchema, SchemaWriter } from "./openapi-schemas.ts";
import type { Operation } from "./operation.ts";

type Parameter = { readonly [member: string]: unknown };

const UUID = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
/** Printable, and either without a quote at its beginning or a quoted string of RFC 9651. */
const KEY = '^([!#-~][ -~]*|"([ !#-[\\]-~]|\\\\["\\\\])+")$';
/** Other algorithms may stand beside it. */
const DIGEST = "(^|, *)sha-256=:[A-Za-z0-9+/]{43}=:";
const PRINTABLE = "^[\\x20-\\x7e]*$";

/** The headers that a request may or must carry, beside Authorization. */
export const parameterComponents: Readonly<Record<string, Parameter>> = {
  XRequestId: {
    name: "X-Request-Id",
    in: "header",
    description:
      "Identifies the request in responses and logs. Printable ASCII; generated if missing or empty.",
    schema: { type: "string", maxLength: REQUEST_ID_CHARS_MAX, pattern: PRINTABLE },
  },
  XAccountId: {
    name: "X-Account-Id",
    in: "header",
    description:
      "The account's id, a UUID. Required with a staff key; other keys belong to one account. Empty counts as absent.",
    // Not `format: uuid`, by which an empty one would be invalid.
    schema: { type: "string", pattern: `^(${UUID})?$` },
  },
  IdempotencyKey: {
    name: "Idempotency-Key",
    in: "header",
    required: true,
    description:
      "Identifies this write: retried with the same key, it takes effect once and gets the same response. Kept " +
      "for 24 hours, per account and API key. One that begins with a quote must be a whole quoted string (RFC 9651), " +
      'and is the same key as its text: `"k-1"` is `k-1`.',
    schema: { type: "string", minLength: 1, maxLength: IDEMPOTENCY_KEY_CHARS_MAX, pattern: KEY },
  },
  Traceparent: {
    name: "traceparent",
    in: "header",
    description: "The caller's W3C Trace Context: logged, and sent with the webhook of a published analysis.",
    schema: { type: "string" },
  },
  ContentDigest: {
    name: "Content-Digest",
    in: "header",
    required: true,
    description:
      "The SHA-256 of the body in base64 (RFC 9530). The body is checked against it, and it tells a repeat of the " +
      "request from another one under the same Idempotency-Key.",
    schema: { type: "string", pattern: DIGEST },
    example: "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:",
  },
  Range: {
    name: "Range",
    in: "header",
    description: "One range of bytes (RFC 9110), `bytes=0-499`. With several, the answer is the whole.",
    schema: { type: "string" },
  },
  IfRange: {
    name: "If-Range",
    in: "header",
    description: "An ETag: if it is not the current one any more, Range does not count.",
    schema: { type: "string" },
  },
  IfNoneMatch: {
    name: "If-None-Match",
    in: "header",
    description:
      "Entity tags of earlier responses: if one is still current, the response is 304 without a body.",
    schema: { type: "string" },
  },
};

const component = (name: keyof typeof parameterComponents) => ({ $ref: `#/components/parameters/${name}` });

export function parametersOf(operation: Operation, schemas: SchemaWriter): readonly Parameter[] {
  const { params, query, effect, isAcrossAccounts, body, response } = operation;
  return [
    ...inPlace("path", params, schemas),
    ...inPlace("query", query, schemas),
    component("XRequestId"),
    ...(isAcrossAccounts ? [] : [component("XAccountId")]),
    component("Traceparent"),
    component(effect === "write" ? "IdempotencyKey" : "IfNoneMatch"),
    ...(body?.kind === "stream" ? [component("ContentDigest")] : []),
    ...(response.kind === "content" ? [component("Range"), component("IfRange")] : []),
  ];
}

function inPlace(place: "path" | "query", object: z.ZodObject | null, schemas: SchemaWriter): Parameter[] {
  if (!object) return [];
  const required = new Set(z.toJSONSchema(object, { io: "input", unrepresentable: "any" }).required ?? []);
  return Object.entries(object.shape).map(([name, schema]) => {
    const { description, ...written } = schemas.write(schema as z.ZodType, "input") as JsonSchema;
    const described = description === undefined ? {} : { description };
    return { name, in: place, required: required.has(name), ...described, schema: written };
  });
}
