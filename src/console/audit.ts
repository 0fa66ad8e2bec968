import type { AccountAuditEntry, AuditEntry } from "../accounts/accounts-schema.ts";
import { readable, SENTENCES, shortId } from "./change-sentences.ts";
import { marking, NO_MARKS } from "./field-marks.ts";
import { type Html, html, type Part } from "./html.ts";
import { filterForm, filtersOf, noMatch, searchOf, timeFields } from "./log-filters.ts";
import { type Column, hidden, newer, older, options, plain, table } from "./parts.ts";
import { type Answers, type Fields, get, type View } from "./screen.ts";
import { STAFF_PATH } from "./site.ts";
import { momentOf } from "./times.ts";

const PAGE_ITEMS = 50;
const FILE_PAGE_ITEMS = 100;

/** As the account itself reads it, or staff do. */
type AnyEntry = AuditEntry | AccountAuditEntry;

/** What was changed and by whom, newest first: in the account, or, on staff's pages across accounts, in all. */
const showAudit = marking(async (view, marks) => {
  const { base, query, session } = view;
  const path = `${base}/audit`;
  const isOfAll = view.accountId === null;
  const asked = filtersOf(query, session.timeZone);
  if (searchOf(asked) !== searchOf(query)) return { goTo: `${path}${searchOf(asked)}` };
  const title = isOfAll ? "Audit" : "Changes";
  if (marks.areAny) return { title, main: form(view, path, asked, [], marks) };
  const { items, next_cursor: next } = await view.ask(isOfAll ? "accounts.audit.list" : "audit.list", {
    query: { ...queryOf(asked), limit: String(PAGE_ITEMS) },
  });
  const { cursor: _, ...filters } = asked;
  const isFiltered = Object.keys(filters).some((name) => name !== "openings");
  const isEmpty = items.length === 0 && next === null;
  const isOfOne = isOfAll && typeof asked.account_id === "string";
  return {
    title,
    beside: isOfAll && html`<a class="button" href="${path}.csv${searchOf(filters)}">Download CSV</a>`,
    main: html`${(!isEmpty || isFiltered) && form(view, path, asked, items)}
${isOfOne && html`<p class="fine">Only one account. <a href="${path}">Show all</a></p>`}
${isEmpty && (isFiltered ? noMatch("No change matches", path, "Show all changes") : nothing(isOfAll))}
${!isEmpty && [!isOfAll && newer(`${path}${searchOf(asked)}`), auditTable(view, items)]}
${next !== null && older(`${path}${searchOf({ ...filters, cursor: next })}`)}
${openingsLink(path, filters)}`,
  };
});

export const auditScreen = get("/audit", showAudit);

/** As the API is asked: openings would drown the rest, so they are left out unless somebody asks for them. */
function queryOf({ openings, ...asked }: Fields): Fields {
  return openings === "shown" || isOfOpenings(asked) ? asked : { ...asked, without_openings: "true" };
}

function isOfOpenings({ operation }: Fields): boolean {
  return typeof operation === "string" && operation.startsWith("console.");
}

function openingsLink(path: string, { openings, ...filters }: Fields): Html | null {
  if (isOfOpenings(filters)) return null;
  const [verb, search] =
    openings === "shown" ? ["Hide", filters] : ["Show", { ...filters, openings: "shown" }];
  return html`<p class="fine"><a href="${path}${searchOf(search)}">${verb} openings and sign-ins</a></p>`;
}

function nothing(isOfAll: boolean): Html {
  return html`<section class="empty"><h2>Nothing has been changed yet</h2>${
    !isOfAll &&
    html`
<p>Replays, and changes to the endpoint, its secret and keys show up here.</p>`
  }</section>`;
}

/** @param changes that the page shows: their keys can be asked for */
function form(
  { session, installation }: View,
  path: string,
  asked: Fields,
  changes: readonly AnyEntry[],
  marks = NO_MARKS,
): Html {
  const [actor, operation] = [String(asked.actor ?? ""), String(asked.operation ?? "")];
  const { account_id, openings, cursor: _, ...filters } = asked;
  const kept: Fields = { ...(account_id && { account_id }), ...(openings && { openings }) };
  const actors = actorNames(changes, actor);
  const names = { "": "anything", ...installation.audited };
  const byName = ([, one]: [string, string], [, other]: [string, string]) => one.localeCompare(other);
  const known = Object.entries(installation.audited).sort(byName);
  const operations = [...new Set(["", ...known.map(([key]) => key), operation])];
  const fields = html`${Object.entries(kept).map(([name, value]) => hidden(name, String(value)))}
${marks.field(
  ["actor"],
  (marked) =>
    html`<label>Who <select name="actor"${marked}>${options(Object.keys(actors), actor, actors)}</select></label>`,
)}
${marks.field(
  ["operation"],
  (marked) =>
    html`<label>What <select name="operation"${marked}>${options(operations, operation, names)}</select></label>`,
)}
${timeFields(asked, session.timeZone, marks)}`;
  const isFiltered = Object.keys(filters).length > 0;
  return filterForm(path, "filters in-line", fields, isFiltered ? `${path}${searchOf(kept)}` : null);
}

/** Kinds of actors, and the keys that are at hand. */
function actorNames(changes: readonly AnyEntry[], asked: string): Readonly<Record<string, string>> {
  const keys = changes.flatMap(({ actor: { kind, key_id: id, name } }) =>
    id === null ? [] : [[id, `${ACTOR_NAMES[kind]} ${name ?? id}`]],
  );
  const known: Record<string, string> = { "": "anybody", ...ACTOR_NAMES, ...Object.fromEntries(keys) };
  return Object.hasOwn(known, asked) ? known : { ...known, [asked]: `key ${asked}` };
}

/** When, who did what, and why; whose where they are of several accounts. */
export function auditTable(view: View, changes: readonly AnyEntry[]): Html {
  const columns: readonly Column<AnyEntry>[] = [
    { name: "When", label: null, cell: ({ at }) => momentOf(at, view.session.timeZone) },
    { name: "What", label: null, cell: (change) => sentenceOf(view, change) },
    ...(changes.some((change) => "account" in change) ? [ACCOUNT] : []),
    ...(changes.some(noteOf) ? [{ name: "Note", cell: noteOf }] : []),
  ];
  return table("audit", columns, plain(changes), { idOf: ({ id }) => `c-${id}` });
}

/** For people, in a sentence; programs' name for it is in its title. */
function sentenceOf({ base, may, session, installation }: View, change: AnyEntry): Html {
  const { operation, details, actor } = change;
  const [subject, means] = subjectOf(actor);
  const account = "account" in change ? change.account : undefined;
  const place = account === undefined ? base : account && `${STAFF_PATH}/a/${account.id}`;
  const told = { details, base: place, may, timeZone: session.timeZone };
  const tell =
    SENTENCES[operation] ?? (() => html`did: ${installation.audited[operation] ?? readable(operation)}`);
  return html`<span title="${operation}"><strong>${subject}</strong>${
    means !== null && html` <span class="soft">(${means})</span>`
  } ${tell(told)}</span>`;
}

/** A person where one is known, and beside it what they came with. */
function subjectOf({ kind, key_id, name, user, viewer }: AuditEntry["actor"]): readonly [Part, Part] {
  switch (kind) {
    case "key": {
      const key = name ?? shortId(key_id);
      const person = viewer ?? user?.name;
      return person === undefined ? [`API key ${key}`, null] : [person, `API key ${key}`];
    }
    case "staff_key":
    case "staff": {
      const person = viewer ?? name;
      return person === null ? ["Support", null] : [person, "support"];
    }
    case "command_line":
      return ["The command line", null];
    default:
      throw new Error(`Unknown actor ${kind satisfies never}`);
  }
}

const ACCOUNT: Column<AnyEntry> = {
  name: "Account",
  cell: (change) => "account" in change && change.account && accountLink(change.account),
};

export function accountLink({ id, name }: { readonly id: string; readonly name: string }): Html {
  return html`<a href="${STAFF_PATH}/a/${id}/deliveries">${name}</a>`;
}

const ACTOR_NAMES: Readonly<Record<AuditEntry["actor"]["kind"], string>> = {
  key: "API key",
  staff_key: "staff key",
  staff: "staff",
  command_line: "command line",
};

/** A person where one is known, and what they came with. */
function whoOf({ actor: { kind, name, user, viewer } }: AuditEntry): string {
  const means = [
    ACTOR_NAMES[kind],
    kind === "key" || kind === "staff_key" ? (name ?? "without a name") : null,
    user === null ? null : `of ${user.name}`,
  ];
  const told = means.filter((part) => part !== null).join(" ");
  return viewer === null || viewer === name || viewer === told ? told : `${viewer} (${told})`;
}

function noteOf({ details }: AuditEntry): string {
  return typeof details.note === "string" ? details.note : "";
}

/** What else is known of it: names and values, in a line. */
function detailsText({ details }: AuditEntry): string {
  const told = Object.entries(details).filter(([name, value]) => name !== "note" && value !== null);
  return told.map(([name, value]) => `${name} ${textOf(value)}`).join(", ");
}

/** @param joint between those of a list: a filter takes any of them, everything else has them all */
function textOf(value: unknown, joint = " and "): string {
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return value.map((one) => textOf(one)).join(joint);
  const told = Object.entries(value).filter(([, part]) => part !== null);
  return told.length === 0
    ? "everything"
    : told.map(([name, part]) => `${name} ${textOf(part, " or ")}`).join(" and ");
}

/** All of the same as a file, a page at a time as it is read, so that it takes no more room however long it is. */
export const auditFile = get("/audit.csv", async (view) => {
  const asked = filtersOf(view.query, view.session.timeZone);
  // Whatever is wrong with what is asked for is said on a page, before anything is sent.
  const first = await pageOf(view, asked);
  const type = "text/csv; charset=utf-8; header=present";
  return { file: { name: "audit.csv", type, parts: () => partsOf(view, asked, first) } };
});

type FilePage = Answers["accounts.audit.list"];

async function* partsOf(view: View, asked: Fields, first: FilePage): AsyncGenerator<string> {
  yield lineOf(Object.keys(CELLS));
  for (let page = first; ; ) {
    yield page.items.map(rowOf).join("");
    const { next_cursor: cursor } = page;
    if (cursor === null) return;
    page = await pageOf(view, { ...asked, cursor });
  }
}

function pageOf(view: View, asked: Fields): Promise<FilePage> {
  return view.ask("accounts.audit.list", { query: { ...queryOf(asked), limit: String(FILE_PAGE_ITEMS) } });
}

/** The file's columns, and what is in them. */
const CELLS: Readonly<Record<string, (change: AccountAuditEntry) => string | null | undefined>> = {
  at: ({ at }) => at,
  who: whoOf,
  what: ({ operation }) => operation,
  account: ({ account }) => account?.name,
  account_id: ({ account }) => account?.id,
  note: noteOf,
  details: detailsText,
  key_id: ({ actor }) => actor.key_id,
  user_id: ({ actor }) => actor.user?.id,
  request_id: ({ request_id }) => request_id,
};

function rowOf(change: AccountAuditEntry): string {
  return lineOf(Object.values(CELLS).map((cell) => cell(change) ?? ""));
}

function lineOf(cells: readonly string[]): string {
  return `${cells.map(cellOf).join(",")}\r\n`;
}

/**
 * Where a spreadsheet would run what follows: a formula, full width too, at a cell's beginning, and behind what begins
 * another cell where commas do not.
 */
const FORMULAS =
  /^(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])|(?<=[;\r\n])(?=[ "']*[=+\-@\uff1d\uff0b\uff0d\uff20])/g;

/** RFC 4180. A quote before a formula makes it text. */
function cellOf(text: string): string {
  return `"${text.replaceAll(FORMULAS, "'").replaceAll('"', '""')}"`;
}
