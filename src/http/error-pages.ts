import type { FastifyInstance } from "fastify";
import {
  addPage,
  asJson,
  type DocumentPage,
  escapeHtml,
  type HtmlPage,
  type PageGuard,
  proseHtml,
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
  /** A clause, as HTML: what it is a code of. */
  readonly of: string;
};

export type ErrorPagesOptions = {
  readonly problems: ProblemCatalogue;
  /** Codes that have a page beside those of the problems. */
  readonly codeGroups: readonly CodeGroup[];
  /** Documents about the service, linked from each page; they need no API key. */
  readonly documents: readonly DocumentPage[];
};

/** `/errors` lists the codes, `/errors/{code}` explains one: a page for browsers, JSON for everybody else. */
export function addErrorPages(app: FastifyInstance, options: ErrorPagesOptions, admit: PageGuard): void {
  const { codeGroups } = options;
  const problems = Object.entries(options.problems)
    .map(([code, kind]) => explainProblem(code, kind))
    .sort((one, other) => one.status - other.status || (one.code < other.code ? -1 : 1));
  const lists = codeGroups.map(({ name, codes }) => [`${name}s`, codes.map((one) => codeJson(name, one))]);
  const index = indexPage(problems, options);
  const indexJson = asJson({ items: problems, ...Object.fromEntries(lists) });
  addPage(app, "/errors", admit, async (request, reply) => sendPage(request, reply, index, indexJson));
  addPage(app, "/errors/:code", admit, async (request, reply) => {
    const { code } = request.params as { code: string };
    const problem = problems.find((one) => one.code === code);
    const others = codeGroups.flatMap((group) => {
      const found = group.find(code);
      return found === null ? [] : [senseIn(group, found)];
    });
    const own = problem && { json: problem, of: `an error of the API with status ${problem.status}` };
    const [first, ...also] = own === undefined ? others : [own, ...others];
    if (first === undefined) throw new Problem("not_found");
    const json = also.length === 0 ? first.json : { ...first.json, also: also.map((sense) => sense.json) };
    const page = codePage(code, problem?.title ?? code, [first, ...also], options);
    return sendPage(request, reply, page, asJson(json));
  });
}

function senseIn({ name, heading }: CodeGroup, explained: ExplainedCode): Sense {
  const facts = Object.entries(explained.facts)
    .map(([fact, value]) => `; ${escapeHtml(fact)} <code>${escapeHtml(value)}</code>`)
    .join("");
  const lowered = heading.charAt(0).toLowerCase() + heading.slice(1);
  return { json: codeJson(name, explained), of: `one of the ${escapeHtml(lowered)}${facts}` };
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
    ) => `<p><code>${escapeHtml(code)}</code>, ${at === 0 ? "" : "also "}${of}</p>
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

function indexPage(all: readonly ExplainedProblem[], { codeGroups, documents }: ErrorPagesOptions): HtmlPage {
  const links = [
    link("reference/", "Reference"),
    ...documents.map(({ path, title }) => link(path.slice(1), title)),
  ];
  const contents = codeGroups.map(({ name, heading }) => link(`#${name}s`, heading));
  const problems = table(
    ["Status", "Code", "Title", "Meaning"],
    all.map(({ code, status, title, meaning }) => [
      String(status),
      codeLink(code),
      escapeHtml(title),
      proseHtml(meaning),
    ]),
  );
  const groups = codeGroups.map(({ name, heading, about, codes }) => {
    const facts = Object.keys(codes[0]?.facts ?? {});
    const rows = codes.map((one) => [
      codeLink(one.code),
      ...facts.map((fact) => `<code>${escapeHtml(one.facts[fact] ?? "")}</code>`),
      proseHtml(one.meaning),
      proseHtml(one.remedy),
    ]);
    const names = facts.map((fact) => fact.charAt(0).toUpperCase() + fact.slice(1));
    return `<h2 id="${escapeHtml(name)}s">${escapeHtml(heading)}</h2>
<p>${proseHtml(about)}</p>
${table(["Code", ...names, "What happened", "What to do"], rows)}`;
  });
  const more = contents.length === 0 ? "" : `\n<p>Further down: ${contents.join(" · ")}</p>`;
  const body = `<h1>Errors</h1>${more}\n${[problems, ...groups].join("\n")}`;
  return { title: "Errors", links, body };
}

const codeLink = (code: string) =>
  `<a href="errors/${encodeURIComponent(code)}"><code>${escapeHtml(code)}</code></a>`;

const link = (url: string, text: string) => `<a href="${escapeHtml(url)}">${escapeHtml(text)}</a>`;

/** Cells are HTML already. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const headings = head.map((name) => `<th scope="col">${name}</th>`);
  const cells = rows.map((row) => row.map((cell, at) => `<td data-label="${head[at]}">${cell}</td>`));
  const [top = "", ...body] = [headings, ...cells].map((row) => `<tr>${row.join("")}</tr>`);
  return `<table>\n<thead>${top}</thead>\n<tbody>\n${body.join("\n")}\n</tbody>\n</table>`;
}
