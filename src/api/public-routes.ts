import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { addConfirmationPages, type Confirmations } from "./confirmation-pages.ts";
import { addDocumentPages, type DocumentPage } from "./document-pages.ts";
import { entityTag, matchesEntityTag } from "./entity-tags.ts";
import { addErrorPages, type CodeGroup } from "./error-pages.ts";
import type { PageGuard } from "./html-page.ts";
import { buildOpenApiDocument, type OpenApiDocument, type OpenApiInfo } from "./openapi.ts";
import type { OperationRegistry } from "./operation-registry.ts";
import { addReferencePage } from "./reference-page.ts";
import { beginRequest } from "./request-context.ts";
import type { RequestGuards } from "./request-guards.ts";

export type PageOptions = {
  readonly info: OpenApiInfo;
  /** The API's public base URL, without /v1. */
  readonly publicUrl: string;
  /** Base URL of the error pages: a problem's type is `{docsUrl}/errors/{code}`. */
  readonly docsUrl: string;
  /** Documents about the service; they need no API key. */
  readonly documents: readonly DocumentPage[];
  /** Codes that have a page beside those of the problems. */
  readonly codeGroups: readonly CodeGroup[];
  /** Rejects while the process is not ready: its database is down, or not migrated. */
  readonly checkReady: () => Promise<void>;
  /** Links that ask a person to confirm something; absent: there are none. */
  readonly confirmations?: Confirmations;
};

export type PageRoute = { readonly method: "GET" | "POST"; readonly path: string };

const OPENAPI_PATH = "/v1/openapi.json";

/** Adds what needs no API key: health, the OpenAPI document, the reference, the error pages, links to confirm. */
export async function addPublicPages(
  app: FastifyInstance,
  registry: OperationRegistry,
  options: PageOptions,
  guards: RequestGuards,
): Promise<readonly PageRoute[]> {
  const probed = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    beginRequest(request, "page");
    guards.guardProbe(request, reply);
  };
  addPage(app, "/healthz", probed, async (_request, reply) => {
    return reply.header("content-type", "application/json").send(Buffer.from('{"status":"ok"}'));
  });
  addPage(app, "/readyz", probed, async (_request, reply) => {
    await options.checkReady();
    return reply.header("content-type", "application/json").send(Buffer.from('{"status":"ok"}'));
  });

  const admit = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    beginRequest(request, "page");
    await guards.guardPublic(request, reply);
  };
  const documents: { all?: TaggedDocument; raised?: TaggedDocument } = {};
  addPage(app, OPENAPI_PATH, admit, async (request, reply) => {
    const errors = (request.query as { errors?: unknown }).errors === "raised" ? "raised" : "all";
    // Built when it is first asked for: a start does not wait for what few read.
    documents[errors] ??= taggedDocument(buildOpenApiDocument(registry, { ...options, errors }));
    const { document, tag } = documents[errors];
    reply.headers({ etag: tag, "cache-control": "no-cache" });
    const ifNoneMatch = request.headers["if-none-match"];
    if (ifNoneMatch !== undefined && matchesEntityTag(ifNoneMatch, tag)) return reply.code(304).send();
    return reply.header("content-type", "application/json").send(document);
  });
  // Browsers request it on their own.
  addPage(app, "/favicon.ico", probed, async (_request, reply) => reply.code(204).send());
  addPage(app, "/", admit, async (_request, reply) => reply.redirect("/reference/", 302));
  const errorPaths = addErrorPages(app, { ...options, problems: registry.problems }, admit);
  const documentPaths = addDocumentPages(app, options.documents, admit);
  const referencePaths = await addReferencePage(
    app,
    options.info.title,
    `${OPENAPI_PATH}?errors=raised`,
    admit,
  );

  const confirmationRoutes =
    options.confirmations === undefined ? [] : addConfirmationPages(app, options.confirmations, admit);

  const paths = [
    "/healthz",
    "/readyz",
    "/favicon.ico",
    OPENAPI_PATH,
    "/",
    ...errorPaths,
    ...documentPaths,
    ...referencePaths,
  ];
  return [...paths.map((path) => ({ method: "GET", path }) as const), ...confirmationRoutes];
}

type TaggedDocument = { readonly document: Buffer; readonly tag: string };

function taggedDocument(openApi: OpenApiDocument): TaggedDocument {
  const document = Buffer.from(JSON.stringify(openApi));
  return { document, tag: entityTag(document) };
}

export type PageHandler = (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>;

function addPage(app: FastifyInstance, url: string, onRequest: PageGuard, handler: PageHandler): void {
  app.route({ method: ["GET", "HEAD"], url, onRequest, handler });
}
