import type { AccountAuditEntry, AuditEntry } from "../accounts/accounts-schema.ts";
import { ACTOR_KINDS } from "../base/model/audit.ts";
import type { Answers } from "./answers.ts";
import { type Html, html } from "./html.ts";
import { filterForm, filtersOf, noMatch, searchOf, timeFields } from "./log-filters.ts";
import { type Column, hidden, newer, older, options, table } from "./parts.ts";
import { type Fields, get, type Page, type Shown, type View } from "./screen.ts";
import { STAFF_PATH } from "./staff/staff-sites.ts";
import { momentOf } from "./times.ts";

const PAGE_ITEMS = 50;
const FILE_PAGE_ITEMS = 100;
/** Of staff's list. */
const STAFF_AUDIT_PATH = `${STAFF_PATH}/audit`;

/** As the account itself reads it, or staff do. */
type AnyEntry = AuditEntry | AccountAuditEntry;

/** A list of changes, newest first, with its filters. */
type ChangeList = Pick<Page, "title"> & {
  /** Of the page. */
  readonly path: string;
  readonly operation: "audit.list" | "accounts.audit.list";
  /** Beside the heading. @param search the filters, as an address has them */
  readonly beside?: (search: string) => Html;
  /** Where there is nothing at all. */
  readonly nothing: Html;
  /** Rows stay where they are under a reader, who is offered newer ones. */
  readonly isStill: boolean;
};

async function showChanges(view: View, list: ChangeList): Promise<Shown> {
  const { query, session } = view;
  const { title, path, operation, beside, nothing, isStill } = list;
  const asked = filtersOf(query, session.timeZone);
  if (searchOf(asked) !== searchOf(query)) return { goTo: `${path}${searchOf(asked)}` };
  const { items, next_cursor: next } = await view.ask(operation, {
    query: { ...asked, limit: String(PAGE_ITEMS) },
  });
  const { cursor: _, ...filters } = asked;
  const isFiltered = Object.keys(filters).length > 0;
  const isEmpty = items.length === 0 && next === null;
  const isOfOne = operation === "accounts.audit.list" && typeof asked.account_id === "string";
  return {
    title,
    beside: beside?.(searchOf(filters)) ?? null,
    main: html`${(!isEmpty || isFiltered) && form(view, path, asked, items)}
${isOfOne && html`<p class="fine">Only one account. <a href="${path}">Show all</a></p>`}
${isEmpty && (isFiltered ? noMatch("No change matches", path, "Show all changes") : nothing)}
${!isEmpty && [isStill && newer(`${path}${searchOf(asked)}`), auditTable(view, items)]}
${next !== null && older(`${path}${searchOf({ ...filters, cursor: next })}`)}`,
  };
}

/** What was changed in the account and by whom. */
export const auditScreen = get("/audit", (view) =>
  showChanges(view, {
    title: "Changes",
    path: `${view.base}/audit`,
    operation: "audit.list",
    nothing: html`<section class="empty"><h2>Nothing has been changed yet</h2>
<p>Replays, changes of the endpoint and its secret, keys and links to this console show up here.</p></section>`,
    isStill: true,
  }),
);

/** Changes of all accounts. */
export const staffAuditScreen = get("/audit", (view) =>
  showChanges(view, {
    title: "Audit",
    path: STAFF_AUDIT_PATH,
    operation: "accounts.audit.list",
    beside: (search) => html`<a class="button" href="${STAFF_AUDIT_PATH}.csv${search}">Download CSV</a>`,
    nothing: html`<section class="empty"><h2>Nothing has been changed yet</h2></section>`,
    isStill: false,
  }),
);

/** @param changes that the page shows: their keys can be asked for */
function form(
  { session, installation }: View,
  path: string,
  asked: Fields,
  changes: readonly AnyEntry[],
): Html {
  const [actor, operation] = [String(asked.actor ?? ""), String(asked.operation ?? "")];
  const { account_id: accountId, cursor: _, ...filters } = asked;
  const kept = typeof accountId === "string" ? { account_id: accountId } : {};
  const actors = actorNames(changes, actor);
  const operations = [...new Set(["", ...installation.audited, operation])].sort();
  const fields = html`${Object.entries(kept).map(([name, value]) => hidden(name, value))}
<label>Who <select name="actor">${options(Object.keys(actors), actor, actors)}</select></label>
<label>What <select name="operation">${options(operations, operation, { "": "anything" })}</select></label>
${timeFields(asked, session.timeZone)}`;
  const isFiltered = Object.keys(filters).length > 0;
  return filterForm(path, "filters in-line", fields, isFiltered ? `${path}${searchOf(kept)}` : null);
}

/** Kinds of actors, and the keys that are at hand. */
function actorNames(changes: readonly AnyEntry[], asked: string): Readonly<Record<string, string>> {
  const keys = changes.flatMap(({ actor: { kind, key_id: id, name } }) =>
    id === null ? [] : [[id, `${ACTOR_NAMES[kind]} ${name ?? id}`] as const],
  );
  const kinds = ACTOR_KINDS.map((kind) => [kind, ACTOR_NAMES[kind]] as const);
  const known = Object.fromEntries([["", "anybody"], ...kinds, ...keys]);
  return Object.hasOwn(known, asked) ? known : { ...known, [asked]: `key ${asked}` };
}

/** Who, what, when and why; whose where they are of several accounts. */
export function auditTable({ session }: View, changes: readonly AnyEntry[]): Html {
  const columns: readonly Column<AnyEntry>[] = [
    { name: "When", label: null, cell: ({ at }) => momentOf(at, session.timeZone) },
    { name: "Who", cell: whoOf },
    { name: "What", cell: ({ operation }) => html`<code>${dotted(operation)}</code>` },
    {
      name: "Account",
      cell: (change) => "account" in change && change.account && accountLink(change.account),
    },
    {
      name: "Note and details",
      label: "Note",
      cell: (change) => {
        const [note, details] = [noteOf(change), detailsText(change)];
        return [
          note && html`<strong>${note}</strong> `,
          details && html`<span class="fine">${details}</span>`,
        ];
      },
    },
  ];
  const areOfSeveral = changes.some((change) => "account" in change);
  return table("audit", areOfSeveral ? columns : columns.filter(({ name }) => name !== "Account"), changes, {
    idOf: ({ id }) => `c-${id}`,
  });
}

/** A long name breaks where it has a dot. */
function dotted(name: string): Html {
  const [first = "", ...more] = name.split(".");
  return html`${first}${more.map((part) => html`.<wbr>${part}`)}`;
}

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

function textOf(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return value.map(textOf).join(" or ");
  const told = Object.entries(value).filter(([, part]) => part !== null);
  return told.length === 0
    ? "everything"
    : told.map(([name, part]) => `${name} ${textOf(part)}`).join(" and ");
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
  yield lineOf(COLUMNS);
  for (let page = first; ; ) {
    yield page.items.map(rowOf).join("");
    const { next_cursor: cursor } = page;
    if (cursor === null) return;
    page = await pageOf(view, { ...asked, cursor });
  }
}

function pageOf(view: View, asked: Fields): Promise<FilePage> {
  return view.ask("accounts.audit.list", { query: { ...asked, limit: String(FILE_PAGE_ITEMS) } });
}

const COLUMNS = ["at", "who", "what", "account", "account_id", "note", "details", "key_id", "request_id"];

function rowOf(change: AccountAuditEntry): string {
  return lineOf([
    change.at,
    whoOf(change),
    change.operation,
    change.account?.name ?? "",
    change.account?.id ?? "",
    noteOf(change),
    detailsText(change),
    change.actor.key_id ?? "",
    change.request_id ?? "",
  ]);
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
