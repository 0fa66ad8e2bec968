import type { z } from "zod";
import { explainErrorCode } from "../../base/model/error-codes.ts";
import { TARGET_HOST } from "../../base/model/formats.ts";
import { DAY_MS } from "../../base/model/time.ts";
import type { Activity } from "../../log/activity-api.ts";
import { type Html, html } from "../html.ts";
import { type Fields, searchOf } from "../log-filters.ts";
import { number } from "../replay-progress.ts";
import type { View } from "../screen.ts";
import { clockText } from "../times.ts";

export type ShownActivity = z.output<typeof Activity>;

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** What the chart can show. A bar is wide enough to be hit on a telephone. */
export const RANGES = [
  { name: "1h", words: "hour", bucket: "5m", barMs: 5 * MINUTE_MS, bars: 12 },
  { name: "24h", words: "24 hours", bucket: "5m", barMs: 15 * MINUTE_MS, bars: 96 },
  { name: "7d", words: "7 days", bucket: "1h", barMs: 2 * HOUR_MS, bars: 84 },
  { name: "30d", words: "30 days", bucket: "1d", barMs: DAY_MS, bars: 30 },
] as const;
export type Range = (typeof RANGES)[number];

export type Bar = {
  readonly fromMs: number;
  readonly toMs: number;
  readonly succeeded: number;
  readonly failed: number;
};

/** Where the last bar ends: the one that it is now. */
function endOf({ barMs }: Range, nowMs: number): number {
  return Math.ceil(nowMs / barMs) * barMs;
}

function startOf(range: Range, nowMs: number): number {
  return endOf(range, nowMs) - range.bars * range.barMs;
}

/** The range's bars, oldest first, with what the items say of them. */
function barsOf(range: Range, items: ShownActivity["items"], nowMs: number): readonly Bar[] {
  const startMs = startOf(range, nowMs);
  const bars = Array.from({ length: range.bars }, (_, n) => {
    const fromMs = startMs + n * range.barMs;
    return { fromMs, toMs: fromMs + range.barMs, succeeded: 0, failed: 0 };
  });
  for (const { at, succeeded, failed } of items) {
    const bar = bars[Math.floor((Date.parse(at) - startMs) / range.barMs)];
    if (bar === undefined) continue;
    bar.succeeded += succeeded;
    bar.failed += failed;
  }
  return bars;
}

export type Chart = {
  readonly range: Range;
  readonly bars: readonly Bar[];
  /** What ended later is not counted yet. */
  readonly countedToMs: number;
  readonly timeZone: string | null;
  /** The address of the log with a bar's time as its filter. */
  readonly hrefOf: (bar: Bar) => string;
  readonly isChosen: (bar: Bar) => boolean;
};

const WIDTH = 10;
const HEIGHT = 64;
/** However few: what failed must be seen beside thousands that did not. */
const LEAST = 3;

/** Bars that are links, failed attempts below. The table tells the same to whoever cannot see or point. */
function chartOf({ range, bars, countedToMs, timeZone, hrefOf, isChosen }: Chart): Html {
  const most = Math.max(1, ...bars.map(({ succeeded, failed }) => succeeded + failed));
  const height = (count: number) =>
    count === 0 ? 0 : Math.max(LEAST, Math.round((count / most) * (HEIGHT - LEAST)));
  const drawn = bars.map((bar, n) => {
    if (bar.succeeded + bar.failed === 0) return null;
    const [failed, succeeded] = [height(bar.failed), height(bar.succeeded)];
    const x = n * WIDTH;
    return html`<a href="${hrefOf(bar)}" tabindex="-1"${isChosen(bar) && html` aria-current="true"`}>
<title>${barText(bar, timeZone)}</title><path class="hit" d="M${x} 0h${WIDTH}v${HEIGHT}h-${WIDTH}z"/>${
      succeeded > 0 && column("arrived", x, HEIGHT - failed - succeeded, succeeded)
    }${failed > 0 && column("failed", x, HEIGHT - failed, failed)}</a>`;
  });
  const width = bars.length * WIDTH;
  const startMs = bars[0]?.fromMs ?? 0;
  const countedX = Math.max(0, Math.round(((countedToMs - startMs) / range.barMs) * WIDTH));
  const label = `Attempts by when they ended, last ${range.words}`;
  return html`<svg class="bars" viewBox="0 0 ${width} ${HEIGHT}" preserveAspectRatio="none" role="group"
  aria-label="${label}">${
    countedX < width && html`<path class="later" d="M${countedX} 0H${width}V${HEIGHT}H${countedX}z"/>`
  }${drawn}</svg>`;
}

function column(kind: "arrived" | "failed", x: number, y: number, height: number): Html {
  return html`<path class="${kind}" d="M${x + 1} ${y}h${WIDTH - 2}v${height}h-${WIDTH - 2}z"/>`;
}

/** The chart's twin: what can be read and reached by keyboard. */
function tableOf({ bars, timeZone, hrefOf }: Chart): Html {
  const rows = bars
    .filter(({ succeeded, failed }) => succeeded + failed > 0)
    .map(
      (bar) =>
        html`<tr><td><a href="${hrefOf(bar)}">${spanText(bar, timeZone)}</a></td>
<td class="number">${bar.succeeded}</td><td class="number">${bar.failed}</td></tr>`,
    );
  return html`<details><summary>As a table</summary>
<table><thead><tr><th scope="col">Ended</th><th scope="col" class="number">Arrived</th>
<th scope="col" class="number">Failed</th></tr></thead><tbody>${rows}</tbody></table></details>`;
}

function barText(bar: Bar, timeZone: string | null): string {
  const counts = `${bar.succeeded.toLocaleString("en")} arrived, ${bar.failed.toLocaleString("en")} failed`;
  return `${spanText(bar, timeZone)}: ${counts}`;
}

function spanText({ fromMs, toMs }: Bar, timeZone: string | null): string {
  const end = toMs - fromMs >= DAY_MS ? "date" : "time";
  return `${clockText(fromMs, timeZone, "date")} to ${clockText(toMs, timeZone, end)}`;
}

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
