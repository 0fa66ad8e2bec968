import { z } from "zod";
import { IDEMPOTENCY_KEY_CHARS_MAX, REQUEST_ID_CHARS_MAX } from "./limits.ts";
import type { Operation } from "./operation.ts";

export type JsonSchema = { readonly [member: string]: unknown };

type Direction = "input" | "output";

export type SchemaWriter = ReturnType<typeof createSchemaWriter>;

/**
 * Converts zod schemas to JSON Schema; those with an id become components, each once. Responses are written first: a
 * request component whose name a response has taken for a different schema (requests reject unknown members, responses
 * may gain some) gets the suffix `Input`.
 */
export function createSchemaWriter() {
  const components: Record<string, JsonSchema> = {};
  const idsOfAnswers = new Set<string>();

  function nameFor(id: string, def: JsonSchema, direction: Direction): string {
    if (direction === "output") idsOfAnswers.add(id);
    if (direction === "output" || !idsOfAnswers.has(id)) return id;
    const text = JSON.stringify(def);
    const isSame = !text.includes('"$ref"') && text === JSON.stringify(components[id]);
    return isSame ? id : `${id}Input`;
  }

  function write(schema: z.ZodType, direction: Direction): JsonSchema {
    const written = z.toJSONSchema(schema, { io: direction, unrepresentable: "any" });
    const { $defs = {}, ...root } = tidy(written, direction) as Written;
    const names = new Map(Object.entries($defs).map(([id, def]) => [id, nameFor(id, def, direction)]));
    for (const [id, def] of Object.entries($defs)) {
      const name = names.get(id) ?? id;
      const component = refer(def, names);
      if (JSON.stringify(components[name] ?? component) !== JSON.stringify(component)) {
        throw new Error(`Two schemas have the id ${id}.`);
      }
      components[name] = component;
    }
    return refer(root, names);
  }

  /** `components`: all that were written so far, by name. */
  return { write, components: components as Readonly<typeof components> };
}

type Written = JsonSchema & { readonly $defs?: Readonly<Record<string, JsonSchema>> };

/** Points the references at the components of the document. */
function refer(schema: JsonSchema, names: ReadonlyMap<string, string>): JsonSchema {
  return mapObjects(schema, (object) => {
    const { $ref } = object;
    if (typeof $ref !== "string" || !$ref.startsWith("#/$defs/")) return object;
    const id = $ref.slice("#/$defs/".length);
    return { ...object, $ref: `#/components/schemas/${names.get(id) ?? id}` };
  }) as JsonSchema;
}

const FORMATS_THAT_SAY_ENOUGH = new Set(["date-time", "date", "uuid", "uri", "email", "ipv4", "ipv6"]);

/** Removes what is of no use to a reader: patterns beside formats, bounds of 2^53. */
function tidy(schema: unknown, direction: Direction): unknown {
  return mapObjects(schema, (object) => {
    const tidied: Record<string, unknown> = { ...object };
    delete tidied.$schema;
    delete tidied.id;
    // Clients in Java have an enumeration for a constant, and one of booleans does not compile.
    if (tidied.type === "boolean") delete tidied.const;
    if (FORMATS_THAT_SAY_ENOUGH.has(String(tidied.format))) delete tidied.pattern;
    if (tidied.minimum === Number.MIN_SAFE_INTEGER) delete tidied.minimum;
    if (tidied.maximum === Number.MAX_SAFE_INTEGER) delete tidied.maximum;
    // Clients must accept new members in responses, so the document does not forbid them.
    if (direction === "output" && tidied.additionalProperties === false) delete tidied.additionalProperties;
    if (JSON.stringify(tidied.propertyNames) === '{"type":"string"}') delete tidied.propertyNames;
    return tidied;
  });
}

/** Applies `change` to every schema object, inside out; the names of properties are not schema objects. */
function mapObjects(value: unknown, change: (object: JsonSchema) => JsonSchema, isNames = false): unknown {
  if (Array.isArray(value)) return value.map((item) => mapObjects(item, change));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([name, member]) => {
    if (!isNames && LITERALS.has(name)) return [name, member];
    return [name, mapObjects(member, change, !isNames && MAPS.has(name))];
  });
  const mapped = Object.fromEntries(entries) as JsonSchema;
  return isNames ? mapped : change(mapped);
}

const MAPS = new Set(["properties", "patternProperties", "$defs"]);
const LITERALS = new Set(["const", "enum", "default", "example", "examples"]);

const UUID = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
/** Printable, and either without a quote at its beginning or a quoted string of RFC 9651. */
const KEY = '^([!#-~][ -~]*|"([ !#-[\\]-~]|\\\\["\\\\])+")$';
/** Other algorithms may stand beside it. */
const DIGEST = "(^|, *)sha-256=:[A-Za-z0-9+/]{43}=:";
const PRINTABLE = "^[\\x20-\\x7e]*$";

const parameter = (name: string, description: string, schema: JsonSchema = {}): JsonSchema => ({
  name,
  in: "header",
  description,
  schema: { type: "string", ...schema },
});

/** The headers that a request may or must carry, beside Authorization. */
export const parameterComponents = {
  XRequestId: parameter(
    "X-Request-Id",
    "Identifies the request in responses and logs. Printable ASCII; generated if missing or empty.",
    { maxLength: REQUEST_ID_CHARS_MAX, pattern: PRINTABLE },
  ),
  XAccountId: parameter(
    "X-Account-Id",
    "The account's id, a UUID. Required with a staff key; other keys belong to one account. Empty counts as absent.",
    // Not `format: uuid`, by which an empty one would be invalid.
    { pattern: `^(${UUID})?$` },
  ),
  IdempotencyKey: {
    ...parameter(
      "Idempotency-Key",
      "Identifies this write: retried with the same key, it takes effect once and gets the same response. Kept " +
        "for 24 hours, per account and API key. One that begins with a quote must be a whole quoted string " +
        '(RFC 9651), and is the same key as its text: `"k-1"` is `k-1`.',
      { minLength: 1, maxLength: IDEMPOTENCY_KEY_CHARS_MAX, pattern: KEY },
    ),
    required: true,
  },
  Traceparent: parameter(
    "traceparent",
    "The caller's W3C Trace Context: logged, and sent with the webhook of a published analysis.",
  ),
  ContentDigest: {
    ...parameter(
      "Content-Digest",
      "The SHA-256 of the body in base64 (RFC 9530). The body is checked against it, and it distinguishes a " +
        "repeat of the request from a different one under the same Idempotency-Key.",
      { pattern: DIGEST },
    ),
    required: true,
    example: "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:",
  },
  Range: parameter(
    "Range",
    "One range of bytes (RFC 9110), `bytes=0-499`. With several, the response is the whole content.",
  ),
  IfRange: parameter("If-Range", "An ETag: if it is no longer current, Range is ignored."),
  IfNoneMatch: parameter(
    "If-None-Match",
    "Entity tags of earlier responses: if one is still current, the response is 304 without a body.",
  ),
};

const component = (name: keyof typeof parameterComponents) => ({ $ref: `#/components/parameters/${name}` });

export function parametersOf(operation: Operation, schemas: SchemaWriter): readonly JsonSchema[] {
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

function inPlace(place: "path" | "query", object: z.ZodObject | null, schemas: SchemaWriter): JsonSchema[] {
  if (!object) return [];
  const required = new Set(z.toJSONSchema(object, { io: "input", unrepresentable: "any" }).required ?? []);
  return Object.entries(object.shape).map(([name, schema]) => {
    const { description, deprecated, ...written } = schemas.write(schema as z.ZodType, "input") as JsonSchema;
    const described = {
      ...(description === undefined ? {} : { description }),
      ...(deprecated === undefined ? {} : { deprecated }),
    };
    return { name, in: place, required: required.has(name), ...described, schema: written };
  });
}

/** A request that this service sends by itself, to a URL that an account has named. */
export type SentRequest = {
  /** The event that it tells of: its name in the document, and its operationId. */
  readonly event: string;
  /** Its heading in the reference. */
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly headers: readonly SentHeader[];
  readonly body: z.ZodType;
  readonly example: unknown;
  /** What the receiver's answer means, by status (`204`, `4XX`). */
  readonly responses: Readonly<Record<string, string>>;
};

export type SentHeader = {
  readonly name: string;
  readonly description: string;
  readonly isAlwaysSent: boolean;
  readonly pattern: RegExp;
  readonly example: string;
};

/** `webhooks` of the document. Bodies are written like answers: receivers must accept new members. */
export function describeSentRequests(
  requests: readonly SentRequest[],
  schemas: SchemaWriter,
): Readonly<Record<string, object>> {
  return Object.fromEntries(
    requests.map(({ event, tag, summary, description, headers, body, example, responses }) => {
      const content = { "application/json": { schema: schemas.write(body, "output"), example } };
      const post = {
        operationId: event,
        tags: [tag],
        summary,
        description,
        // Its signature shows who sent it; the key of the API is not in it.
        security: [],
        parameters: headers.map((header) => ({
          name: header.name,
          in: "header",
          required: header.isAlwaysSent,
          description: header.description,
          schema: { type: "string", pattern: header.pattern.source },
          example: header.example,
        })),
        requestBody: { required: true, content },
        responses: Object.fromEntries(
          Object.entries(responses).map(([status, meaning]) => [status, { description: meaning }]),
        ),
      };
      return [event, { post }];
    }),
  );
}
