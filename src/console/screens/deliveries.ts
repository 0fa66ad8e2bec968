import type { z } from "zod";
import { explainEndReason, explainErrorCode } from "../../base/model/error-codes.ts";
import { isReplayable } from "../../base/model/statuses.ts";
import type { Delivery } from "../../log/delivery-schema.ts";
import { newer, older } from "../forms.ts";
import { type Html, html } from "../html.ts";
import {
  FIELD_FILTERS,
  type Fields,
  filterFields,
  filtersOf,
  hidden,
  searchOf,
  valuesOf,
} from "../log-filters.ts";
import { statusOf } from "../replay-progress.ts";
import type { Screen, View } from "../screen.ts";
import { momentOf, readableUntil } from "../times.ts";
import { activityPanel, rangeOf } from "./activity.ts";

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

/** The delivery log, newest first. */
export const deliveriesScreen: Screen = {
  method: "GET",
  path: "/deliveries",
  show: async (view) => {
    const { query, session } = view;
    const asked = filtersOf(query, session.timeZone);
    if (searchOf(asked) !== searchOf(query)) return { goTo: address(view, asked) };
    const { range: _, ...listed } = asked;
    const [{ body: page, headers }, activity] = await Promise.all([
      view.askWithHeaders<Page>("webhooks.deliveries.list", {
        query: { ...listed, limit: String(PAGE_ITEMS) },
      }),
      view.isOfAccount &&
        activityPanel(view, rangeOf(asked), (changed) => address(view, asked, changed), asked),
    ]);
    const isCapped = headers["total-capped"] === "true";
    const hasSome = page.items.length > 0 || isAsked(asked);
    return {
      title: "Deliveries",
      main: html`<div class="head"><h1>Deliveries</h1></div>
${hasSome && [activity, tabs(view, asked), filterForm(view, asked)]}
${page.items.length === 0 && page.next_cursor === null ? empty(view, asked) : table(view, asked, page, isCapped)}`,
    };
  },
};

function tabs(view: View, asked: Fields): Html {
  const here = [...valuesOf(asked, "status")].sort().join();
  const links = VIEWS.map(({ name, status }) => {
    const isHere = [...status].sort().join() === here;
    const href = address(view, asked, { status, cursor: [] });
    return html`<a href="${href}"${isHere && html` aria-current="true"`}>${name}</a>`;
  });
  return html`<nav class="tabs" aria-label="Which deliveries">${links}</nav>`;
}

function filterForm(view: View, asked: Fields): Html {
  const isFiltered = [...FIELD_FILTERS, "replay_id"].some((name) => asked[name] !== undefined);
  const replayId = asked.replay_id;
  const none = Object.fromEntries([...FIELD_FILTERS, "replay_id", "cursor"].map((name) => [name, []]));
  return html`<details class="fold"${isFiltered && html` open`}><summary>Filters</summary>
<form class="filters" method="get" action="${view.base}/deliveries" role="search">
${["status", "range"].flatMap((name) => valuesOf(asked, name).map((value) => hidden(name, value)))}
${filterFields(asked, view.session.timeZone, true)}
<button>Filter</button>
${isFiltered && html`<a href="${address(view, asked, none)}">Clear filters</a>`}
</form></details>
${typeof replayId === "string" && ofReplay(view, replayId)}`;
}

function ofReplay(view: View, replayId: string): Html {
  const words = view.may("webhooks:replay")
    ? html`<a href="${view.base}/replays/${replayId}">a bulk replay</a>`
    : "a bulk replay";
  return html`<p>Only deliveries whose current run was started by ${words}.</p>`;
}

function table(view: View, asked: Fields, { items, next_cursor, total }: Page, isCapped: boolean): Html {
  const count = `${total.toLocaleString("en")} ${total === 1 ? "delivery" : "deliveries"}`;
  return html`<div class="count"><p>${isCapped && "at least "}${count}</p>${replayAll(view, asked)}</div>
${newer(address(view, asked))}
<table class="log deliveries">
<thead><tr><th scope="col">Status</th><th scope="col">Analysis</th><th scope="col">Published</th>
<th scope="col">Target</th><th scope="col" class="number">Attempts</th><th scope="col">Last error</th></tr></thead>
${items.map((item) => row(view, item))}
</table>
${next_cursor !== null && older(address(view, asked, { cursor: next_cursor }))}`;
}

/** Of these, what can be replayed; not there where nothing of them can, or the viewer may not. */
function replayAll(view: View, asked: Fields): Html | null {
  const statuses = valuesOf(asked, "status");
  const status = statuses.filter((one) => isReplayable(one as Listed["status"]));
  if (!view.may("webhooks:replay") || (statuses.length > 0 && status.length === 0)) return null;
  const { cursor: _, limit: __, range: ___, ...filters } = asked;
  const href = `${view.base}/replays/new${searchOf({ ...filters, status })}`;
  return html`<a class="button" href="${href}">Replay all that match…</a>`;
}

function row(view: View, item: Listed): Html {
  const hasFailed = item.status === "failed" || item.status === "abandoned";
  const cause = hasFailed ? causeOf(item) : "";
  return html`<tbody id="d-${item.id}">
<tr>
<td>${statusOf(item.status)}</td>
<td><a href="${view.base}/deliveries/${item.id}">${item.analysis_id}</a></td>
<td data-label="Published">${momentOf(item.created_at, view.session.timeZone)}</td>
<td data-label="Target">${hostOf(item.target_url)}</td>
<td data-label="Attempts" class="number">${item.attempts_count}</td>
<td data-label="Last error">${item.last_error_code !== null && html`<code>${item.last_error_code}</code>`}</td>
</tr>
${(hasFailed || item.held) && html`<tr class="why"><td></td><td colspan="5">${cause} ${whatNext(view, item)}</td></tr>`}
</tbody>`;
}

/** In a sentence; the whole explanation is on the delivery's page. */
function causeOf({ reason, last_error_code }: Listed): string {
  const isReasonTheCause =
    reason === "no_target" || reason === "analysis_expired" || reason === "interrupted";
  if (last_error_code !== null && !isReasonTheCause) return explainErrorCode(last_error_code).message;
  return reason === null ? "The last attempt failed." : explainEndReason(reason).message;
}

function whatNext(view: View, item: Listed): Html | null {
  const { timeZone } = view.session;
  if (item.held) return html`It is held: see <a href="${view.base}/endpoint">the endpoint</a>.`;
  if (item.status === "failed") {
    if (item.in_flight || item.next_attempt_at === null) return html`The next attempt is on its way.`;
    return html`Next attempt: ${momentOf(item.next_attempt_at, timeZone)}.`;
  }
  // A URL that came with the request stays as it is, and is refused again.
  const isInVain = item.reason === "target_refused" && item.target_source === "request";
  if (isInVain || item.reason === "analysis_expired") return null;
  return html`Replay until ${readableUntil(item.created_at, view.analysisRetentionMs, timeZone)}.`;
}

/** What is no URL was published by SQL, which refuses only what is plainly wrong: it is shown as it is. */
function hostOf(url: string | null): string {
  return url === null ? "–" : (URL.parse(url)?.host ?? url);
}

function empty(view: View, asked: Fields): Html {
  return !isAsked(asked)
    ? html`<section class="empty"><h2>Nothing has been published yet</h2>
<p>As soon as an analysis is finished, its delivery shows up here.</p></section>`
    : html`<section class="empty"><h2>No delivery matches</h2>
<p><a href="${view.base}/deliveries">Show all deliveries</a></p></section>`;
}

/** Whether anything but the chart's range was asked for. */
function isAsked({ range: _, ...filters }: Fields): boolean {
  return Object.keys(filters).length > 0;
}

/** The log's address with these filters, some of them changed; an empty list takes one away. */
function address({ base }: View, asked: Fields, changed: Fields = {}): string {
  return `${base}/deliveries${searchOf({ ...asked, ...changed })}`;
}
