import { explainErrorCode } from "../../model/error-codes.ts";
import { TARGET_HOST } from "../../model/target-host.ts";
import { DAY_MS } from "../../model/time.ts";
import {
  type Bar,
  barsOf,
  type Chart,
  chartOf,
  endOf,
  RANGES,
  type Range,
  type ShownActivity,
  startOf,
  tableOf,
} from "../activity-chart.ts";
import { type Html, html } from "../html.ts";
import { type Fields, searchOf } from "../log-filters.ts";
import { number } from "../replay-progress.ts";
import type { View } from "../screen.ts";
import { clockText } from "../times.ts";

const USUAL_RANGE = RANGES[1];
/** Counting is a minute behind while it works. */
const BEHIND_MS = 3 * 60_000;
const CAUSES_MAX = 5;

type Address = (changed: Fields) => string;
type Cause = ShownActivity["top"][number];

/** The chart's range that an address asks for. */
export function rangeOf(asked: Fields): Range {
  return RANGES.find(({ name }) => name === asked.range) ?? USUAL_RANGE;
}

/** What the attempts of late say: what fails since when, a bar for each stretch of time, and why. */
export async function activityPanel(
  view: View,
  range: Range,
  address: Address,
  asked: Fields,
): Promise<Html> {
  const { nowMs, session } = view;
  const from = new Date(startOf(range, nowMs)).toISOString();
  const activity = await view.ask<ShownActivity>("webhooks.activity", {
    query: { from, bucket: range.bucket },
  });
  const bars = barsOf(range, activity.items, nowMs);
  const chart: Chart = {
    range,
    bars,
    countedToMs: Date.parse(activity.counted_to),
    timeZone: session.timeZone,
    hrefOf: (bar) => address({ ...timesOf(bar), cursor: [] }),
    isChosen: (bar) => isChosen(asked, bar),
  };
  return html`${await trouble(view, range, activity)}
<section class="activity" aria-label="Attempts">
<div class="line"><h2>Attempts</h2>${counts(bars)}${ranges(range, address)}</div>
${chartOf(chart)}
<p class="axis"><span>${clockText(startOf(range, nowMs), session.timeZone, "date")}</span>
${countedText(view, chart)}<span>${clockText(endOf(range, nowMs), session.timeZone, "time")}</span></p>
<div class="folds">${causes(activity.top, address)}
${bars.some(hasAttempts) && tableOf(chart)}</div>
</section>`;
}

function counts(bars: readonly Bar[]): Html {
  const sum = (name: "succeeded" | "failed") => bars.reduce((all, bar) => all + bar[name], 0);
  const [succeeded, failed] = [sum("succeeded"), sum("failed")];
  if (succeeded + failed === 0) return html`<p class="fine">none</p>`;
  return html`<ul class="counts"><li class="arrived"><span aria-hidden="true">✓</span> ${number(succeeded)} arrived</li>
<li class="failed"><span aria-hidden="true">✕</span> ${number(failed)} failed</li></ul>`;
}

function ranges(here: Range, address: Address): Html {
  const links = RANGES.map(
    (range) =>
      html`<a href="${address({ range: range === USUAL_RANGE ? [] : range.name })}"${
        range === here && html` aria-current="true"`
      }>${range.name}</a>`,
  );
  return html`<nav class="ranges" aria-label="Range of the chart">${links}</nav>`;
}

/** What is not counted must not look like silence. */
function countedText(view: View, { countedToMs }: Chart): Html {
  const to = clock(countedToMs, view);
  return view.nowMs - countedToMs > BEHIND_MS
    ? html`<strong class="behind">What ended after ${to} is not counted yet.</strong>`
    : html`<span>counted to ${to}</span>`;
}

/** With its date, unless that is plain. */
function clock(ms: number, { nowMs, session }: View): string {
  return clockText(ms, session.timeZone, nowMs - ms > DAY_MS / 2 ? "date" : "time");
}

/** The host that fails most and has not succeeded since, in a sentence. */
async function trouble(view: View, range: Range, { top }: ShownActivity): Promise<Html | null> {
  const failing = top.filter((cause) => cause.failing_since !== null && canBeAskedFor(cause));
  const [worst] = failing;
  if (worst === undefined) return null;
  const { target_host: host, last_success_at: succeededAt } = worst;
  const since = worst.failing_since!;
  const filters = { status: ["failed", "abandoned"], target_host: host, created_after: since };
  const { body, headers } = await view.askWithHeaders<{ total: number }>("webhooks.deliveries.list", {
    query: { ...filters, limit: "1" },
  });
  const atLeast = headers["total-capped"] === "true" ? "at least " : "";
  const time = (iso: string) => clock(Date.parse(iso), view);
  const when = succeededAt === null ? `In the last ${range.words}` : `Since ${time(since)}`;
  const others = new Set(failing.map((cause) => cause.target_host)).size - 1;
  const what =
    body.total === 0
      ? html`no attempt has arrived at ${host}.`
      : html`<a href="${view.base}/deliveries${searchOf(filters)}">${atLeast}${number(body.total)} ${
          body.total === 1 ? "event" : "events"
        }</a> ${body.total === 1 ? "has" : "have"} not arrived at ${host}.`;
  return html`<p class="trouble"><strong>${when}, ${what}</strong> ${explainErrorCode(worst.error_code).message}
${succeededAt !== null && `Last success: ${time(succeededAt)}.`}
${succeededAt === null && body.total > 0 && "No attempt has arrived there in that time."}
${others > 0 && `${others} other ${others === 1 ? "host fails" : "hosts fail"}, too.`}</p>`;
}

function causes(top: ShownActivity["top"], address: Address): Html | null {
  if (top.length === 0) return null;
  const most = Math.max(...top.map(({ attempts }) => attempts));
  const items = top.slice(0, CAUSES_MAX).map((cause) => {
    const width = Math.max(1, Math.round((cause.attempts / most) * 100));
    return html`<li><a href="${address(filtersOf(cause))}"><code>${cause.error_code}</code> ${cause.target_host}</a>
<span class="number">${number(cause.attempts)}</span>
<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><path d="M0 0h${width}v8H0z"/></svg></li>`;
  });
  const more = top.length - items.length;
  return html`<details class="fold"><summary>Why attempts failed</summary>
<h3>Why attempts failed</h3><ul class="causes">${items}</ul>
${more > 0 && html`<p class="fine">and for ${more} more ${more === 1 ? "reason" : "reasons"}</p>`}</details>`;
}

/** As the filters of an address have a time. */
function timesOf({ fromMs, toMs }: Bar): Fields {
  return { created_after: new Date(fromMs).toISOString(), created_before: new Date(toMs).toISOString() };
}

function isChosen({ created_after: after, created_before: before }: Fields, { fromMs, toMs }: Bar): boolean {
  return fromMs >= Date.parse(String(after)) && toMs <= Date.parse(String(before));
}

function hasAttempts({ succeeded, failed }: Bar): boolean {
  return succeeded + failed > 0;
}

function filtersOf({ error_code, target_host }: Cause): Fields {
  return { error_code, target_host: canBeAskedFor({ target_host }) ? target_host : [], cursor: [] };
}

function canBeAskedFor({ target_host }: Pick<Cause, "target_host">): boolean {
  return TARGET_HOST.test(target_host);
}
