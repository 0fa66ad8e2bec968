import { auditTable, type Change, detailsText, noteOf, whoOf } from "../audit-table.ts";
import { type Html, html } from "../html.ts";
import { type Fields, searchOf } from "../log-filters.ts";
import { older } from "../paging.ts";
import type { Screen, View } from "../screen.ts";
import { momentAt, wallTimeOf } from "../times.ts";
import { STAFF_PATH } from "./staff-sites.ts";

type Page = { readonly items: readonly Change[]; readonly next_cursor: string | null };

const PAGE_ITEMS = 50;
/** Of a file: as many as a person looks through, in a second. */
const FILE_PAGES_MAX = 50;
const FILE_PAGE_ITEMS = 100;

const ACTORS = [
  { value: "", name: "anybody" },
  { value: "staff", name: "staff" },
  { value: "staff_key", name: "staff keys" },
  { value: "key", name: "API keys" },
  { value: "command_line", name: "command line" },
] as const;

/** Changes of all accounts, newest first. */
export const auditScreen: Screen = {
  method: "GET",
  path: "/audit",
  show: async (view) => {
    const { query, session } = view;
    const asked = filtersOf(query, session.timeZone);
    if (searchOf(asked) !== searchOf(query)) return { goTo: `${STAFF_PATH}/audit${searchOf(asked)}` };
    const page = await view.ask<Page>("accounts.audit.list", {
      query: { ...asked, limit: String(PAGE_ITEMS) },
    });
    const { cursor: _, ...filters } = asked;
    const next = page.next_cursor;
    return {
      title: "Audit",
      main: html`<div class="head"><h1>Audit</h1>
<a class="button" href="${STAFF_PATH}/audit.csv${searchOf(filters)}">Download CSV</a></div>
${filterForm(view, asked)}
${
  typeof asked.account_id === "string" &&
  html`<p class="fine">Only one account. <a href="${STAFF_PATH}/audit">Show all</a></p>`
}
${page.items.length === 0 && next === null ? empty(filters) : auditTable(view, page.items)}
${next !== null && older(`${STAFF_PATH}/audit${searchOf({ ...filters, cursor: next })}`)}`,
    };
  },
};

/** The same as a file, as far as it goes. */
export const auditFile: Screen = {
  method: "GET",
  path: "/audit.csv",
  show: async (view) => {
    const asked = filtersOf(view.query, view.session.timeZone);
    const changes: Change[] = [];
    let cursor: string | null = null;
    for (let page = 0; page === 0 || (cursor !== null && page < FILE_PAGES_MAX); page++) {
      const query: Fields = { ...asked, limit: String(FILE_PAGE_ITEMS), ...(cursor !== null && { cursor }) };
      const answer: Page = await view.ask<Page>("accounts.audit.list", { query });
      changes.push(...answer.items);
      cursor = answer.next_cursor;
    }
    return {
      file: { name: "audit.csv", type: "text/csv; charset=utf-8; header=present", text: csvOf(changes) },
    };
  },
};

const COLUMNS = ["at", "who", "what", "account", "account_id", "note", "details", "key_id", "request_id"];

function csvOf(changes: readonly Change[]): string {
  const rows = changes.map((change) => [
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
  return [COLUMNS, ...rows].map((row) => `${row.map(cellOf).join(",")}\r\n`).join("");
}

/** RFC 4180. A spreadsheet would run what begins like a formula, full width too; a quote before it makes it text. */
function cellOf(text: string): string {
  const plain = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/.test(text) ? `'${text}` : text;
  return `"${plain.replaceAll('"', '""')}"`;
}

function filtersOf(fields: Fields, timeZone: string | null): Fields {
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

function filterForm({ session }: View, asked: Fields): Html {
  const text = (name: string) => String(asked[name] ?? "");
  const moment = (name: string) => wallTimeOf(text(name), session.timeZone);
  const { account_id: accountId } = asked;
  return html`<form class="filters in-line" method="get" action="${STAFF_PATH}/audit">
${typeof accountId === "string" && html`<input type="hidden" name="account_id" value="${accountId}">`}
<label>Who <select name="actor">${ACTORS.map(
    ({ value, name }) =>
      html`<option value="${value}"${value === text("actor") && html` selected`}>${name}</option>`,
  )}</select></label>
<label>What <input name="operation" value="${text("operation")}" maxlength="100" autocomplete="off" spellcheck="false"
  placeholder="webhooks.replays.create"></label>
<label class="moment">From <input type="datetime-local" name="from" value="${moment("created_after")}"
  step="any"></label>
<label class="moment">To <input type="datetime-local" name="to" value="${moment("created_before")}"
  step="any"></label>
<button>Filter</button>
</form>`;
}

function empty(filters: Fields): Html {
  return Object.keys(filters).length === 0
    ? html`<section class="empty"><h2>Nothing has been changed yet</h2></section>`
    : html`<section class="empty"><h2>No change matches</h2>
<p><a href="${STAFF_PATH}/audit">Show all changes</a></p></section>`;
}
