import { explainEndReason, explainErrorCode } from "../../base/model/error-codes.ts";
import type { DeliveredWorkflow } from "../../base/model/origins.ts";
import { hasNothingLeft, isReplayable } from "../../base/model/statuses.ts";
import type { Delivery } from "../../log/delivery-schema.ts";
import { marking, NO_MARKS } from "../field-marks.ts";
import { type Html, html } from "../html.ts";
import {
  FILTER_NAMES,
  filterFields,
  filtersOf,
  NO_FILTERS,
  noMatch,
  searchOf,
  valuesOf,
} from "../log-filters.ts";
import {
  type Column,
  DELIVERY_SIGNS,
  hidden,
  newer,
  number,
  older,
  plain,
  type RowGroup,
  table,
  unless,
} from "../parts.ts";
import { type Answers, type Fields, get, type View } from "../screen.ts";
import { awaitedOf, briefOf, distanceOf, momentOf, readableUntil } from "../times.ts";
import { activityPanel } from "./activity.ts";
import { workflowNamesOf } from "./run.ts";

/** The views of the log that people ask for, each a list of statuses. */
const VIEWS = [
  { name: "Needs attention", status: ["failed", "abandoned"] },
  { name: "Pending", status: ["pending"] },
  { name: "Arrived", status: ["succeeded"] },
  { name: "All", status: [] },
] as const;

const PAGE_ITEMS = 50;

/** What an address says of the page alone, and the log is not asked for. */
const OF_PAGE = ["range", "group"];

type Listed = Answers["webhooks.deliveries.list"] & {
  readonly isCapped: boolean;
  /** By deliveries' ids; of those that a run has published. */
  readonly workflows: ReadonlyMap<string, DeliveredWorkflow>;
};

/** The delivery log, newest first. */
const showDeliveries = marking(async (view, marks) => {
  const { query, session } = view;
  const asked = filtersOf(query, session.timeZone);
  if (searchOf(asked) !== searchOf(query)) return { goTo: address(view, asked) };
  if (marks.areAny) return { title: "Deliveries", main: bar(view, asked, null, marks) };
  const [{ body, headers }, activity] = await Promise.all([
    view.askWithHeaders("webhooks.deliveries.list", {
      query: { ...withoutPage(asked), limit: String(PAGE_ITEMS) },
    }),
    view.isOfAccount && activityPanel(view, asked, (changed) => address(view, asked, changed)),
  ]);
  const workflows = await workflowNamesOf(view, body.items);
  const listed = { ...body, workflows, isCapped: headers["total-capped"] === "true" };
  // Whoever has an id, or enough of one, wants what it names.
  const [only, ...others] = listed.items;
  const isNamed = only?.analysis_id === asked.q || only?.id.startsWith(String(asked.q).toLowerCase());
  const isSearchAlone = Object.keys(withoutPage(asked)).join() === "q";
  if (isSearchAlone && only !== undefined && others.length === 0 && isNamed) {
    return { goTo: `${view.base}/deliveries/${only.id}` };
  }
  const isEmpty = listed.items.length === 0 && listed.next_cursor === null;
  const isAsked = Object.keys(withoutPage(asked)).length > 0;
  if (isEmpty && !isAsked) return { title: "Deliveries", main: await nothingYet(view) };
  return {
    title: "Deliveries",
    main: html`${activity}${bar(view, asked, listed)}${chips(view, asked, listed)}
${
  isEmpty
    ? noMatch("No delivery matches", `${view.base}/deliveries`, "Show all deliveries")
    : log(view, asked, listed)
}`,
  };
});

export const deliveriesScreen = get("/deliveries", showDeliveries);

function withoutPage(asked: Fields): Fields {
  return Object.fromEntries(Object.entries(asked).filter(([name]) => !OF_PAGE.includes(name)));
}

/** The views, the one field that finds anything, what it is filtered by, and what can be done with all of them. */
function bar(view: View, asked: Fields, listed: Listed | null, marks = NO_MARKS): Html {
  const here = [...valuesOf(asked, "status")].sort().join();
  const tabs = VIEWS.map(({ name, status }) => {
    const isHere = [...status].sort().join() === here;
    const count =
      isHere &&
      listed !== null &&
      html` <span class="fine">${number(listed.total)}${listed.isCapped && "+"}</span>`;
    const href = address(view, asked, { status, cursor: [] });
    return html`<a href="${href}"${isHere && html` aria-current="true"`}>${name}${count}</a>`;
  });
  const kept = ["status", ...OF_PAGE].flatMap((name) =>
    valuesOf(asked, name).map((value) => hidden(name, value)),
  );
  return html`<div class="bar"><nav class="tabs" aria-label="Which deliveries">${tabs}</nav>
<form method="get" action="${view.base}/deliveries" role="search">${kept}
${marks.field(
  ["q"],
  (marked) => html`<input type="search" name="q" value="${valuesOf(asked, "q").join()}" maxlength="255"
  autocomplete="off" spellcheck="false" aria-label="Find an analysis, a delivery or a host"
  placeholder="Analysis, delivery or host"${marked}>`,
)}
<details class="more"${marks.areAny && html` open`}><summary>More filters</summary><div class="filters">
${filterFields(asked, view.session.timeZone, true, marks)}<button>Filter</button></div></details>
</form>${listed !== null && replayAll(view, asked)}</div>`;
}

/** What it is filtered by, each with a way to do without. */
function chips(view: View, asked: Fields, { workflows }: Listed): Html | null {
  const { timeZone } = view.session;
  const set = Object.keys(NO_FILTERS).flatMap((name) =>
    valuesOf(asked, name).map((value) => ({ name, value })),
  );
  if (set.length === 0) return null;
  const items = set.map(({ name, value }) => {
    const shown = name.startsWith("created_") ? momentOf(value, timeZone) : html`<code>${value}</code>`;
    const workflow = name === "workflow_id" && [...workflows.values()].find(({ id }) => id === value)?.name;
    const told = name === "replay_id" ? replayLink(view, value) : workflow || shown;
    const rest = valuesOf(asked, name).filter((other) => other !== value);
    const href = address(view, asked, { [name]: rest, cursor: [] });
    return html`<li>${FILTER_NAMES[name] ?? name} ${told}
<a href="${href}" aria-label="Without this filter">✕</a></li>`;
  });
  const all = address(view, asked, { ...NO_FILTERS, cursor: [] });
  return html`<ul class="chips" aria-label="Filters">${items}
<li><a href="${all}">Clear filters</a></li></ul>`;
}

function replayLink({ may, base }: View, replayId: string): Html {
  const words = "a bulk replay";
  return may("webhooks:replay") ? html`<a href="${base}/replays/${replayId}">${words}</a>` : html`${words}`;
}

/** Of these, what can be replayed; not there where nothing of them can, or the viewer may not. */
function replayAll(view: View, asked: Fields): Html | null {
  if (!canReplayAll(view, asked)) return null;
  const words = asked.status === undefined ? "Replay failing and abandoned…" : "Replay all that match…";
  return html`<a class="button end" href="${replayHref(view, asked)}">${words}</a>`;
}

/** A replay's set is filtered, not searched for. */
function canReplayAll({ may }: View, asked: Fields): boolean {
  const statuses = valuesOf(asked, "status");
  const areSome = statuses.length === 0 || replayableOf(asked).length > 0;
  return may("webhooks:replay") && areSome && asked.q === undefined && asked.workflow_id === undefined;
}

function replayableOf(asked: Fields): readonly string[] {
  return valuesOf(asked, "status").filter((one) => isReplayable(one as Delivery["status"]));
}

function replayHref({ base }: View, asked: Fields): string {
  const { cursor: _, limit: __, ...filters } = withoutPage(asked);
  return `${base}/replays/new${searchOf({ ...filters, status: replayableOf(asked) })}`;
}

function log(view: View, asked: Fields, { items, next_cursor: next, workflows }: Listed): Html {
  const { timeZone } = view.session;
  const isOfFailures =
    asked.status !== undefined && valuesOf(asked, "status").length === replayableOf(asked).length;
  const isGrouped = isOfFailures && asked.group !== "off";
  const toggle =
    isOfFailures &&
    html` <a href="${address(view, asked, { group: isGrouped ? "off" : [] })}">${
      isGrouped ? "Ungroup" : "Group by cause"
    }</a>`;
  const workflowOf = (item: Delivery) => {
    const workflow = workflows.get(item.id);
    if (workflow === undefined) return null;
    const href = address(view, asked, { workflow_id: workflow.id, cursor: [] });
    return html`<a class="over" href="${href}">${workflow.name}</a>`;
  };
  const columns: readonly Column<Delivery>[] = [
    { name: "Status", label: null, cell: ({ status }) => DELIVERY_SIGNS[status] },
    {
      name: "Analysis",
      label: null,
      cell: ({ id, analysis_id }) =>
        html`<a class="row" href="${view.base}/deliveries/${id}">${analysis_id}</a>`,
    },
    { name: "Published", label: null, cell: ({ created_at }) => briefOf(created_at, timeZone, view.nowMs) },
    { name: "Attempts", isNumber: true, cell: ({ attempts_count }) => attempts_count },
    ...(isGrouped ? [] : CAUSE_COLUMNS),
    ...(workflows.size > 0 ? [{ name: "Workflow", label: null, cell: workflowOf }] : []),
    {
      name: "Next",
      label: null,
      beside: toggle,
      cell: (item) => html`<span class="soft">${nextOf(view, item)}</span>`,
    },
  ];
  const groups = isGrouped ? groupsOf(view, asked, items, next !== null) : plain(items);
  return html`${newer(address(view, asked))}
${table(`deliveries${isGrouped ? " grouped" : ""}`, columns, groups, { idOf: ({ id }) => `d-${id}` })}
${next !== null && older(address(view, asked, { cursor: next }))}`;
}

const CAUSE_COLUMNS: readonly Column<Delivery>[] = [
  { name: "Host", label: null, cell: ({ target_url }) => hostOf(target_url) },
  {
    name: "Last error",
    label: null,
    cell: (item) => {
      const code = codeOf(item);
      return (
        code !== null && html`<code title="${isReplayable(item.status) ? causeOf(item) : ""}">${code}</code>`
      );
    },
  },
];

/** Those that fail for the same reason at the same host, under a line that says it once. */
function groupsOf(
  view: View,
  asked: Fields,
  items: readonly Delivery[],
  areThereMore: boolean,
): readonly RowGroup<Delivery>[] {
  const keyOf = (item: Delivery) => `${codeOf(item)} ${hostOf(item.target_url)}`;
  const groups = [...Map.groupBy(items, keyOf).values()].sort((one, other) => other.length - one.length);
  return groups.map((rows) => {
    const [item] = rows as [Delivery, ...Delivery[]];
    const [code, host] = [codeOf(item), URL.parse(item.target_url ?? "")?.hostname];
    const where = host ? address(view, asked, { target_host: host, cursor: [] }) : null;
    const replay =
      host && code === item.last_error_code && code !== null && canReplayAll(view, asked)
        ? replayHref(view, { ...asked, target_host: host, error_code: code })
        : null;
    const count = `${number(rows.length)}${areThereMore ? " on this page" : ""}`;
    return {
      id: `g-${Buffer.from(keyOf(item)).toString("base64url")}`,
      heading: html`<strong>${count} ×</strong> ${code !== null && html`<code class="bad">${code}</code>`}
${where !== null && html`at <a href="${where}">${hostOf(item.target_url)}</a>`}
<span class="soft">${causeOf(item)}</span> ${
        replay !== null && html`<a class="over" href="${replay}">Replay these…</a>`
      }`,
      rows,
    };
  });
}

/** Why it has not arrived, and what is next, in a line; null: nothing has gone wrong. */
export function whyOf(view: View, item: Delivery): Html | null {
  const hasFailed = isReplayable(item.status);
  if (!hasFailed && !item.held) return null;
  return html`${hasFailed && causeOf(item)} ${whatNext(view, item)}`;
}

/** What ended it, where the last attempt does not say why. */
function isReasonTheCause({ reason }: Delivery): boolean {
  return reason === "no_target" || hasNothingLeft(reason) || reason === "interrupted";
}

function codeOf(item: Delivery): string | null {
  return isReasonTheCause(item) ? item.reason : item.last_error_code;
}

/** In a sentence; the whole explanation is on the delivery's page. */
function causeOf(item: Delivery): string {
  const { reason, last_error_code } = item;
  if (last_error_code !== null && !isReasonTheCause(item)) return explainErrorCode(last_error_code).message;
  return reason === null ? "The last attempt failed." : explainEndReason(reason).message;
}

/** What happens to it, in a few words. */
function nextOf(view: View, item: Delivery): Html | string | null {
  const { status, held, in_flight, next_attempt_at: next, created_at } = item;
  const { session, nowMs, installation } = view;
  if (held) return "held while paused";
  if (in_flight) return "attempt under way";
  if (next !== null)
    return html`next ${briefOf(next, session.timeZone, nowMs)} (${distanceOf(Date.parse(next), nowMs)})`;
  if (status !== "abandoned") return null;
  const until = new Date(Date.parse(created_at) + installation.analysisRetentionMs).toISOString();
  return canReplay(item)
    ? html`replay until ${briefOf(until, session.timeZone, nowMs)}`
    : "cannot be replayed";
}

/** A URL that came with the request stays as it is, and is refused again. */
function canReplay({ reason, target_source }: Delivery): boolean {
  return !(reason === "target_refused" && target_source === "request") && !hasNothingLeft(reason);
}

function whatNext(view: View, item: Delivery): Html | null {
  const { timeZone } = view.session;
  if (item.held) return html`It is held: see <a href="${view.base}/endpoint">the endpoint</a>.`;
  if (item.status === "failed") {
    if (item.in_flight || item.next_attempt_at === null) return html`The next attempt is on its way.`;
    return html`Next attempt: ${awaitedOf(item.next_attempt_at, timeZone, view.nowMs)}.`;
  }
  if (!canReplay(item)) return null;
  return html`Replay until ${readableUntil(item.created_at, view.installation.analysisRetentionMs, timeZone)}.`;
}

/** What is no URL was published by SQL, which refuses only what is plainly wrong: it is shown as it is. */
function hostOf(url: string | null): string {
  return url === null ? "–" : (URL.parse(url)?.host ?? url);
}

/** What to do first, in order. */
async function nothingYet(view: View): Promise<Html> {
  const { base } = view;
  const endpoint = await unless("not_found", view.ask("webhooks.endpoint.get"));
  const may = view.may("webhooks:write");
  const [said, act] =
    endpoint === null
      ? ["Say where webhooks go.", "Set the endpoint"]
      : [html`Webhooks go to <code>${endpoint.url}</code>.`, "Send a test event"];
  return html`<section class="empty"><h2>Nothing has been published yet</h2>
<p>As soon as an analysis is finished, its delivery shows up here. Before that:</p>
<ol>
<li>${endpoint !== null && html`<span class="good" aria-hidden="true">✓</span> `}${said}${
    endpoint === null && !may && " Ask an administrator of the account to set the endpoint."
  }</li>
<li>Have your server <a href="/guide">verify what it gets</a>, with the endpoint's signing secret.</li>
<li>Send a test event: it is signed and delivered like any other, and listed here.</li>
</ol>
${may && html`<a class="button primary" href="${base}/endpoint">${act}</a>`}</section>`;
}

/** The log's address with these filters, some of them changed; an empty list takes one away. */
function address({ base }: View, asked: Fields, changed: Fields = {}): string {
  return `${base}/deliveries${searchOf({ ...asked, ...changed })}`;
}
