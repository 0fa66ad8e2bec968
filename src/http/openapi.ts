import {
  createSharedResponses,
  fileSchema,
  headerComponents,
  problemSchema,
  successResponses,
} from "./openapi-responses.ts";
import {
  createSchemaWriter,
  describeSentRequests,
  parameterComponents,
  parametersOf,
  type SchemaWriter,
  type SentRequest,
} from "./openapi-schemas.ts";
import type { Operation } from "./operation.ts";
import { type OperationRegistry, pathParams } from "./operation-registry.ts";

export type OpenApiInfo = {
  readonly title: string;
  readonly description: string;
  /** Pages of this service for who reads the document; the first is where to begin. */
  readonly pages: readonly { readonly path: `/${string}`; readonly title: string }[];
  /** What this service sends by itself. */
  readonly sends: readonly SentRequest[];
  /** The headings of the reference, in order; every operation's `tag` is one of them. */
  readonly tags: readonly { readonly name: string; readonly description: string }[];
};

export type OpenApiDocument = {
  readonly openapi: "3.1.0";
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  readonly [member: string]: unknown;
};

export type OpenApiOptions = {
  readonly info: OpenApiInfo;
  /** The API's public base URL, without /v1. */
  readonly publicUrl: string;
  /** Base URL of the error pages: a problem's type is `{docsUrl}/errors/{code}`. */
  readonly docsUrl: string;
  /**
   * The errors of each operation: all that the platform declares, or those that it raises, and the rest in one line.
   * Absent: all.
   */
  readonly errors?: "all" | "raised";
};

/** The whole API as an OpenAPI 3.1 document, derived from the declarations. */
export function buildOpenApiDocument(registry: OperationRegistry, options: OpenApiOptions): OpenApiDocument {
  const { info, publicUrl, docsUrl, errors = "all" } = options;
  const schemas = createSchemaWriter();
  const shared = createSharedResponses(registry.problems, docsUrl, errors);
  const tags = new Set(info.tags.map(({ name }) => name));
  const sends = info.sends.map(({ event, tag }) => ({ key: event, tag }));
  for (const { tag, key } of [...registry.operations, ...sends]) {
    if (!tags.has(tag)) throw new Error(`Operation ${key}: no heading "${tag}".`);
  }

  const webhooks = describeSentRequests(info.sends, schemas);
  // All responses before the first request; see createSchemaWriter.
  const responses = registry.operations.map((operation) => ({
    ...successResponses(operation, schemas),
    ...shared.problemsOf(operation),
  }));
  const paths: Record<string, Record<string, unknown>> = {};
  for (const [n, operation] of registry.operations.entries()) {
    const path = operation.path.slice(VERSION.length);
    paths[path] ??= {};
    paths[path][operation.method.toLowerCase()] = describe(operation, schemas, responses[n]!);
  }

  const origin = originOf(publicUrl);
  const links = info.pages.map(({ path, title }) => ({ title, url: `${origin}${path}` }));
  const [start] = links;
  return {
    openapi: "3.1.0",
    info: {
      title: info.title,
      version: "1.0.0",
      description: [info.description, ...links.map(({ title, url }) => `- [${title}](${url})`)].join("\n"),
      contact: { name: info.title, url: docsUrl },
      license: { name: "Proprietary", identifier: "LicenseRef-Proprietary" },
    },
    ...(start === undefined ? {} : { externalDocs: { description: start.title, url: start.url } }),
    servers: [{ url: `${origin}${VERSION}`, description: "The API" }],
    tags: info.tags,
    security: [{ apiKey: [] }],
    paths,
    webhooks,
    components: {
      schemas: { ...schemas.components, Problem: problemSchema },
      parameters: usedOf("parameters", parameterComponents, paths),
      headers: usedOf("headers", headerComponents, { paths, responses: shared.responses }),
      responses: shared.responses,
      examples: shared.examples,
      securitySchemes: {
        apiKey: {
          type: "http",
          scheme: "bearer",
          description: "An API key. Each operation requires one scope, named in `x-required-scope`.",
        },
      },
    },
  };
}

function describe(operation: Operation, schemas: SchemaWriter, responses: object): object {
  const { key, tag, summary, description, scope, risk, effect, mode, isIdempotent, deprecated, work } =
    operation;
  return {
    operationId: key,
    tags: [tag],
    summary,
    description,
    ...(deprecated === null ? {} : { deprecated: true }),
    "x-operation-key": key,
    "x-required-scope": scope,
    "x-risk-level": risk,
    "x-effect": effect,
    "x-execution-mode": mode,
    "x-idempotent": isIdempotent,
    ...(work.kind === "retired" ? { "x-retired": true } : {}),
    parameters: [...retiredParams(operation), ...parametersOf(operation, schemas)],
    ...requestBody(operation, schemas),
    responses,
  };
}

/** A retired operation has no schemas left, but the document must still describe its path. */
function retiredParams({ work, path }: Operation): readonly object[] {
  if (work.kind !== "retired") return [];
  return pathParams(path).map((name) => ({ name, in: "path", required: true, schema: { type: "string" } }));
}

function requestBody({ body }: Operation, schemas: SchemaWriter): object {
  if (body === null) return {};
  const required = body.kind !== "json" || !body.isOptional;
  const description = `At most ${body.bytesMax} bytes.`;
  if (body.kind === "stream") {
    const content = { "application/octet-stream": { schema: fileSchema } };
    return { requestBody: { required, description: `${OF_A_FILE} ${description}`, content } };
  }
  const schema = schemas.write(body.kind === "json" ? body.schema : body.documentedAs, "input");
  return { requestBody: { required, description, content: { "application/json": { schema } } } };
}

const OF_A_FILE =
  "The file, of whatever media type Content-Type says, with its length in Content-Length. A client that sends " +
  "`Expect: 100-continue` gets a refusal before it has sent the file.";

/** Parameters and headers that nothing refers to are left out. */
function usedOf(
  kind: "parameters" | "headers",
  components: Readonly<Record<string, object>>,
  document: object,
): Readonly<Record<string, object>> {
  const text = JSON.stringify(document);
  const isUsed = ([name]: [string, object]) => text.includes(`"#/components/${kind}/${name}"`);
  return Object.fromEntries(Object.entries(components).filter(isUsed));
}

/** Every operation's path begins with it; those of the document begin after it. */
const VERSION = "/v1";

/** Without a slash at its end. Of a local server empty: where the document was served from. */
function originOf(publicUrl: string): string {
  const { hostname } = new URL(publicUrl);
  const isLocal = hostname === "localhost" || hostname === "[::1]" || hostname.startsWith("127.");
  return isLocal ? "" : publicUrl.replace(/\/+$/, "");
}
