import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { entityTag, matchesEntityTag } from "./bytes.ts";
import { addErrorPages, type ErrorPagesOptions } from "./error-pages.ts";
import { addDocumentPages, addPage, escapeHtml, type PageGuard, sendHtml } from "./html-page.ts";
import { buildOpenApiDocument, type OpenApiInfo, type OpenApiOptions } from "./openapi.ts";
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
  const url = `${path}/:token`;
  const tokenOf = ({ params }: FastifyRequest) => (params as { token: string }).token;
  addPage(app, url, admit, async (request, reply) => sendAnswer(reply, await ask(tokenOf(request)), invalid));
  app.post(url, { bodyLimit: FORM_BYTES_MAX, onRequest: admit }, async (request, reply) =>
    sendAnswer(reply, await confirm(tokenOf(request)), invalid),
  );
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
  return sendHtml(reply, { title, body, isNotice: true }, { hasForm: button !== null });
}

/** A short Markdown text for programs that look for one (`/llms.txt`): what this is, and where to read on. */
function overviewOf({ title, description, pages }: OpenApiInfo): string {
  const documents = pages.map(({ path, title: about }) => `- [${about}](${path.slice(1)}.md)`);
  const api = `- [Every operation, as OpenAPI 3.1](${OPENAPI_PATH.slice(1)}?errors=raised)`;
  return [`# ${title}`, "", description.trim(), "", ...documents, api, ""].join("\n");
}

export type PageOptions = Omit<ErrorPagesOptions, "problems"> &
  Omit<OpenApiOptions, "errors"> & {
    /** Rejects while the process is not ready: its database is down, or not migrated. */
    readonly checkReady: () => Promise<void>;
    /** Links that ask a person to confirm something; absent: there are none. */
    readonly confirmations?: Confirmations;
  };

const OPENAPI_PATH = "/v1/openapi.json";
const TEXT = "text/plain; charset=utf-8";

/** Adds what needs no API key: health, the OpenAPI document, what people and programs read, links to confirm. */
export function addPublicPages(
  app: FastifyInstance,
  registry: OperationRegistry,
  options: PageOptions,
  guards: RequestGuards,
): void {
  const probed = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    beginRequest(request, "page");
    guards.guardProbe(request, reply);
  };
  const sendOk = (reply: FastifyReply) =>
    reply.header("content-type", "application/json").send(Buffer.from('{"status":"ok"}'));
  addPage(app, "/healthz", probed, async (_request, reply) => sendOk(reply));
  addPage(app, "/readyz", probed, async (_request, reply) => {
    await options.checkReady();
    return sendOk(reply);
  });

  const admit = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    beginRequest(request, "page");
    await guards.guardPublic(request, reply);
  };
  const buildDocument = (errors: "all" | "raised") => {
    const document = Buffer.from(JSON.stringify(buildOpenApiDocument(registry, { ...options, errors })));
    return { document, tag: entityTag(document) };
  };
  const documents: { all?: ReturnType<typeof buildDocument>; raised?: ReturnType<typeof buildDocument> } = {};
  addPage(app, OPENAPI_PATH, admit, async (request, reply) => {
    const errors = (request.query as { errors?: unknown }).errors === "raised" ? "raised" : "all";
    // Built when it is first asked for: a start does not wait for what few read.
    documents[errors] ??= buildDocument(errors);
    const { document, tag } = documents[errors];
    reply.headers({ etag: tag, "cache-control": "no-cache" });
    if (matchesEntityTag(request.headers["if-none-match"], tag)) return reply.code(304).send();
    return reply.header("content-type", "application/json").send(document);
  });
  // Browsers request it on their own.
  addPage(app, "/favicon.ico", probed, async (_request, reply) => reply.code(204).send());
  addPage(app, "/", admit, async (_request, reply) => reply.redirect("/reference/", 302));
  addErrorPages(app, { ...options, problems: registry.problems }, admit);
  addDocumentPages(app, options.documents, admit);
  const overview = Buffer.from(overviewOf(options.info));
  addPage(app, "/llms.txt", admit, async (_request, reply) =>
    reply.headers({ "cache-control": "public, max-age=300", "content-type": TEXT }).send(overview),
  );
  addReferencePage(app, options.info.title, `${OPENAPI_PATH}?errors=raised`, admit);
  if (options.confirmations !== undefined) addConfirmationPages(app, options.confirmations, admit);
}
