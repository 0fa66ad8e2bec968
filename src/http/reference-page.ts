import { hash } from "node:crypto";
import createFastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { type CompressedBytes, compressOnce, inSlices } from "./bytes.ts";
import { PALETTE, type PageGuard } from "./html-page.ts";
import { invalidRequest } from "./problems.ts";

const REFERENCE_PATH = "/reference";
const PAGE_PATH = `${REFERENCE_PATH}/`;
const SCRIPT_PATH = `${REFERENCE_PATH}/js/scalar.js`;

/**
 * Adds the reference, which renders the OpenAPI document in the browser. The script comes from this server, and the
 * page's policy allows no other origin.
 *
 * The library is loaded for the first who asks, into an app of its own, as routes cannot be added to one that listens:
 * it keeps its 4 MB script in memory twice, 17 MB in all, and most processes are never asked.
 */
export function addReferencePage(
  app: FastifyInstance,
  title: string,
  documentPath: string,
  admit: PageGuard,
): void {
  let loaded: Promise<FastifyInstance> | null = null;
  let script: Promise<CompressedBytes> | null = null;
  async function render(path: string, host: string): Promise<Buffer> {
    loaded ??= loadLibrary(title, documentPath);
    const { rawPayload } = await (await loaded).inject({ url: path, headers: { host } });
    return rawPayload;
  }
  const onRequest = async (request: FastifyRequest, reply: FastifyReply) => {
    await admit(request, reply);
    refuseHost(request);
  };

  app.get(REFERENCE_PATH, { onRequest }, (_request, reply) => reply.redirect(PAGE_PATH, 301));
  app.get(PAGE_PATH, { onRequest }, async (request, reply) => {
    const html = (await render(PAGE_PATH, request.host)).toString();
    reply.type("text/html; charset=utf-8");
    reply.headers({ "cache-control": "no-cache", "content-security-policy": policyOf(html) });
    return html;
  });
  app.get(SCRIPT_PATH, { onRequest }, async (request, reply) => {
    script ??= render(SCRIPT_PATH, request.host).then(compressOnce);
    const { headers, bytes } = (await script)(request.headers["accept-encoding"]);
    reply.type("application/javascript; charset=utf-8");
    reply.headers({ "cache-control": "public, max-age=3600", ...headers });
    return inSlices(bytes);
  });
}

async function loadLibrary(title: string, documentPath: string): Promise<FastifyInstance> {
  const { default: apiReference } = await import("@scalar/fastify-api-reference");
  const pages = createFastify();
  await pages.register(apiReference, {
    routePrefix: REFERENCE_PATH,
    configuration: {
      pageTitle: title,
      url: documentPath,
      telemetry: false,
      withDefaultFonts: false,
      customCss: STYLE,
      showDeveloperTools: "never",
      hideClientButton: true,
      agent: { disabled: true },
      mcp: { disabled: true },
      persistAuth: false,
      documentDownloadType: "json",
      operationTitleSource: "summary",
    },
  });
  return pages;
}

/** Our colours and sizes, by the library's own variables. */
const STYLE = `:root { ${PALETTE} }
.light-mode, .dark-mode {
  --scalar-background-1: var(--paper);
  --scalar-background-2: var(--ground);
  --scalar-background-3: var(--line);
  --scalar-border-color: var(--line);
  --scalar-color-1: var(--ink);
  --scalar-color-2: var(--soft);
  --scalar-color-3: var(--soft);
  --scalar-color-accent: var(--accent);
  --scalar-color-blue: var(--accent);
  --scalar-color-green: var(--good);
  --scalar-color-red: var(--bad);
  --scalar-color-orange: var(--warn);
  --scalar-link-color: var(--accent);
  --scalar-button-1: var(--accent);
  --scalar-button-1-hover: var(--accent);
  --scalar-button-1-color: var(--accent-ink);
  --scalar-font: var(--sans);
  --scalar-font-code: var(--mono);
  --scalar-heading-1: 20px;
  --scalar-heading-2: 16px;
}`;

/** Allows the page's inline scripts by their digests, and the one from this server. */
function policyOf(html: string): string {
  const inline = [...html.matchAll(/<script(?![^>]*\ssrc=)[^>]*>([\s\S]*?)<\/script>/g)];
  const digests = inline.map(([, script = ""]) => `'sha256-${hash("sha256", script, "base64")}'`);
  return [
    "default-src 'none'",
    `script-src 'self' ${digests.join(" ")}`.trim(),
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}

/** The library builds URLs from the Host header and fails on an invalid one. */
function refuseHost({ hostname }: FastifyRequest): void {
  if (!URL.canParse(`http://${hostname}/`)) throw invalidRequest("header.host", "Not a valid host name.");
}
