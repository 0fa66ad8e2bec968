import type { FastifyInstance } from "fastify";
import {
  asJson,
  type DocumentPage,
  escapeHtml,
  type HtmlPage,
  type PageGuard,
  proseHtml,
  sendPage,
} from "./html-page.ts";
import { Problem, type ProblemCatalogue, type ProblemKind } from "./problems.ts";

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

type ExplainedProblem = {
  readonly code: string;
  readonly status: number;
  readonly title: string;
  readonly meaning: string;
  readonly remedy: string;
};

/** A code may be a problem's and, say, an attempt's at once. */
type Senses = {
  readonly problem: ExplainedProblem | null;
  readonly others: readonly { readonly group: CodeGroup; readonly explained: ExplainedCode }[];
};

export type ErrorPagesOptions = {
  readonly problems: ProblemCatalogue;
  readonly codeGroups: readonly CodeGroup[];
  /** Linked from each page. */
  readonly documents: readonly DocumentPage[];
};

/** `/errors` lists the codes, `/errors/{code}` explains one: a page for browsers, JSON for everybody else. */
export function addErrorPages(
  app: FastifyInstance,
  options: ErrorPagesOptions,
  admit: PageGuard,
): readonly string[] {
  const { problems, codeGroups } = options;
  const explained = new Map(Object.entries(problems).map(([code, kind]) => [code, explain(code, kind)]));
  const all = [...explained.values()].sort(
    (one, other) => one.status - other.status || (one.code < other.code ? -1 : 1),
  );
  const lists = codeGroups.map(({ name, codes }) => [`${name}s`, codes.map((one) => codeJson(name, one))]);
  const index = { page: indexPage(all, options), json: asJson({ items: all, ...Object.fromEntries(lists) }) };

  function sensesOf(code: string): Senses {
    const others = codeGroups.flatMap((group) => {
      const found = group.find(code);
      return found === null ? [] : [{ group, explained: found }];
    });
    return { problem: explained.get(code) ?? null, others };
  }

  app.route({
    method: ["GET", "HEAD"],
    url: "/errors",
    onRequest: admit,
    handler: async (request, reply) => sendPage(request, reply, index.page, index.json),
  });
  app.route<{ Params: { code: string } }>({
    method: ["GET", "HEAD"],
    url: "/errors/:code",
    onRequest: admit,
    handler: async (request, reply) => {
      const senses = sensesOf(request.params.code);
      if (senses.problem === null && senses.others.length === 0) throw new Problem("not_found");
      return sendPage(request, reply, codePage(senses, options), asJson(sensesJson(senses)));
    },
  });
  return ["/errors", "/errors/{code}"];
}

function explain(code: string, { status, title, meaning, remedy }: ProblemKind): ExplainedProblem {
  return { code, status, title, meaning, remedy };
}

const codeJson = (kind: string, { code, facts, meaning, remedy }: ExplainedCode) => ({
  code,
  kind,
  ...facts,
  meaning,
  remedy,
});

/** The first sense, and the others in `also`. */
function sensesJson({ problem, others }: Senses): object {
  const codes = others.map(({ group, explained }) => codeJson(group.name, explained));
  const [first, ...also] = problem === null ? codes : [problem, ...codes];
  return also.length === 0 ? first! : { ...first, also };
}

function codePage({ problem, others }: Senses, { documents }: ErrorPagesOptions): HtmlPage {
  const code = problem?.code ?? others[0]!.explained.code;
  const title = problem?.title ?? code;
  const aboutProblem =
    problem === null
      ? []
      : [
          `<p><code>${escapeHtml(code)}</code>, an error of the API with status ${problem.status}</p>`,
          causeAndRemedy(problem),
        ];
  const aboutOthers = others.flatMap(({ group, explained }, at) => {
    const also = at === 0 && problem === null ? "" : "also ";
    const where = `${also}one of the ${escapeHtml(lowered(group.heading))}${factsText(explained)}`;
    return [`<p><code>${escapeHtml(code)}</code>, ${where}</p>`, causeAndRemedy(explained)];
  });
  const links = [link("../reference/", "Reference"), link("../errors", "Errors")];
  const more = documents.map(({ path, title: name }) => link(`..${path}`, name));
  const body = [`<p>${[...links, ...more].join(" · ")}</p>`, `<h1>${escapeHtml(title)}</h1>`];
  return {
    title: title === code ? code : `${title} (${code})`,
    body: [...body, ...aboutProblem, ...aboutOthers].join("\n"),
  };
}

function causeAndRemedy({ meaning, remedy }: { readonly meaning: string; readonly remedy: string }): string {
  return `<h2>What happened</h2>
<p>${proseHtml(meaning)}</p>
<h2>What to do</h2>
<p>${proseHtml(remedy)}</p>`;
}

function factsText({ facts }: ExplainedCode): string {
  return Object.entries(facts)
    .map(([name, value]) => `; ${escapeHtml(name)} <code>${escapeHtml(value)}</code>`)
    .join("");
}

const lowered = (heading: string) => heading.charAt(0).toLowerCase() + heading.slice(1);

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
  return {
    title: "Errors",
    body: `<p>${links.join(" · ")}</p>\n<h1>Errors</h1>${more}\n${[problems, ...groups].join("\n")}`,
  };
}

const codeLink = (code: string) =>
  `<a href="errors/${encodeURIComponent(code)}"><code>${escapeHtml(code)}</code></a>`;

const link = (url: string, text: string) => `<a href="${escapeHtml(url)}">${escapeHtml(text)}</a>`;

/** Cells are HTML already. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const row = (tag: "td" | "th", cells: readonly string[]) =>
    `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`;
  return `<table>\n${[row("th", head), ...rows.map((cells) => row("td", cells))].join("\n")}\n</table>`;
}
