import { hash } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** Counts a request for a page and begins it, or refuses it. */
export type PageGuard = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

export type PageHandler = (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>;

export function addPage(app: FastifyInstance, url: string, onRequest: PageGuard, handler: PageHandler): void {
  app.route({ method: ["GET", "HEAD"], url, onRequest, handler });
}

/** What a page shows. */
export type HtmlPage = {
  readonly title: string;
  /** As HTML. */
  readonly body: string;
  /** To other pages of ours, as HTML. */
  readonly links?: readonly string[];
  /** It is a few sentences, in a box. */
  readonly isNotice?: boolean;
};

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

/** The same prose as Markdown, also in a table: what is between backticks is code, and nothing else has a meaning. */
export function proseMarkdown(text: string): string {
  const meant = /[\\`*[\]<|]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)/g;
  const parts = text.split(/(`[^`]+`)/);
  return parts.map((part, at) => (at % 2 === 1 ? part : part.replace(meant, "\\$&"))).join("");
}

/** For who asks for Markdown by its address, browser or not. */
export function sendMarkdown(reply: FastifyReply, text: string): FastifyReply {
  reply.headers({ "cache-control": "public, max-age=300", "content-type": MARKDOWN });
  return reply.send(Buffer.from(text));
}

const MARKDOWN = "text/markdown; charset=utf-8";

/** Those of assets/console.css, whose scale of texts and spaces this style has, too: a test compares them. */
export const PALETTE = `--paper: light-dark(#ffffff, #171b21);
  --ground: light-dark(#f5f6f8, #0f1216);
  --line: light-dark(#dfe3e8, #2c333c);
  --ink: light-dark(#1a2027, #e6eaef);
  --soft: light-dark(#56616d, #a2adb9);
  --accent: light-dark(#1457c9, #8ab4ff);
  --accent-ink: light-dark(#ffffff, #0b1a33);
  --good: light-dark(#0a6b3d, #5fd39a);
  --bad: light-dark(#b3261e, #ff9c94);
  --warn: light-dark(#8a5300, #f2be6b);
  --sans: system-ui, -apple-system, "Segoe UI", sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, monospace;`;

/**
 * Only code and tables scroll, by themselves: never the page. No word is broken, but on narrow screens: there a row
 * whose cells have labels is a block.
 */
const STYLE = `
:root {
  color-scheme: light dark;
  ${PALETTE}
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: .875rem/1.25rem var(--sans); }
header { background: var(--paper); border-bottom: 1px solid var(--line); padding: .625rem 1rem; }
header nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; max-width: 62rem; margin: 0 auto; }
main { max-width: 64rem; margin: 0 auto; padding: 1rem 1rem 3rem; overflow-wrap: break-word; }
h1, h2, h3, h4, h5, h6 { margin: 1.5rem 0 .5rem; font-size: .875rem; }
h1 { margin-top: 0; font-size: 1.25rem; line-height: 1.75rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; }
p, ul, ol, blockquote { max-width: 46rem; margin: .5rem 0; }
ul, ol { padding-left: 1.5rem; }
blockquote { padding-left: .75rem; border-left: 3px solid var(--line); color: var(--soft); }
hr { border: 0; border-top: 1px solid var(--line); }
a { color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 2px; }
code { font: .93em/1.4 var(--mono); }
pre, table { margin: .75rem 0; background: var(--paper); border: 1px solid var(--line); border-radius: 8px; }
pre { overflow-x: auto; padding: .5rem .75rem; }
table { display: block; width: fit-content; max-width: 100%; overflow-x: auto; border-spacing: 0; }
th { text-align: left; font-size: .75rem; color: var(--soft); white-space: nowrap; }
th, td { padding: .375rem .75rem; vertical-align: top; }
td { border-top: 1px solid var(--line); }
button, input { font: inherit; padding: .3125rem .75rem; border: 1px solid var(--soft); border-radius: 6px; }
input { width: 16rem; max-width: 100%; background: var(--paper); color: var(--ink); }
button { background: var(--accent); border-color: var(--accent); color: var(--accent-ink); font-weight: 600; }
.notice { max-width: 36rem; margin: 3rem auto; padding: 1.5rem; background: var(--paper); }
.notice { border: 1px solid var(--line); border-radius: 8px; }
#fault { color: var(--bad); }
@media (max-width: 45rem) {
  main { padding: .75rem .75rem 3rem; }
  .notice { margin: 1rem .75rem; padding: 1rem; }
  table:has([data-label]) { width: auto; }
  table:has([data-label]) :is(tbody, tr, td) { display: block; }
  table:has([data-label]) thead { display: none; }
  tr:has([data-label]) + tr { border-top: 1px solid var(--line); }
  tr:has([data-label]) { padding: .375rem .75rem; }
  td[data-label] { padding: .0625rem 0; border: 0; overflow-wrap: anywhere; }
  td[data-label]::before { content: attr(data-label) ": "; font-size: .75rem; color: var(--soft); }
}
`;

const STYLE_DIGEST = hash("sha256", STYLE, "base64");

function whole({ title, body, links = [], isNotice = false }: HtmlPage): string {
  const header =
    links.length === 0 ? "" : `<header><nav aria-label="Pages">${links.join("\n")}</nav></header>\n`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${STYLE}</style>
</head>
<body>
${header}<main${isNotice ? ' class="notice"' : ""}>
${body}
</main>
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
    const text = { type: MARKDOWN, bytes: Buffer.from(markdown) };
    let body: string | undefined;
    const links = [`<a href="reference/">Reference</a>`, `<a href="errors">Errors</a>`];
    addPage(app, path, admit, async (request, reply) => {
      body ??= await html();
      return sendPage(request, reply, { title, body, links }, text);
    });
    addPage(app, `${path}.md`, admit, async (_request, reply) => sendMarkdown(reply, markdown));
  }
}
