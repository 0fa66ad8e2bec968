import type { z } from "zod";
import type { AccountAuditEntry, AuditEntry } from "../accounts/accounts-schema.ts";
import { ACTOR_KINDS } from "../base/model/audit.ts";
import { type Html, html } from "./html.ts";
import { type Fields, hidden, searchOf } from "./log-filters.ts";
import type { View } from "./screen.ts";
import { STAFF_PATH } from "./staff/staff-sites.ts";
import { momentAt, momentOf, wallTimeOf } from "./times.ts";

/** What a form's fields ask for, as the API has it; `from` and `to` are times of the viewer's zone. */
export function auditFiltersOf(fields: Fields, timeZone: string | null): Fields {
  const filters: Record<string, string> = {};
  for (const [name, given] of Object.entries(fields)) {
    const value = String([given].flat()[0] ?? "").trim();
    if (value === "") continue;
    if (name === "from") filters.created_after = momentAt(value, timeZone, "first") ?? value;
    else if (name === "to") filters.created_before = momentAt(value, timeZone, "last") ?? value;
    else filters[name] = value;
  }
  return filters;
}

/** @param path of the page that it is on @param changes that the page shows: their keys can be asked for */
export function auditFilterForm(
  { session, audited }: View,
  path: string,
  asked: Fields,
  changes: readonly (Change | OwnChange)[],
): Html {
  const text = (name: string) => String(asked[name] ?? "");
  const moment = (name: string) => wallTimeOf(text(name), session.timeZone);
  const { account_id: accountId, cursor: _, ...filters } = asked;
  const kept = typeof accountId === "string" ? { account_id: accountId } : {};
  const actors = optionsOf(actorsOf(changes, text("actor")), text("actor"));
  const operations = optionsOf(operationsOf(audited, text("operation")), text("operation"));
  return html`<details class="fold"${Object.keys(filters).length > 0 && html` open`}><summary>Filters</summary>
<form class="filters in-line" method="get" action="${path}" role="search">
${typeof accountId === "string" && hidden("account_id", accountId)}
<label>Who <select name="actor">${actors}</select></label>
<label>What <select name="operation">${operations}</select></label>
<label class="moment">From <input type="datetime-local" name="from" value="${moment("created_after")}"
  step="any"></label>
<label class="moment">To <input type="datetime-local" name="to" value="${moment("created_before")}"
  step="any"></label>
<button>Filter</button>
${Object.keys(filters).length > 0 && html`<a href="${path}${searchOf(kept)}">Clear filters</a>`}
</form></details>`;
}

type Choice = { readonly value: string; readonly name: string };

/** Kinds of actors, and the keys that are at hand. */
function actorsOf(changes: readonly (Change | OwnChange)[], asked: string): readonly Choice[] {
  const keys = new Map(
    changes.flatMap(({ actor: { kind, key_id: id, name } }) =>
      id === null ? [] : [[id, `${ACTOR_NAMES[kind]} ${name ?? id}`] as const],
    ),
  );
  const kinds = ACTOR_KINDS.map((kind) => ({ value: kind as string, name: ACTOR_NAMES[kind] }));
  const isListed = asked === "" || keys.has(asked) || kinds.some(({ value }) => value === asked);
  if (!isListed) keys.set(asked, `key ${asked}`);
  return [{ value: "", name: "anybody" }, ...kinds, ...[...keys].map(([value, name]) => ({ value, name }))];
}

function operationsOf(audited: readonly string[], asked: string): readonly Choice[] {
  const values = new Set([...audited, ...(asked === "" ? [] : [asked])]);
  return [{ value: "", name: "anything" }, ...[...values].sort().map((value) => ({ value, name: value }))];
}

function optionsOf(choices: readonly Choice[], asked: string): readonly Html[] {
  return choices.map(
    ({ value, name }) => html`<option value="${value}"${value === asked && html` selected`}>${name}</option>`,
  );
}

/** Instead of the table. @param unasked where there is nothing at all */
export function noChanges(path: string, filters: Fields, unasked: Html): Html {
  return Object.keys(filters).length === 0
    ? unasked
    : html`<section class="empty"><h2>No change matches</h2>
<p><a href="${path}">Show all changes</a></p></section>`;
}

export type Change = z.output<typeof AccountAuditEntry>;

/** As the account itself reads it. */
export type OwnChange = z.output<typeof AuditEntry>;

/** Who, what, when and why; whose where they are of several accounts. */
export function auditTable({ session }: View, changes: readonly (Change | OwnChange)[]): Html {
  const areOfSeveral = changes.some((change) => "account" in change);
  return html`<table class="log audit">
<thead><tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">What</th>
${areOfSeveral && html`<th scope="col">Account</th>`}<th scope="col">Note and details</th></tr></thead>
${changes.map(
  (change) => html`<tbody id="c-${change.id}"><tr>
<td>${momentOf(change.at, session.timeZone)}</td>
<td data-label="Who">${whoOf(change)}</td>
<td data-label="What"><code>${dotted(change.operation)}</code></td>
${
  "account" in change &&
  html`<td data-label="Account">${change.account !== null && accountLink(change.account)}</td>`
}
<td data-label="Note">${noteOf(change) !== "" && html`<strong>${noteOf(change)}</strong> `}${detailsOf(change)}</td>
</tr></tbody>`,
)}
</table>`;
}

/** A long name breaks where it has a dot. */
function dotted(name: string): Html {
  const [first = "", ...more] = name.split(".");
  return html`${first}${more.map((part) => html`.<wbr>${part}`)}`;
}

export function accountLink({ id, name }: { readonly id: string; readonly name: string }): Html {
  return html`<a href="${STAFF_PATH}/a/${id}/deliveries">${name}</a>`;
}

const ACTOR_NAMES: Readonly<Record<OwnChange["actor"]["kind"], string>> = {
  key: "API key",
  staff_key: "staff key",
  staff: "staff",
  command_line: "command line",
};

/** A person where one is known, and what they came with. */
export function whoOf({ actor: { kind, name, user, viewer } }: OwnChange): string {
  const means = [
    ACTOR_NAMES[kind],
    kind === "key" || kind === "staff_key" ? (name ?? "without a name") : null,
    user === null ? null : `of ${user.name}`,
  ];
  const told = means.filter((part) => part !== null).join(" ");
  return viewer === null || viewer === name || viewer === told ? told : `${viewer} (${told})`;
}

export function noteOf({ details }: OwnChange): string {
  return typeof details.note === "string" ? details.note : "";
}

/** What else is known of it: names and values, in a line. */
export function detailsText({ details }: OwnChange): string {
  const told = Object.entries(details).filter(([name, value]) => name !== "note" && value !== null);
  return told.map(([name, value]) => `${name} ${textOf(value)}`).join(", ");
}

function detailsOf(change: OwnChange): Html | null {
  const text = detailsText(change);
  return text === "" ? null : html`<span class="fine">${text}</span>`;
}

function textOf(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return value.map(textOf).join(" or ");
  const told = Object.entries(value).filter(([, part]) => part !== null);
  return told.length === 0
    ? "everything"
    : told.map(([name, part]) => `${name} ${textOf(part)}`).join(" and ");
}
