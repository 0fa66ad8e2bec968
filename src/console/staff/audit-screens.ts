import {
  auditFilterForm,
  auditFiltersOf,
  auditTable,
  type Change,
  detailsText,
  noChanges,
  noteOf,
  whoOf,
} from "../audit.ts";
import { older } from "../forms.ts";
import { html } from "../html.ts";
import { type Fields, searchOf } from "../log-filters.ts";
import type { Screen, View } from "../screen.ts";
import { STAFF_PATH } from "./staff-sites.ts";

type Page = { readonly items: readonly Change[]; readonly next_cursor: string | null };

const PATH = `${STAFF_PATH}/audit`;
const PAGE_ITEMS = 50;
const FILE_PAGE_ITEMS = 100;

/** Changes of all accounts, newest first. */
export const auditScreen: Screen = {
  method: "GET",
  path: "/audit",
  show: async (view) => {
    const { query, session } = view;
    const asked = auditFiltersOf(query, session.timeZone);
    if (searchOf(asked) !== searchOf(query)) return { goTo: `${PATH}${searchOf(asked)}` };
    const { items, next_cursor: next } = await pageOf(view, asked, PAGE_ITEMS);
    const { cursor: _, ...filters } = asked;
    const isOfOne = typeof asked.account_id === "string";
    return {
      title: "Audit",
      main: html`<div class="head"><h1>Audit</h1>
<a class="button" href="${PATH}.csv${searchOf(filters)}">Download CSV</a></div>
${auditFilterForm(view, PATH, asked, items)}
${isOfOne && html`<p class="fine">Only one account. <a href="${PATH}">Show all</a></p>`}
${items.length === 0 && next === null ? noChanges(PATH, filters, NOTHING) : auditTable(view, items)}
${next !== null && older(`${PATH}${searchOf({ ...filters, cursor: next })}`)}`,
    };
  },
};

const NOTHING = html`<section class="empty"><h2>Nothing has been changed yet</h2></section>`;

/** All of the same as a file, a page at a time as it is read, so that it takes no more room however long it is. */
export const auditFile: Screen = {
  method: "GET",
  path: "/audit.csv",
  show: async (view) => {
    const asked = auditFiltersOf(view.query, view.session.timeZone);
    // Whatever is wrong with what is asked for is said on a page, before anything is sent.
    const first = await pageOf(view, asked, FILE_PAGE_ITEMS);
    const type = "text/csv; charset=utf-8; header=present";
    return { file: { name: "audit.csv", type, parts: () => partsOf(view, asked, first) } };
  },
};

async function* partsOf(view: View, asked: Fields, first: Page): AsyncGenerator<string> {
  yield lineOf(COLUMNS);
  for (let page = first; ; ) {
    yield page.items.map(rowOf).join("");
    const { next_cursor: cursor } = page;
    if (cursor === null) return;
    page = await pageOf(view, { ...asked, cursor }, FILE_PAGE_ITEMS);
  }
}

async function pageOf(view: View, asked: Fields, limit: number): Promise<Page> {
  return await view.ask<Page>("accounts.audit.list", { query: { ...asked, limit: String(limit) } });
}

const COLUMNS = ["at", "who", "what", "account", "account_id", "note", "details", "key_id", "request_id"];

function rowOf(change: Change): string {
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
