import { explainAnswerer } from "../../base/model/answered-by.ts";
import { explainErrorCode } from "../../base/model/error-codes.ts";
import { TARGET_HOST } from "../../base/model/formats.ts";
import { statusOfErrorCode } from "../../base/model/http-status-errors.ts";
import { DAY_MS } from "../../base/model/time.ts";
import type { Activity } from "../../log/activity-schema.ts";
import { type Html, html } from "../html.ts";
import { NO_FILTERS, searchOf } from "../log-filters.ts";
import { counted, number } from "../parts.ts";
import type { Fields, View } from "../screen.ts";
import { clockText, distanceOf } from "../times.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** What the chart can show. A bar is wide enough to be hit on a telephone. */
const RANGES = [
  { name: "1h", words: "hour", bucket: "5m", barMs: 5 * MINUTE_MS, bars: 12 },
  { name: "24h", words: "24 hours", bucket: "5m", barMs: 15 * MINUTE_MS, bars: 96 },
  { name: "7d", words: "7 days", bucket: "1h", barMs: 2 * HOUR_MS, bars: 84 },
  { name: "30d", words: "30 days", bucket: "1d", barMs: DAY_MS, bars: 30 },
] as const;
type Range = (typeof RANGES)[number];
const USUAL_RANGE = RANGES[1];

/** Counting is a minute behind while it works. */
const BEHIND_MS = 3 * MINUTE_MS;
const CAUSES_MAX = 5;

/** The log's address with these parameters changed. */
type Address = (changed: Fields) => string;

type Bar = {
  /** From and to when, by the viewer's clock. */
  readonly span: string;
  /** The log with this time as its filter. */
  readonly href: string;
  /** It is in the time that the log is filtered by. */
  readonly isChosen: boolean;
  succeeded: number;
  failed: number;
};

/** What the attempts of late say: what fails since when, a bar for each stretch of time, and why. */
export async function activityPanel(view: View, asked: Fields, address: Address): Promise<Html> {
  const { nowMs, session } = view;
  const range = RANGES.find(({ name }) => name === asked.range) ?? USUAL_RANGE;
  // The last bar is the one that it is now.
  const endMs = Math.ceil(nowMs / range.barMs) * range.barMs;
  const startMs = endMs - range.bars * range.barMs;
  const query = { from: new Date(startMs).toISOString(), bucket: range.bucket };
  const activity = await view.ask("webhooks.activity", { query });
  const countedToMs = Date.parse(activity.counted_to);
  const bars = barsOf(view, range, startMs, activity.items, asked, address);
  return html`${await trouble(view, range, activity, address)}
<section class="activity" aria-label="Attempts">
<div><div class="line"><h2>Attempts</h2>${counts(bars)}${ranges(range, address)}</div>
${chartOf(range, bars, (countedToMs - startMs) / range.barMs)}
<p class="axis"><span>${clockText(startMs, session.timeZone, "date")}</span>
${countedText(view, countedToMs)}<span>${clockText(endMs, session.timeZone, "time")}</span></p></div>
<div>${causes(activity.top, address)}${tableOf(bars)}</div>
</section>`;
}

/** The range's bars, oldest first, with what the items say of them. */
function barsOf(
  { session }: View,
  { bars: count, barMs }: Range,
  startMs: number,
  items: Activity["items"],
  { created_after: after, created_before: before }: Fields,
  address: Address,
): readonly Bar[] {
  const bars = Array.from({ length: count }, (_, n): Bar => {
    const [fromMs, toMs] = [startMs + n * barMs, startMs + (n + 1) * barMs];
    const [from, to] = [new Date(fromMs).toISOString(), new Date(toMs).toISOString()];
    const end = clockText(toMs, session.timeZone, barMs >= DAY_MS ? "date" : "time");
    return {
      span: `${clockText(fromMs, session.timeZone, "date")} to ${end}`,
      href: address({ created_after: from, created_before: to, cursor: [] }),
      isChosen: fromMs >= Date.parse(String(after)) && toMs <= Date.parse(String(before)),
      succeeded: 0,
      failed: 0,
    };
  });
  for (const { at, succeeded, failed } of items) {
    const bar = bars[Math.floor((Date.parse(at) - startMs) / barMs)];
    if (bar === undefined) continue;
    bar.succeeded += succeeded;
    bar.failed += failed;
  }
  return bars;
}

const WIDTH = 10;
const HEIGHT = 64;
/** However few: what failed must be seen beside thousands that did not. */
const LEAST = 3;

/**
 * Bars that are links, failed attempts below. The table tells the same to whoever cannot see or point.
 *
 * @param countedBars how many of them, with fractions, are counted; what ended later is not yet
 */
function chartOf({ words }: Range, bars: readonly Bar[], countedBars: number): Html {
  const most = Math.max(1, ...bars.map(({ succeeded, failed }) => succeeded + failed));
  const height = (count: number) =>
    count === 0 ? 0 : Math.max(LEAST, Math.round((count / most) * (HEIGHT - LEAST)));
  const column = (kind: string, x: number, y: number, height: number) =>
    html`<path class="${kind}" d="M${x + 1} ${y}h${WIDTH - 2}v${height}h-${WIDTH - 2}z"/>`;
  const drawn = bars.map(({ span, href, isChosen, succeeded, failed }, n) => {
    if (succeeded + failed === 0) return null;
    const [low, high] = [height(failed), height(succeeded)];
    const x = n * WIDTH;
    return html`<a href="${href}" tabindex="-1"${isChosen && html` aria-current="true"`}>
<title>${span}: ${number(succeeded)} arrived, ${number(failed)} failed</title>
<path class="hit" d="M${x} 0h${WIDTH}v${HEIGHT}h-${WIDTH}z"/>
${succeeded > 0 && column("arrived", x, HEIGHT - low - high, high)}
${failed > 0 && column("failed", x, HEIGHT - low, low)}</a>`;
  });
  const width = bars.length * WIDTH;
  const countedX = Math.max(0, Math.round(countedBars * WIDTH));
  const later =
    countedX < width && html`<path class="later" d="M${countedX} 0H${width}V${HEIGHT}H${countedX}z"/>`;
  const isEmpty = bars.every(({ succeeded, failed }) => succeeded + failed === 0);
  const scale =
    !isEmpty && html`<span class="scale" title="Attempts of the highest bar">${number(most)}</span>`;
  return html`<div class="plot">${scale}
<svg class="bars" viewBox="0 0 ${width} ${HEIGHT}" preserveAspectRatio="none" role="group"
  aria-label="Attempts by when they ended, last ${words}">${later}${drawn}</svg></div>`;
}

/** The chart's twin: what can be read and reached by keyboard. */
function tableOf(bars: readonly Bar[]): Html | null {
  const rows = bars.flatMap(({ span, href, succeeded, failed }) =>
    succeeded + failed === 0
      ? []
      : html`<tr><td><a href="${href}">${span}</a></td>
<td class="number">${succeeded}</td><td class="number">${failed}</td></tr>`,
  );
  if (rows.length === 0) return null;
  return html`<details><summary>Attempts as a table</summary>
<table><thead><tr><th scope="col">Ended</th><th scope="col" class="number">Arrived</th>
<th scope="col" class="number">Failed</th></tr></thead><tbody>${rows}</tbody></table></details>`;
}

function counts(bars: readonly Bar[]): Html {
  const sum = (name: "succeeded" | "failed") => bars.reduce((all, bar) => all + bar[name], 0);
  const [succeeded, failed] = [sum("succeeded"), sum("failed")];
  if (succeeded + failed === 0) return html`<p class="fine">none</p>`;
  return html`<ul class="counts"><li class="arrived"><span aria-hidden="true">✓</span> ${number(succeeded)} arrived</li>
<li class="failed"><span aria-hidden="true">✕</span> ${number(failed)} failed</li></ul>`;
}

function ranges(here: Range, address: Address): Html {
  const links = RANGES.map((range) => {
    const href = address({ range: range === USUAL_RANGE ? [] : range.name });
    return html`<a href="${href}"${range === here && html` aria-current="true"`}>${range.name}</a>`;
  });
  return html`<nav class="ranges" aria-label="Range of the chart">${links}</nav>`;
}

/** What is not counted must not look like silence. */
function countedText(view: View, countedToMs: number): Html {
  const to = clock(countedToMs, view);
  return view.nowMs - countedToMs > BEHIND_MS
    ? html`<strong class="behind">What ended after ${to} is not counted yet.</strong>`
    : html`<span>counted until ${to}</span>`;
}

/** With its date, unless that is plain. */
function clock(ms: number, { nowMs, session }: View): string {
  return clockText(ms, session.timeZone, nowMs - ms > DAY_MS / 2 ? "date" : "time");
}

/** `14:39 (2 h ago)` */
function clockAndDistance(iso: string, view: View): string {
  const ms = Date.parse(iso);
  return `${clock(ms, view)} (${distanceOf(ms, view.nowMs)})`;
}

/** What a host does by its newest attempts of a week; null: none of them has failed, or nobody here may know. */
export async function doesNow(view: View, host: string): Promise<Html | null> {
  if (!view.isOfAccount) return null;
  const from = new Date(view.nowMs - 7 * DAY_MS).toISOString();
  const { top, counted_to } = await view.ask("webhooks.activity", { query: { from, bucket: "1d" } });
  const [last] = top
    .filter(({ target_host }) => target_host === host)
    .sort((one, other) => Date.parse(other.last_at) - Date.parse(one.last_at));
  if (last === undefined) return null;
  const { error_code: code, failing_since: since, last_success_at: succeededAt } = last;
  const countedMs = Date.parse(counted_to);
  const when = view.nowMs - countedMs > BEHIND_MS ? `At ${clock(countedMs, view)}` : "Now";
  const status = statusOfErrorCode(code);
  const does = status === null ? html`fails with <code>${code}</code>` : `returns ${status}`;
  return since === null
    ? html`${when}: ${host} accepts webhooks, the last at ${clockAndDistance(succeededAt!, view)}.`
    : html`${when}: ${host} ${does}, since ${clockAndDistance(since, view)}.`;
}

/** Hosts that are asked about: what failed at others has arrived since, perhaps. */
const HOSTS_ASKED_MAX = 3;

/** The host that fails most, has not succeeded since, and misses something, in a sentence. */
async function trouble(view: View, range: Range, { top }: Activity, address: Address): Promise<Html | null> {
  const failing = top.filter((cause) => cause.failing_since !== null && canBeAskedFor(cause));
  const byHost = [...Map.groupBy(failing, ({ target_host }) => target_host).values()];
  for (const [worst] of byHost.slice(0, HOSTS_ASKED_MAX)) {
    const {
      target_host: host,
      last_success_at: succeededAt,
      failing_since,
      error_code,
      answered_by: answered,
    } = worst!;
    // Whenever they were published: some were, and waited, before the first attempt failed.
    const filters = { status: ["failed", "abandoned"], target_host: host };
    const { body, headers } = await view.askWithHeaders("webhooks.deliveries.list", {
      query: { ...filters, limit: "1" },
    });
    const { total } = body;
    if (total === 0) continue;
    const log = html`<a href="${view.base}/deliveries${searchOf(filters)}">${
      headers["total-capped"] === "true" && "at least "
    }${counted(total, "event")}</a>`;
    const since = succeededAt !== null && `, failing since ${clockAndDistance(failing_since!, view)}`;
    const others = byHost.length - 1;
    const all = address({ ...NO_FILTERS, status: filters.status, cursor: [] });
    const have = total === 1 ? "has" : "have";
    const ofStatus = explainErrorCode(error_code);
    const { message, remedy } = answered === null ? ofStatus : explainAnswerer(answered, ofStatus);
    return html`<p class="trouble"><strong>${log} ${have} not arrived at ${host}${since}.</strong>
${message} ${succeededAt === null && `No attempt has arrived there in the last ${range.words}. `}${remedy}
${others > 0 && html`<a href="${all}">${counted(others, "other host is", "other hosts are")} failing, too</a>.`}</p>`;
  }
  return null;
}

function causes(top: Activity["top"], address: Address): Html | null {
  if (top.length === 0) return null;
  const most = Math.max(...top.map(({ attempts }) => attempts));
  const [first, rest] = [top.slice(0, CAUSES_MAX), top.slice(CAUSES_MAX)];
  const itemOf = (cause: Activity["top"][number]) => {
    const { attempts, error_code, target_host } = cause;
    const href = address({ error_code, target_host: canBeAskedFor(cause) ? target_host : [], cursor: [] });
    const width = Math.max(1, Math.round((attempts / most) * 100));
    return html`<li><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
<path d="M0 0h${width}v8H0z"/></svg><a href="${href}"><code>${error_code}</code> ${target_host}</a>
<span class="number">${number(attempts)}</span></li>`;
  };
  return html`<details class="fold"><summary>Why attempts failed</summary>
<h2>Why attempts failed</h2><ul class="causes">${first.map(itemOf)}</ul>
${
  rest.length > 0 &&
  html`<details><summary>${counted(rest.length, "more reason")}</summary><ul class="causes">${rest.map(
    itemOf,
  )}</ul></details>`
}</details>`;
}

function canBeAskedFor({ target_host }: Activity["top"][number]): boolean {
  return TARGET_HOST.test(target_host);
}
