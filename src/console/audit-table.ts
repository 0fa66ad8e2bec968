import type { z } from "zod";
import type { AccountAuditEntry, AuditEntry } from "../operations/audit.ts";
import { type Html, html } from "./html.ts";
import type { View } from "./screen.ts";
import { STAFF_PATH } from "./staff/staff-sites.ts";
import { momentOf } from "./times.ts";

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

export const ACTOR_NAMES: Readonly<Record<OwnChange["actor"]["kind"], string>> = {
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
