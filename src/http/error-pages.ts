import type { FastifyInstance } from "fastify";
import {
  addPage,
  asJson,
  type DocumentPage,
  escapeHtml,
  type HtmlPage,
  type PageGuard,
  proseHtml,
  proseMarkdown,
  sendMarkdown,
  sendPage,
} from "./html-page.ts";
import { type ExplainedProblem, explainProblem, Problem, type ProblemCatalogue } from "./problems.ts";

/** A code that is explained beside the problems', such as one that a log holds. */
export type ExplainedCode = {
  readonly code: string;
  /** What else there is to say of it, by name: `outcome`. */
  readonly facts: Readonly<Record<string, string>>;
  readonly meaning: string;
  readonly remedy: string;
};

export type CodeGroup = {
  /** Of one of them (`attempt`); with an `s`, the member of the list. */
  readonly name: string;
  readonly heading: string;
  /** What these codes are, as a sentence. */
  readonly about: string;
  readonly codes: readonly ExplainedCode[];
  /** Also codes that are not listed because they are computed; null: none of these. */
  find(code: string): ExplainedCode | null;
};

/** What a code means: a problem's and, say, an attempt's at once. */
type Sense = {
  readonly json: { readonly meaning: string; readonly remedy: string };
  /** A clause in prose: what it is a code of. */
  readonly of: string;
};

export type ErrorPagesOptions = {
  readonly problems: ProblemCatalogue;
  /** Codes that have a page beside those of the problems. */
  readonly codeGroups: readonly CodeGroup[];
  /** Documents about the service, linked from each page; they need no API key. */
  readonly documents: readonly DocumentPage[];
};

/**
 * `/errors` lists the codes, `/errors/{code}` explains one: a page for browsers, JSON for everybody else, and Markdown
 * where `.md` is put behind.
 */
export function addErrorPages(app: FastifyInstance, options: ErrorPagesOptions, admit: PageGuard): void {
  const { codeGroups } = options;
  const problems = Object.entries(options.problems)
    .map(([code, kind]) => explainProblem(code, kind))
    .sort((one, other) => one.status - other.status || (one.code < other.code ? -1 : 1));
  const lists = codeGroups.map(({ name, codes }) => [`${name}s`, codes.map((one) => codeJson(name, one))]);
  const parts = [problemsPart(problems), ...codeGroups.map(groupPart)];
  const index = indexPage(parts, options);
  const indexJson = asJson({ items: problems, ...Object.fromEntries(lists) });
  addPage(app, "/errors", admit, async (request, reply) => sendPage(request, reply, index, indexJson));
  addPage(app, "/errors.md", admit, async (_request, reply) => sendMarkdown(reply, indexMarkdown(parts)));
  addPage(app, "/errors/:code", admit, async (request, reply) => {
    const { code: asked } = request.params as { code: string };
    const isMarkdown = asked.endsWith(".md");
    const code = isMarkdown ? asked.slice(0, -".md".length) : asked;
    const problem = problems.find((one) => one.code === code);
    const others = codeGroups.flatMap((group) => {
      const found = group.find(code);
      return found === null ? [] : [senseIn(group, found)];
    });
    const own = problem && { json: problem, of: `an error of the API with status ${problem.status}` };
    const [first, ...also] = own === undefined ? others : [own, ...others];
    if (first === undefined) throw new Problem("not_found");
    const title = problem?.title ?? code;
    if (isMarkdown) return sendMarkdown(reply, codeMarkdown(code, title, [first, ...also]));
    const json = also.length === 0 ? first.json : { ...first.json, also: also.map((sense) => sense.json) };
    const page = codePage(code, title, [first, ...also], options);
    return sendPage(request, reply, page, asJson(json));
  });
}

function senseIn({ name, heading }: CodeGroup, explained: ExplainedCode): Sense {
  const facts = Object.entries(explained.facts)
    .map(([fact, value]) => `; ${fact} \`${value}\``)
    .join("");
  const lowered = heading.charAt(0).toLowerCase() + heading.slice(1);
  return { json: codeJson(name, explained), of: `one of the ${lowered}${facts}` };
}

const codeJson = (kind: string, { code, facts, meaning, remedy }: ExplainedCode) => ({
  code,
  kind,
  ...facts,
  meaning,
  remedy,
});

function codePage(
  code: string,
  title: string,
  senses: readonly Sense[],
  { documents }: ErrorPagesOptions,
): HtmlPage {
  const links = [link("../reference/", "Reference"), link("../errors", "Errors")];
  const more = documents.map(({ path, title: name }) => link(`..${path}`, name));
  const explained = senses.map(
    (
      { of, json: { meaning, remedy } },
      at,
    ) => `<p><code>${escapeHtml(code)}</code>, ${at === 0 ? "" : "also "}${proseHtml(of)}</p>
<h2>What happened</h2>
<p>${proseHtml(meaning)}</p>
<h2>What to do</h2>
<p>${proseHtml(remedy)}</p>`,
  );
  return {
    title: title === code ? code : `${title} (${code})`,
    links: [...links, ...more],
    body: [`<h1>${escapeHtml(title)}</h1>`, ...explained].join("\n"),
  };
}

function codeMarkdown(code: string, title: string, senses: readonly Sense[]): string {
  const explained = senses.flatMap(({ of, json: { meaning, remedy } }, at) => [
    `\`${code}\`, ${at === 0 ? "" : "also "}${proseMarkdown(of)}`,
    `## What happened\n\n${proseMarkdown(meaning)}`,
    `## What to do\n\n${proseMarkdown(remedy)}`,
  ]);
  return [`# ${proseMarkdown(title)}`, ...explained, "[All errors](../errors.md)\n"].join("\n\n");
}

/** A table of the list of codes, in prose; the cells below "Code" are codes. */
type IndexPart = {
  /** Null: the codes of the problems, which come first. */
  readonly about: { readonly id: string; readonly heading: string; readonly text: string } | null;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
};

function problemsPart(all: readonly ExplainedProblem[]): IndexPart {
  const rows = all.map(({ code, status, title, meaning }) => [String(status), code, title, meaning]);
  return { about: null, head: ["Status", CODE, "Title", "Meaning"], rows };
}

function groupPart({ name, heading, about: text, codes }: CodeGroup): IndexPart {
  const facts = Object.keys(codes[0]?.facts ?? {});
  const rows = codes.map((one) => [
    one.code,
    ...facts.map((fact) => `\`${one.facts[fact] ?? ""}\``),
    one.meaning,
    one.remedy,
  ]);
  const names = facts.map((fact) => fact.charAt(0).toUpperCase() + fact.slice(1));
  const head = [CODE, ...names, "What happened", "What to do"];
  return { about: { id: `${name}s`, heading, text }, head, rows };
}

const CODE = "Code";

function indexPage(parts: readonly IndexPart[], { documents }: ErrorPagesOptions): HtmlPage {
  const links = [
    link("reference/", "Reference"),
    ...documents.map(({ path, title }) => link(path.slice(1), title)),
  ];
  const contents = parts.flatMap(({ about }) =>
    about === null ? [] : [link(`#${about.id}`, about.heading)],
  );
  const more = contents.length === 0 ? "" : `\n<p>Further down: ${contents.join(" · ")}</p>`;
  const tables = parts.map(({ about, head, rows }) => {
    const table = tableHtml(head, rows);
    if (about === null) return table;
    const heading = `<h2 id="${escapeHtml(about.id)}">${escapeHtml(about.heading)}</h2>`;
    return `${heading}\n<p>${proseHtml(about.text)}</p>\n${table}`;
  });
  return { title: "Errors", links, body: `<h1>Errors</h1>${more}\n${tables.join("\n")}` };
}

function indexMarkdown(parts: readonly IndexPart[]): string {
  const tables = parts.map(({ about, head, rows }) => {
    const cells = rows.map((row) =>
      row.map((cell, at) =>
        head[at] === CODE ? `[\`${cell}\`](errors/${encodeURIComponent(cell)}.md)` : proseMarkdown(cell),
      ),
    );
    const lines = [head, head.map(() => "---"), ...cells].map((row) => `| ${row.join(" | ")} |`);
    const before = about === null ? "" : `## ${about.heading}\n\n${proseMarkdown(about.text)}\n\n`;
    return `${before}${lines.join("\n")}\n`;
  });
  return ["# Errors", ...tables].join("\n\n");
}

const codeLink = (code: string) =>
  `<a href="errors/${encodeURIComponent(code)}"><code>${escapeHtml(code)}</code></a>`;

const link = (url: string, text: string) => `<a href="${escapeHtml(url)}">${escapeHtml(text)}</a>`;

function tableHtml(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const headings = head.map((name) => `<th scope="col">${name}</th>`);
  const cells = rows.map((row) =>
    row.map((cell, at) => {
      const shown = head[at] === CODE ? codeLink(cell) : proseHtml(cell);
      return `<td data-label="${head[at]}">${shown}</td>`;
    }),
  );
  const [top = "", ...body] = [headings, ...cells].map((row) => `<tr>${row.join("")}</tr>`);
  return `<table>\n<thead>${top}</thead>\n<tbody>\n${body.join("\n")}\n</tbody>\n</table>`;
}
