import { hash } from "node:crypto";

import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Problem, type ProblemCatalogue, type ProblemKind } from "./problems.ts";

type Explained = {
  readonly code: string;
  readonly status: number;
  readonly title: string;
  readonly meaning: string;
  readonly remedy: string;
};

/** `/errors` lists the codes, `/errors/{code}` explains one: a page for browsers, JSON for everybody else. */
export function addErrorPages(
  app: FastifyInstance,
  problems: ProblemCatalogue,
  admit: (request: FastifyRequest, reply: FastifyReply) => Promise<void>,
): readonly string[] {
  const explained = new Map(Object.entries(problems).map(([code, kind]) => [code, explain(code, kind)]));
  const all = [...explained.values()].sort(
    (one, other) => one.status - other.status || (one.code < other.code ? -1 : 1),
  );

  app.route({
    method: ["GET", "HEAD"],
    url: "/errors",
    onRequest: admit,
    handler: async (request, reply) => sendPage(request, reply, { items: all }, () => indexPage(all)),
  });
  app.route<{ Params: { code: string } }>({
    method: ["GET", "HEAD"],
    url: "/errors/:code",
    onRequest: admit,
    handler: async (request, reply) => {
      const error = explained.get(request.params.code);
      if (!error) throw new Problem("not_found");
      return sendPage(request, reply, error, () => errorPage(error));
    },
  });
  return ["/errors", "/errors/{code}"];
}

function explain(code: string, { status, title, meaning, remedy }: ProblemKind): Explained {
  return { code, status, title, meaning, remedy };
}

function sendPage(
  request: FastifyRequest,
  reply: FastifyReply,
  json: unknown,
  html: () => string,
): FastifyReply {
  const wantsHtml = /\btext\/html\b/i.test(request.headers.accept ?? "");
  reply.headers({ vary: "accept", "cache-control": "public, max-age=300" });
  if (!wantsHtml) {
    return reply.header("content-type", "application/json").send(Buffer.from(JSON.stringify(json)));
  }
  reply.headers({
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": STATIC_PAGE_POLICY,
  });
  return reply.send(Buffer.from(html()));
}

function errorPage({ code, status, title, meaning, remedy }: Explained): string {
  const body = `<p><a href="../reference/">Reference</a> · <a href="../errors">Errors</a></p>
<h1>${escapeHtml(title)}</h1>
<p><code>${escapeHtml(code)}</code>, status ${status}</p>
<h2>What happened</h2>
<p>${proseHtml(meaning)}</p>
<h2>What to do</h2>
<p>${proseHtml(remedy)}</p>`;
  return htmlPage(`${title} (${code})`, body);
}

function indexPage(all: readonly Explained[]): string {
  const rows = all.map(({ code, status, title, meaning }) => {
    const link = `<a href="errors/${encodeURIComponent(code)}"><code>${escapeHtml(code)}</code></a>`;
    return `<tr><td>${status}</td><td>${link}</td><td>${escapeHtml(title)}</td><td>${proseHtml(meaning)}</td></tr>`;
  });
  const head = "<tr><th>Status</th><th>Code</th><th>Title</th><th>Meaning</th></tr>";
  return htmlPage(
    "Errors",
    `<p><a href="reference/">Reference</a></p>\n<h1>Errors</h1>\n<table>\n${head}\n${rows.join("\n")}\n</table>`,
  );
}

/** Text that is safe between tags and between double quotes. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** The same, with what stands between backticks set as code. */
function proseHtml(text: string): string {
  return escapeHtml(text).replace(/`([^`]+)`/g, "<code>$1</code>");
}

const STYLE = `
:root { color-scheme: light dark; }
body { font: 1rem/1.6 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1.5rem; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .4rem 1rem .4rem 0; border-bottom: 1px solid #8884; }
code { font-family: ui-monospace, monospace; }
`;

/** The policy of our own pages: their one style, and nothing from anywhere. */
export const STATIC_PAGE_POLICY = pagePolicy("'none'");
/** The same for a page with a form that is sent to this server. */
export const FORM_PAGE_POLICY = pagePolicy("'self'");

function pagePolicy(formAction: "'none'" | "'self'"): string {
  return (
    `default-src 'none'; style-src 'sha256-${hash("sha256", STYLE, "base64")}'; ` +
    `base-uri 'none'; form-action ${formAction}; frame-ancestors 'none'`
  );
}

/** A whole page around `body`, which is HTML already. */
export function htmlPage(title: string, body: string): string {
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
