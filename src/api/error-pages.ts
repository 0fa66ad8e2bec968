import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { escapeHtml, htmlPage, proseHtml, STATIC_PAGE_POLICY } from "./html.ts";
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
