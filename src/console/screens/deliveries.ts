import type { z } from "zod";
import type { Delivery } from "../../operations/delivery-schema.ts";
import { type Html, html } from "../html.ts";
import type { Screen, View } from "../screen.ts";
import { statusOf } from "../status.ts";
import { momentOf } from "../times.ts";

type Listed = z.output<typeof Delivery>;
type Page = {
  readonly items: readonly Listed[];
  readonly next_cursor: string | null;
  readonly total: number;
};

/** The views of the log that people ask for, each a list of statuses. */
const VIEWS = [
  { name: "Needs attention", status: ["failed", "abandoned"] },
  { name: "Pending", status: ["pending"] },
  { name: "Arrived", status: ["succeeded"] },
  { name: "All", status: [] },
] as const;

const PAGE_ITEMS = 50;
/** Filters that a form of the page sets, besides the status. */
const FIELDS = [
  "analysis_id",
  "target_host",
  "error_code",
  "status_code",
  "created_after",
  "created_before",
] as const;

/** The delivery log, newest first. */
export const deliveriesScreen: Screen = {
  method: "GET",
  path: "/deliveries",
  show: async (view) => {
    const asked = askedOf(view);
    const page = await view.ask<Page>("webhooks.deliveries.list", {
      query: { ...asked, limit: String(PAGE_ITEMS) },
    });
    return {
      title: "Deliveries",
      main: html`<div class="head"><h1>Deliveries</h1>${zone(view)}</div>
${tabs(view)}
${filterForm(view)}
${page.items.length === 0 ? empty(view) : table(view, page)}`,
    };
  },
};

/** Empty fields of the form ask for nothing. */
function askedOf({ query }: View): Record<string, string | readonly string[]> {
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ""));
}

function statusesOf({ query }: View): readonly string[] {
  const { status } = query;
  return status === undefined ? [] : typeof status === "string" ? [status] : status;
}

function tabs(view: View): Html {
  const asked = [...statusesOf(view)].sort().join();
  const links = VIEWS.map(({ name, status }) => {
    const isHere = [...status].sort().join() === asked;
    const href = address(view, { status, cursor: null });
    return html`<a href="${href}"${isHere && html` aria-current="true"`}>${name}</a>`;
  });
  return html`<nav class="tabs" aria-label="Which deliveries">${links}</nav>`;
}

function filterForm(view: View): Html {
  const value = (name: string) => {
    const given = view.query[name];
    return typeof given === "string" ? given : "";
  };
  const isFiltered = FIELDS.some((name) => value(name) !== "");
  return html`<form class="filters" method="get" action="${view.base}/deliveries" role="search">
${statusesOf(view).map((status) => html`<input type="hidden" name="status" value="${status}">`)}
<label>Analysis <input name="analysis_id" value="${value("analysis_id")}" maxlength="200" autocomplete="off"></label>
<label>Host <input name="target_host" value="${value("target_host")}" maxlength="255" autocomplete="off"></label>
<label>Error <input name="error_code" value="${value("error_code")}" maxlength="64" autocomplete="off"></label>
<label>Code <input name="status_code" value="${value("status_code")}" inputmode="numeric" size="4"
  maxlength="3"></label>
<button>Filter</button>
${isFiltered && html`<a href="${address(view, { ...noFilters, cursor: null })}">Clear filters</a>`}
</form>`;
}

const noFilters = Object.fromEntries(FIELDS.map((name) => [name, null]));

function table(view: View, { items, next_cursor, total }: Page): Html {
  const count =
    total >= 10_000
      ? "at least 10,000 deliveries"
      : `${total.toLocaleString("en")} ${total === 1 ? "delivery" : "deliveries"}`;
  return html`<p class="count">${count}</p>
<table class="log">
<thead><tr><th scope="col">Status</th><th scope="col">Analysis</th><th scope="col">Published</th>
<th scope="col">Target</th><th scope="col" class="number">Attempts</th><th scope="col">Last error</th></tr></thead>
${items.map((item) => row(view, item))}
</table>
${next_cursor !== null && older(address(view, { cursor: next_cursor }))}`;
}

function older(href: string): Html {
  return html`<nav class="pages" aria-label="Pages"><a rel="next" href="${href}">Older →</a></nav>`;
}

function row(view: View, item: Listed): Html {
  const needsWords = item.status === "failed" || item.status === "abandoned";
  return html`<tbody id="d-${item.id}">
<tr>
<td>${statusOf(item.status)}</td>
<td><a href="${view.base}/deliveries/${item.id}">${item.analysis_id}</a></td>
<td data-label="Published">${momentOf(item.created_at, view.session.timeZone)}</td>
<td data-label="Target">${hostOf(item.target_url)}</td>
<td data-label="Attempts" class="number">${item.attempts_count}</td>
<td data-label="Last error">${item.last_error_code !== null && html`<code>${item.last_error_code}</code>`}</td>
</tr>
${needsWords && html`<tr class="why"><td></td><td colspan="5">${item.explanation}</td></tr>`}
</tbody>`;
}

function hostOf(url: string | null): string {
  return url === null ? "–" : new URL(url).host;
}

function empty(view: View): Html {
  const isAll = Object.keys(askedOf(view)).length === 0;
  return isAll
    ? html`<section class="empty"><h2>Nothing has been published yet</h2>
<p>As soon as an analysis is finished, its delivery shows up here.</p></section>`
    : html`<section class="empty"><h2>No delivery matches</h2>
<p><a href="${view.base}/deliveries">Show all deliveries</a></p></section>`;
}

function zone({ session }: View): Html {
  return html`<p class="fine">Times in ${session.timeZone ?? "UTC"}</p>`;
}

/** This page's address with some parameters changed; null: without them. */
function address(view: View, changed: Readonly<Record<string, string | readonly string[] | null>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...askedOf(view), ...changed })) {
    if (value === null) continue;
    for (const one of typeof value === "string" ? [value] : value) query.append(name, one);
  }
  const text = query.toString();
  return `${view.base}/deliveries${text === "" ? "" : `?${text}`}`;
}
