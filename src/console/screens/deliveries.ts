import { explainEndReason, explainErrorCode } from "../../base/model/error-codes.ts";
import { hasNothingLeft, isReplayable } from "../../base/model/statuses.ts";
import type { Delivery } from "../../log/delivery-schema.ts";
import { type Html, html } from "../html.ts";
import {
  FIELD_FILTERS,
  filterFields,
  filterForm,
  filtersOf,
  noMatch,
  searchOf,
  valuesOf,
} from "../log-filters.ts";
import { type Column, counted, DELIVERY_SIGNS, hidden, newer, older, table } from "../parts.ts";
import { type Answers, type Fields, get, type View } from "../screen.ts";
import { awaitedOf, momentOf, readableUntil } from "../times.ts";
import { activityPanel } from "./activity.ts";

/** The views of the log that people ask for, each a list of statuses. */
const VIEWS = [
  { name: "Needs attention", status: ["failed", "abandoned"] },
  { name: "Pending", status: ["pending"] },
  { name: "Arrived", status: ["succeeded"] },
  { name: "All", status: [] },
] as const;

const PAGE_ITEMS = 50;

/** The delivery log, newest first. */
export const deliveriesScreen = get("/deliveries", async (view) => {
  const { query, session } = view;
  const asked = filtersOf(query, session.timeZone);
  if (searchOf(asked) !== searchOf(query)) return { goTo: address(view, asked) };
  const { range: _, ...listed } = asked;
  const [{ body: page, headers }, activity] = await Promise.all([
    view.askWithHeaders("webhooks.deliveries.list", { query: { ...listed, limit: String(PAGE_ITEMS) } }),
    view.isOfAccount && activityPanel(view, asked, (changed) => address(view, asked, changed)),
  ]);
  const isEmpty = page.items.length === 0 && page.next_cursor === null;
  const hasSome = page.items.length > 0 || isAsked(asked);
  return {
    title: "Deliveries",
    main: html`${hasSome && [activity, tabs(view, asked), filters(view, asked)]}
${isEmpty ? empty(view, asked) : log(view, asked, page, headers["total-capped"] === "true")}`,
  };
});

function tabs(view: View, asked: Fields): Html {
  const here = [...valuesOf(asked, "status")].sort().join();
  const links = VIEWS.map(({ name, status }) => {
    const isHere = [...status].sort().join() === here;
    const href = address(view, asked, { status, cursor: [] });
    return html`<a href="${href}"${isHere && html` aria-current="true"`}>${name}</a>`;
  });
  return html`<nav class="tabs" aria-label="Which deliveries">${links}</nav>`;
}

function filters(view: View, asked: Fields): Html {
  const names = [...FIELD_FILTERS, "replay_id"];
  const isFiltered = names.some((name) => asked[name] !== undefined);
  const none = Object.fromEntries([...names, "cursor"].map((name) => [name, []]));
  const fields = html`
${["status", "range"].flatMap((name) => valuesOf(asked, name).map((value) => hidden(name, value)))}
${filterFields(asked, view.session.timeZone, true)}`;
  const clearHref = isFiltered ? address(view, asked, none) : null;
  return html`${filterForm(`${view.base}/deliveries`, "filters", fields, clearHref)}
${typeof asked.replay_id === "string" && ofReplay(view, asked.replay_id)}`;
}

function ofReplay(view: View, replayId: string): Html {
  const words = view.may("webhooks:replay")
    ? html`<a href="${view.base}/replays/${replayId}">a bulk replay</a>`
    : "a bulk replay";
  return html`<p>Only deliveries whose current run was started by ${words}.</p>`;
}

function log(
  view: View,
  asked: Fields,
  { items, next_cursor: next, total }: Answers["webhooks.deliveries.list"],
  isCapped: boolean,
): Html {
  const columns: readonly Column<Delivery>[] = [
    { name: "Status", label: null, cell: ({ status }) => DELIVERY_SIGNS[status] },
    {
      name: "Analysis",
      label: null,
      cell: ({ id, analysis_id }) => html`<a href="${view.base}/deliveries/${id}">${analysis_id}</a>`,
    },
    { name: "Published", cell: ({ created_at }) => momentOf(created_at, view.session.timeZone) },
    { name: "Target", cell: ({ target_url }) => hostOf(target_url) },
    { name: "Attempts", isNumber: true, cell: ({ attempts_count }) => attempts_count },
    { name: "Last error", cell: ({ last_error_code: code }) => code !== null && html`<code>${code}</code>` },
  ];
  return html`<div class="count"><p>${isCapped && "at least "}${counted(total, "delivery", "deliveries")}</p>
${replayAll(view, asked)}</div>
${newer(address(view, asked))}
${table("deliveries", columns, items, {
  idOf: ({ id }) => `d-${id}`,
  below: (item) => whyOf(view, item),
})}
${next !== null && older(address(view, asked, { cursor: next }))}`;
}

/** Of these, what can be replayed; not there where nothing of them can, or the viewer may not. */
function replayAll(view: View, asked: Fields): Html | null {
  const statuses = valuesOf(asked, "status");
  const status = statuses.filter((one) => isReplayable(one as Delivery["status"]));
  if (!view.may("webhooks:replay") || (statuses.length > 0 && status.length === 0)) return null;
  const { cursor: _, limit: __, range: ___, ...filters } = asked;
  const href = `${view.base}/replays/new${searchOf({ ...filters, status })}`;
  return html`<a class="button" href="${href}">Replay all that match…</a>`;
}

/** Why it has not arrived, and what is next, in a line; null: nothing has gone wrong. */
export function whyOf(view: View, item: Delivery): Html | null {
  const hasFailed = isReplayable(item.status);
  if (!hasFailed && !item.held) return null;
  return html`${hasFailed && causeOf(item)} ${whatNext(view, item)}`;
}

/** In a sentence; the whole explanation is on the delivery's page. */
function causeOf({ reason, last_error_code }: Delivery): string {
  const isReasonTheCause = reason === "no_target" || hasNothingLeft(reason) || reason === "interrupted";
  if (last_error_code !== null && !isReasonTheCause) return explainErrorCode(last_error_code).message;
  return reason === null ? "The last attempt failed." : explainEndReason(reason).message;
}

function whatNext(view: View, item: Delivery): Html | null {
  const { timeZone } = view.session;
  if (item.held) return html`It is held: see <a href="${view.base}/endpoint">the endpoint</a>.`;
  if (item.status === "failed") {
    if (item.in_flight || item.next_attempt_at === null) return html`The next attempt is on its way.`;
    return html`Next attempt: ${awaitedOf(item.next_attempt_at, timeZone, view.nowMs)}.`;
  }
  // A URL that came with the request stays as it is, and is refused again.
  const cannotSucceed = item.reason === "target_refused" && item.target_source === "request";
  if (cannotSucceed || hasNothingLeft(item.reason)) return null;
  return html`Replay until ${readableUntil(item.created_at, view.installation.analysisRetentionMs, timeZone)}.`;
}

/** What is no URL was published by SQL, which refuses only what is plainly wrong: it is shown as it is. */
function hostOf(url: string | null): string {
  return url === null ? "–" : (URL.parse(url)?.host ?? url);
}

function empty(view: View, asked: Fields): Html {
  return isAsked(asked)
    ? noMatch("No delivery matches", `${view.base}/deliveries`, "Show all deliveries")
    : html`<section class="empty"><h2>Nothing has been published yet</h2>
<p>As soon as an analysis is finished, its delivery shows up here.</p></section>`;
}

/** Whether anything but the chart's range was asked for. */
function isAsked({ range: _, ...filters }: Fields): boolean {
  return Object.keys(filters).length > 0;
}

/** The log's address with these filters, some of them changed; an empty list takes one away. */
function address({ base }: View, asked: Fields, changed: Fields = {}): string {
  return `${base}/deliveries${searchOf({ ...asked, ...changed })}`;
}
