import { auditTable, type OwnChange } from "../audit-table.ts";
import { html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import { newer, older } from "../paging.ts";
import type { Screen } from "../screen.ts";

type Page = { readonly items: readonly OwnChange[]; readonly next_cursor: string | null };

const PAGE_ITEMS = 50;

/** What was changed in the account and by whom, newest first. */
export const auditScreen: Screen = {
  method: "GET",
  path: "/audit",
  show: async (view) => {
    const { base, query } = view;
    const page = await view.ask<Page>("audit.list", { query: { ...query, limit: String(PAGE_ITEMS) } });
    const address = (changed = {}) => `${base}/audit${searchOf({ ...query, ...changed })}`;
    return {
      title: "Changes",
      main: html`<div class="head"><h1>Changes</h1></div>
${
  page.items.length === 0
    ? html`<section class="empty"><h2>Nothing has been changed yet</h2>
<p>Replays, changes of the endpoint and its secret, keys and links to this console show up here.</p></section>`
    : html`${newer(address())}${auditTable(view, page.items)}`
}
${page.next_cursor !== null && older(address({ cursor: page.next_cursor }))}`,
    };
  },
};
