import { auditFilterForm, auditFiltersOf, auditTable, noChanges, type OwnChange } from "../audit.ts";
import { newer, older } from "../forms.ts";
import { html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import type { Screen } from "../screen.ts";

type Page = { readonly items: readonly OwnChange[]; readonly next_cursor: string | null };

const PAGE_ITEMS = 50;

/** What was changed in the account and by whom, newest first. */
export const auditScreen: Screen = {
  method: "GET",
  path: "/audit",
  show: async (view) => {
    const { query, session } = view;
    const path = `${view.base}/audit`;
    const asked = auditFiltersOf(query, session.timeZone);
    if (searchOf(asked) !== searchOf(query)) return { goTo: `${path}${searchOf(asked)}` };
    const { items, next_cursor: next } = await view.ask<Page>("audit.list", {
      query: { ...asked, limit: String(PAGE_ITEMS) },
    });
    const { cursor: _, ...filters } = asked;
    const isEmpty = items.length === 0 && next === null;
    return {
      title: "Changes",
      main: html`<div class="head"><h1>Changes</h1></div>
${(!isEmpty || Object.keys(filters).length > 0) && auditFilterForm(view, path, asked, items)}
${isEmpty ? noChanges(path, filters, NOTHING) : html`${newer(`${path}${searchOf(asked)}`)}${auditTable(view, items)}`}
${next !== null && older(`${path}${searchOf({ ...filters, cursor: next })}`)}`,
    };
  },
};

const NOTHING = html`<section class="empty"><h2>Nothing has been changed yet</h2>
<p>Replays, changes of the endpoint and its secret, keys and links to this console show up here.</p></section>`;
