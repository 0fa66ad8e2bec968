import type { AccountAuditEntry, AuditEntry } from "../accounts/accounts-schema.ts";
import { ACTOR_KINDS } from "../base/model/audit.ts";
import { type Html, html } from "./html.ts";
import { filterForm, filtersOf, noMatch, searchOf, timeFields } from "./log-filters.ts";
import { type Column, hidden, newer, older, options, table } from "./parts.ts";
import { type Fields, get, type Page, type Shown, type View } from "./screen.ts";
import { STAFF_PATH } from "./staff/staff-sites.ts";
import { momentOf } from "./times.ts";

const PAGE_ITEMS = 50;

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

export async function showChanges(view: View, list: ChangeList): Promise<Shown> {
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
export function whoOf({ actor: { kind, name, user, viewer } }: AuditEntry): string {
  const means = [
    ACTOR_NAMES[kind],
    kind === "key" || kind === "staff_key" ? (name ?? "without a name") : null,
    user === null ? null : `of ${user.name}`,
  ];
  const told = means.filter((part) => part !== null).join(" ");
  return viewer === null || viewer === name || viewer === told ? told : `${viewer} (${told})`;
}

export function noteOf({ details }: AuditEntry): string {
  return typeof details.note === "string" ? details.note : "";
}

/** What else is known of it: names and values, in a line. */
export function detailsText({ details }: AuditEntry): string {
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
