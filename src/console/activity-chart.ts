import type { z } from "zod";
import { DAY_MS } from "../model/time.ts";
import type { Activity } from "../operations/activity.ts";
import { type Html, html } from "./html.ts";
import { clockText } from "./times.ts";

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
export function endOf({ barMs }: Range, nowMs: number): number {
  return Math.ceil(nowMs / barMs) * barMs;
}

export function startOf(range: Range, nowMs: number): number {
  return endOf(range, nowMs) - range.bars * range.barMs;
}

/** The range's bars, oldest first, with what the items say of them. */
export function barsOf(range: Range, items: ShownActivity["items"], nowMs: number): readonly Bar[] {
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
export function chartOf({ range, bars, countedToMs, timeZone, hrefOf, isChosen }: Chart): Html {
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
export function tableOf({ bars, timeZone, hrefOf }: Chart): Html {
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
