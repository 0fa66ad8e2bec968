import { hash } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** Counts a request for a page and begins it, or refuses it. */
export type PageGuard = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

export type PageHandler = (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>;

export function addPage(app: FastifyInstance, url: string, onRequest: PageGuard, handler: PageHandler): void {
  app.route({ method: ["GET", "HEAD"], url, onRequest, handler });
}

/** What a page shows: its title, and its body as HTML. */
export type HtmlPage = { readonly title: string; readonly body: string };

/** The same for everybody else: bytes and their type. */
export type OtherForm = { readonly type: string; readonly bytes: Buffer };

/** Sends the page to browsers, and the other form to who does not ask for HTML. */
export function sendPage(
  request: FastifyRequest,
  reply: FastifyReply,
  page: HtmlPage,
  other: OtherForm,
): FastifyReply {
  reply.headers({ vary: "accept", "cache-control": "public, max-age=300" });
  if (!/\btext\/html\b/i.test(request.headers.accept ?? "")) {
    return reply.header("content-type", other.type).send(other.bytes);
  }
  return sendHtml(reply, page);
}

/**
 * Sends the page to whoever asked.
 * @param options.hasForm it has a form, which can be sent to this server
 * @param options.isSandboxed others wrote it: whatever it holds, it is of no origin and runs nothing
 */
export function sendHtml(
  reply: FastifyReply,
  page: HtmlPage,
  options: { readonly hasForm?: boolean; readonly isSandboxed?: boolean } = {},
): FastifyReply {
  const { hasForm = false, isSandboxed = false } = options;
  const sandbox = isSandboxed ? `sandbox${hasForm ? " allow-forms" : ""}; ` : "";
  reply.headers({
    "content-type": "text/html; charset=utf-8",
    // The one style of our pages, and nothing from anywhere; forms are sent to this server.
    "content-security-policy":
      `${sandbox}default-src 'none'; style-src 'sha256-${STYLE_DIGEST}'; base-uri 'none'; ` +
      `form-action ${hasForm ? "'self'" : "'none'"}; frame-ancestors 'none'`,
  });
  return reply.send(Buffer.from(whole(page)));
}

export function asJson(value: unknown): OtherForm {
  return { type: "application/json", bytes: Buffer.from(JSON.stringify(value)) };
}

/** Text that is safe between tags and between double quotes. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** The same, with what stands between backticks set as code. */
export function proseHtml(text: string): string {
  return escapeHtml(text).replace(/`([^`]+)`/g, "<code>$1</code>");
}

/** On narrow screens a row is a block, and only code scrolls, by itself: never the page. */
const STYLE = `
:root { color-scheme: light dark; }
body { font: 1rem/1.6 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1.5rem; }
body { overflow-wrap: anywhere; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .4rem 1rem .4rem 0; border-bottom: 1px solid #8884; }
code { font-family: ui-monospace, monospace; font-size: .95em; }
td:first-child > code, td:nth-child(2) > a > code { overflow-wrap: normal; }
pre { overflow-x: auto; padding: .8rem 1rem; border: 1px solid #8884; border-radius: .3rem; line-height: 1.45; }
pre code { overflow-wrap: normal; }
@media (max-width: 45rem) {
  body { margin: 1.5rem auto; padding: 0 1rem; }
  table, tbody, tr, td { display: block; }
  thead, th { display: none; }
  tr { padding: .6rem 0; border-bottom: 1px solid #8884; }
  td { padding: 0; border: 0; }
  td:first-child > code, td:nth-child(2) > a > code { overflow-wrap: anywhere; }
}
`;

const STYLE_DIGEST = hash("sha256", STYLE, "base64");

function whole({ title, body }: HtmlPage): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${STYLE}</style>
</head>
<body>
${body}
</body>
</html>
`;
}

/** A document about the service, such as a guide. */
export type DocumentPage = {
  /** A single segment, so that the links of all pages stay relative. */
  readonly path: `/${string}`;
  readonly title: string;
  /** The body of the page, HTML that is right as it is; made when it is first asked for. */
  readonly html: () => Promise<string>;
  /** For who does not ask for HTML. */
  readonly markdown: string;
};

export function addDocumentPages(
  app: FastifyInstance,
  documents: readonly DocumentPage[],
  admit: PageGuard,
): void {
  for (const { path, title, html, markdown } of documents) {
    const text = { type: "text/markdown; charset=utf-8", bytes: Buffer.from(markdown) };
    let body: string | undefined;
    const links = `<p><a href="reference/">Reference</a> · <a href="errors">Errors</a></p>`;
    addPage(app, path, admit, async (request, reply) => {
      body ??= `${links}\n${await html()}`;
      return sendPage(request, reply, { title, body }, text);
    });
  }
}
