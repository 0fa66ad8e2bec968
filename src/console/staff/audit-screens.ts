import type { AccountAuditEntry as Change } from "../../accounts/accounts-schema.ts";
import type { Answers } from "../answers.ts";
import { detailsText, noteOf, showChanges, whoOf } from "../audit.ts";
import { html } from "../html.ts";
import { filtersOf } from "../log-filters.ts";
import { type Fields, get, type View } from "../screen.ts";
import { STAFF_PATH } from "./staff-sites.ts";

type Page = Answers["accounts.audit.list"];

const PATH = `${STAFF_PATH}/audit`;
const FILE_PAGE_ITEMS = 100;

/** Changes of all accounts. */
export const auditScreen = get("/audit", (view) =>
  showChanges(view, {
    title: "Audit",
    path: PATH,
    operation: "accounts.audit.list",
    beside: (search) => html`<a class="button" href="${PATH}.csv${search}">Download CSV</a>`,
    nothing: html`<section class="empty"><h2>Nothing has been changed yet</h2></section>`,
    isStill: false,
  }),
);

/** All of the same as a file, a page at a time as it is read, so that it takes no more room however long it is. */
export const auditFile = get("/audit.csv", async (view) => {
  const asked = filtersOf(view.query, view.session.timeZone);
  // Whatever is wrong with what is asked for is said on a page, before anything is sent.
  const first = await pageOf(view, asked);
  const type = "text/csv; charset=utf-8; header=present";
  return { file: { name: "audit.csv", type, parts: () => partsOf(view, asked, first) } };
});

async function* partsOf(view: View, asked: Fields, first: Page): AsyncGenerator<string> {
  yield lineOf(COLUMNS);
  for (let page = first; ; ) {
    yield page.items.map(rowOf).join("");
    const { next_cursor: cursor } = page;
    if (cursor === null) return;
    page = await pageOf(view, { ...asked, cursor });
  }
}

function pageOf(view: View, asked: Fields): Promise<Page> {
  return view.ask("accounts.audit.list", { query: { ...asked, limit: String(FILE_PAGE_ITEMS) } });
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
