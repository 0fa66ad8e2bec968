import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { entityTag, matchesEntityTag } from "./bytes.ts";
import { addErrorPages, type CodeGroup } from "./error-pages.ts";
import { addDocumentPages, type DocumentPage, escapeHtml, type PageGuard, sendHtml } from "./html-page.ts";
import { buildOpenApiDocument, type OpenApiDocument, type OpenApiInfo } from "./openapi.ts";
import type { OperationRegistry } from "./operation-registry.ts";
import { addReferencePage } from "./reference-page.ts";
import { beginRequest } from "./request-context.ts";
import type { RequestGuards } from "./request-guards.ts";

/** What a link leads to, as text. */
export type ConfirmationPage = {
  readonly title: string;
  readonly message: string;
  /** What the button says; null: there is nothing to press. */
  readonly button: string | null;
};

/** Links that a person was sent. Null: the link is not valid (any more). */
export type Confirmations = {
  /** The token follows: `/notices/confirm`. */
  readonly path: `/${string}`;
  /** What is asked. Changes nothing: scanners of mails follow every link. */
  readonly ask: (token: string) => Promise<ConfirmationPage | null>;
  /** The button was pressed. */
  readonly confirm: (token: string) => Promise<ConfirmationPage | null>;
  /** Shown for a link that is not valid. */
  readonly invalid: ConfirmationPage;
};

/** `GET {path}/{token}` shows a page with a button, which sends `POST {path}/{token}`. */
function addConfirmationPages(
  app: FastifyInstance,
  { path, ask, confirm, invalid }: Confirmations,
  admit: PageGuard,
) {
  type WithToken = { Params: { token: string } };
  const url = `${path}/:token`;
  app.route<WithToken>({
    method: ["GET", "HEAD"],
    url,
    onRequest: admit,
    handler: async ({ params }, reply) => sendAnswer(reply, await ask(params.token), invalid),
  });
  app.route<WithToken>({
    method: "POST",
    url,
    bodyLimit: FORM_BYTES_MAX,
    onRequest: admit,
    handler: async ({ params }, reply) => sendAnswer(reply, await confirm(params.token), invalid),
  });
  const shown = `${path}/{token}`;
  return [
    { method: "GET", path: shown },
    { method: "POST", path: shown },
  ] as const;
}

/** The form has no fields: the link is all it takes. */
const FORM_BYTES_MAX = 1_024;

function sendAnswer(
  reply: FastifyReply,
  page: ConfirmationPage | null,
  invalid: ConfirmationPage,
): FastifyReply {
  const { title, message, button } = page ?? invalid;
  // Without an action a form is sent to its own page.
  const form =
    button === null
      ? ""
      : `\n<form method="post"><button type="submit">${escapeHtml(button)}</button></form>`;
  reply.code(page === null ? 404 : 200).headers({
    "cache-control": "no-store",
    // The link is a secret: no other site is told where its visitor came from.
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
  });
  const body = `<h1>${escapeHtml(title)}</h1>\n<p>${escapeHtml(message)}</p>${form}`;
  return sendHtml(reply, { title, body }, { hasForm: button !== null });
}

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
