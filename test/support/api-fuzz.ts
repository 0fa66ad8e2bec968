import { fc } from "@fast-check/vitest";
import {
  type AnswerCheck,
  checkAnswer,
  createAnswerCheck,
  type OpenApiDocument,
} from "./api-answer-check.ts";
import { type JsonSchema, nastyValues, valuesOf } from "./api-arbitraries.ts";
import { fileHeaders } from "./file-headers.ts";

/** Existing values, such as ids, that replace those generated from the schemas: the document cannot know them. */
export type KnownValues = {
  readonly params?: Readonly<Record<string, fc.Arbitrary<string>>>;
  readonly query?: Readonly<Record<string, fc.Arbitrary<unknown>>>;
  readonly body?: fc.Arbitrary<unknown>;
  readonly file?: fc.Arbitrary<Uint8Array<ArrayBuffer>>;
  /** In place of those of every request: another key, say. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Brings about what the operation needs, before each request: something to remove, say. */
  readonly before?: () => Promise<void>;
};

export type FuzzOptions = {
  /** As `/v1/openapi.json` gives it. */
  readonly document: OpenApiDocument;
  /** Of its server, with /v1. */
  readonly baseUrl: string;
  /** Headers of every request; a valid Authorization among them. */
  readonly headers: Readonly<Record<string, string>>;
  readonly runsPerOperation: number;
  readonly seed: number;
  /** By operation key. */
  readonly known?: Readonly<Record<string, KnownValues>>;
};

/** How often each operation returned each status. */
export type FuzzReport = ReadonlyMap<string, ReadonlyMap<number, number>>;

type Request = {
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Undefined: no body. Bytes: a file. */
  readonly body: string | Uint8Array<ArrayBuffer> | undefined;
};

type Operation = {
  readonly key: string;
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: JsonSchema | null;
  /** Takes a file in place of a body. */
  readonly takesFile: boolean;
  readonly isWrite: boolean;
};
type Parameter = {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly schema: JsonSchema;
};

/**
 * Sends valid and invalid requests to each operation of the document. Throws, with a minimal request, on a 5xx or a
 * response that the document does not declare; otherwise reports the responses.
 */
export async function fuzzApi(options: FuzzOptions): Promise<FuzzReport> {
  const { document, runsPerOperation, seed, known = {} } = options;
  const check = createAnswerCheck(document);
  const resolve = (ref: string): JsonSchema => lookUp(document, ref);
  const report = new Map<string, Map<number, number>>();
  for (const operation of operationsOf(document, resolve)) {
    const counts = new Map<number, number>();
    report.set(operation.key, counts);
    const requests = requestsFor(operation, known[operation.key] ?? {}, resolve, seed);
    const before = known[operation.key]?.before;
    const property = fc.asyncProperty(requests, async (request) => {
      await before?.();
      const status = await sendChecked(options, operation, request, check);
      counts.set(status, (counts.get(status) ?? 0) + 1);
    });
    try {
      await fc.assert(property, { numRuns: runsPerOperation, seed, endOnFailure: false });
    } catch (error) {
      throw new Error(`${operation.key} (${operation.method} ${operation.path})`, { cause: error });
    }
  }
  return report;
}

/** An operation's responses with status `from` to `from + 99`. */
export function countOf(report: FuzzReport, key: string, from: number): number {
  const counts = [...(report.get(key) ?? [])];
  return counts.reduce(
    (sum, [status, count]) => (status >= from && status < from + 100 ? sum + count : sum),
    0,
  );
}

function operationsOf(document: OpenApiDocument, resolve: (ref: string) => JsonSchema): Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => {
      const parameters = operation.parameters.map((parameter) =>
        "$ref" in parameter ? resolve(String(parameter.$ref)) : parameter,
      ) as unknown as Parameter[];
      const schema = operation.requestBody?.content["application/json"]?.schema ?? null;
      const isWrite = operation["x-effect"] === "write";
      return {
        key: operation.operationId,
        method: method.toUpperCase(),
        path,
        parameters,
        body: schema,
        takesFile: operation.requestBody?.content["application/octet-stream"] !== undefined,
        isWrite,
      };
    }),
  );
}

function requestsFor(
  operation: Operation,
  known: KnownValues,
  resolve: (ref: string) => JsonSchema,
  seed: number,
): fc.Arbitrary<Request> {
  const right = rightRequests(operation, known, resolve, seed);
  return fc.oneof(
    { weight: 3, arbitrary: right },
    { weight: 4, arbitrary: right.chain((request) => spoiled(request, operation)) },
  );
}

function rightRequests(
  { key, parameters, body, takesFile, isWrite }: Operation,
  known: KnownValues,
  resolve: (ref: string) => JsonSchema,
  seed: number,
): fc.Arbitrary<Request> {
  const inPlace = (place: string) => parameters.filter((parameter) => parameter.in === place);
  const params = inPlace("path").map(({ name, schema }) => {
    const some = valuesOf(schema, resolve)
      .map(String)
      .filter((text) => text !== "");
    return [name, known.params?.[name] ? fc.oneof({ weight: 4, arbitrary: known.params[name] }, some) : some];
  });
  const query = inPlace("query")
    .filter(({ name }) => name !== "cursor" || known.query?.cursor)
    .map(({ name, schema }) => [name, known.query?.[name] ?? valuesOf(schema, resolve)]);
  const required = inPlace("query").filter((parameter) => parameter.required);
  const bodies = known.body ?? (body === null ? fc.constant(undefined) : valuesOf(body, resolve));
  const json = bodies.map((value) => (value === undefined ? undefined : JSON.stringify(value)));
  const right: fc.Arbitrary<Request> = fc.record({
    params: fc.record(Object.fromEntries(params)) as fc.Arbitrary<Record<string, string>>,
    query: fc.record(Object.fromEntries(query), { requiredKeys: required.map(({ name }) => name) }),
    headers: fc.record({
      ...Object.fromEntries(
        Object.entries(known.headers ?? {}).map(([name, value]) => [name, fc.constant(value)]),
      ),
      "idempotency-key": isWrite ? idempotencyKeys(key, seed) : fc.constant(undefined),
      "content-type": fc.constant(body === null ? undefined : "application/json"),
      range: parameters.some(({ name }) => name === "Range") ? ranges : fc.constant(undefined),
    }),
    body: takesFile ? (known.file ?? fc.uint8Array({ maxLength: 200 })) : json,
  });
  return right.map((request) => {
    if (!(request.body instanceof Uint8Array)) return request;
    return { ...request, headers: { ...request.headers, ...fileHeaders(request.body) } };
  });
}

/** Of a file that may be shorter, or empty. */
const ranges: fc.Arbitrary<string | undefined> = fc.oneof(
  fc.constant(undefined),
  fc.tuple(fc.nat(300), fc.nat(300)).map(([first, more]) => `bytes=${first}-${first + more}`),
);

/** Unique to this operation and seed, but some repeat, for the same or another request. */
function idempotencyKeys(operationKey: string, seed: number): fc.Arbitrary<string> {
  const fresh = fc.uuid().map((uuid) => `${operationKey}-${seed}-${uuid}`);
  return fc.oneof({ weight: 9, arbitrary: fresh }, fc.constantFrom("k1", "k2"));
}

/** The same request with one thing wrong or odd. */
function spoiled(request: Request, { parameters, body, takesFile }: Operation): fc.Arbitrary<Request> {
  const nastyText = nastyValues.map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  const names = (place: string) => parameters.filter((one) => one.in === place).map(({ name }) => name);
  const header = (name: string, values: fc.Arbitrary<string | undefined>) =>
    values.map((value) => ({ ...request, headers: { ...request.headers, [name]: value } }));
  const spoilers: fc.Arbitrary<Request>[] = [
    fc
      .tuple(fc.string({ minLength: 1 }), nastyText)
      .map(([name, text]) => ({ ...request, query: { ...request.query, [name]: text } })),
    header("x-request-id", fc.constantFrom("x".repeat(129), "caf\u00e9")),
    header("authorization", fc.constantFrom(undefined, "Bearer x", "Basic eDp5")),
    header("x-account-id", fc.constantFrom("00000000-0000-4000-8000-000000000000", "x")),
    header("idempotency-key", fc.constantFrom(undefined, "x".repeat(201), '"', "\u00e9")),
  ];
  for (const name of names("path")) {
    const texts = nastyText.filter((text) => text !== "" && text !== "." && text !== "..");
    spoilers.push(
      texts.map((text) => ({ ...request, params: { ...request.params, [name]: text.slice(0, 1000) } })),
    );
  }
  for (const name of names("query")) {
    spoilers.push(
      nastyText.map((text) => ({ ...request, query: { ...request.query, [name]: text.slice(0, 3000) } })),
    );
  }
  if (takesFile) {
    const digests: string[] = [
      "",
      "x",
      "sha-256=:AA==:",
      "sha-512=:AA==:",
      fileHeaders(Buffer.from("another"))["content-digest"],
    ];
    spoilers.push(
      header("content-digest", fc.constantFrom<string | undefined>(undefined, ...digests)),
      header("content-encoding", fc.constantFrom("gzip", "x")),
      header("content-type", fc.constantFrom("text/plain; charset=utf-8", "x", "*")),
      fc.uint8Array().map((bytes) => ({ ...request, body: bytes })),
    );
  }
  if (parameters.some(({ name }) => name === "Range")) {
    spoilers.push(
      header(
        "range",
        fc.oneof(fc.string().map(printable), fc.constantFrom("bytes=-0", "bytes=9-", "bytes=1-2,4-5")),
      ),
    );
  }
  if (body !== null) {
    spoilers.push(
      nastyValues.map((value) => ({ ...request, body: JSON.stringify(value) })),
      fc.string().map((text) => ({ ...request, body: text })),
      fc.constant({ ...request, body: undefined }),
      header(
        "content-type",
        fc.constantFrom("text/plain", "application/xml", "application/json; charset=latin1"),
      ),
      ...memberSpoilers(request),
    );
  }
  return fc.oneof(...spoilers);
}

/** What a header may hold. */
function printable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, "?");
}

/** One member of the body removed, replaced or added. */
function memberSpoilers(request: Request): fc.Arbitrary<Request>[] {
  const body: unknown = typeof request.body === "string" ? JSON.parse(request.body) : null;
  if (typeof body !== "object" || body === null || Array.isArray(body)) return [];
  const rewritten = (members: object) => ({ ...request, body: JSON.stringify(members) });
  const added = fc
    .tuple(fc.string(), nastyValues)
    .map(([name, value]) => rewritten({ ...body, [name]: value }));
  const names = Object.keys(body);
  if (names.length === 0) return [added];
  const name = fc.constantFrom(...names);
  const without = name.map((gone) =>
    rewritten(Object.fromEntries(Object.entries(body).filter(([one]) => one !== gone))),
  );
  const replaced = fc.tuple(name, nastyValues).map(([one, value]) => rewritten({ ...body, [one]: value }));
  return [added, without, replaced];
}

async function sendChecked(
  { baseUrl, headers }: FuzzOptions,
  operation: Operation,
  request: Request,
  check: AnswerCheck,
): Promise<number> {
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name) =>
    encodeURIComponent((request.params[name] ?? "").toWellFormed()),
  );
  const search = new URLSearchParams(
    Object.entries(request.query).flatMap(([name, value]) =>
      value === undefined ? [] : [value].flat().map((item): [string, string] => [name, String(item)]),
    ),
  );
  const all = Object.entries({ ...headers, ...request.headers }).filter(([, value]) => value !== undefined);
  const response = await fetch(`${baseUrl}${path}${search.size > 0 ? `?${search}` : ""}`, {
    method: operation.method,
    headers: Object.fromEntries(all) as Record<string, string>,
    redirect: "manual",
    ...(request.body === undefined || operation.method === "GET" ? {} : { body: request.body }),
  });
  const answer = {
    status: response.status,
    headers: response.headers,
    body: Buffer.from(await response.arrayBuffer()),
  };
  const breach = checkAnswer(check, operation, answer);
  if (breach !== null)
    throw new Error(`${breach}\n${answer.status} ${answer.body.toString().slice(0, 2000)}`);
  return response.status;
}

function lookUp(document: OpenApiDocument, ref: string): JsonSchema {
  const names = ref
    .slice(2)
    .split("/")
    .map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
  return names.reduce<JsonSchema>((at, name) => at[name] as JsonSchema, document as unknown as JsonSchema);
}
