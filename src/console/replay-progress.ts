import type { z } from "zod";
import type { ReplayStatus } from "../base/model/statuses.ts";
import type { Delivery } from "../log/delivery-schema.ts";
import type { Replay } from "../log/replays-schema.ts";
import { type Html, html } from "./html.ts";
import type { View } from "./screen.ts";
import { momentOf } from "./times.ts";

type Status = z.output<typeof Delivery>["status"];

/** A symbol and a word: neither colour nor shape alone tells. */
const DELIVERY_SHOWN: Readonly<Record<Status, { readonly symbol: string; readonly word: string }>> = {
  pending: { symbol: "○", word: "pending" },
  failed: { symbol: "↻", word: "failing" },
  succeeded: { symbol: "✓", word: "arrived" },
  abandoned: { symbol: "✕", word: "abandoned" },
};

export function statusOf(status: Status): Html {
  const { symbol, word } = DELIVERY_SHOWN[status];
  return html`<span class="status ${status}"><span aria-hidden="true">${symbol}</span> ${word}</span>`;
}

export type ShownReplay = z.output<typeof Replay>;

/** Nothing says "successful": what counts is in the numbers. */
const REPLAY_SHOWN: Readonly<Record<ReplayStatus, { readonly symbol: string; readonly word: string }>> = {
  running: { symbol: "▸", word: "running" },
  delivering: { symbol: "○", word: "all started" },
  done: { symbol: "●", word: "ended" },
  cancelled: { symbol: "■", word: "stopped" },
};

export function replayStatusOf(status: ReplayStatus): Html {
  const { symbol, word } = REPLAY_SHOWN[status];
  return html`<span class="status ${status}"><span aria-hidden="true">${symbol}</span> ${word}</span>`;
}

/** A bar as long as the set, and the same in words. */
export function progressOf(replay: ShownReplay): Html {
  const { matched, replayed, succeeded, waiting, failed, skipped } = replay;
  const counts = [
    { kind: "arrived", symbol: "✓", count: succeeded },
    { kind: "waiting", symbol: "○", count: waiting },
    { kind: "failed", symbol: "✕", count: failed },
    { kind: "skipped", symbol: "–", count: skipped },
  ];
  let at = 0;
  const bars = counts.map(({ kind, count }) => {
    const width = matched === 0 ? 0 : Math.min(1_000 - at, (count / matched) * 1_000);
    const bar = html`<rect class="${kind}" x="${at.toFixed(1)}" width="${width.toFixed(1)}" height="10"></rect>`;
    at += width;
    return bar;
  });
  const words = counts
    .filter(({ kind, count }) => kind !== "skipped" || count > 0)
    .map(
      ({ kind, symbol, count }) =>
        html`<li class="${kind}"><span aria-hidden="true">${symbol}</span> ${number(count)} ${kind}</li>`,
    );
  return html`<svg class="progress" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">${bars}</svg>
<ul class="counts"><li>${number(replayed)} of ${number(matched)} started</li>${words}</ul>`;
}

/** The same key each time: stopping twice is stopping once, and a page that refreshes itself stays the same. */
export function stopForm({ base }: View, { id, status }: ShownReplay): Html | null {
  if (status !== "running") return null;
  return html`<form method="post" action="${base}/replays/${id}/cancel">
<input type="hidden" name="_key" value="stop-${id}">
<button title="Starts no more; started ones go on.">Stop<span class="fine">: started ones go on</span></button></form>`;
}

const NAMES: Readonly<Record<keyof ShownReplay["filter"], string>> = {
  status: "status",
  reason: "reason",
  event: "event",
  analysis_id: "analysis",
  target_host: "host",
  error_code: "error",
  status_code: "code",
  status_code_min: "code at least",
  status_code_max: "code at most",
  replay_id: "of replay",
  created_after: "from",
  created_before: "to",
};

/** What was asked for, in a line. */
export function filterText({ session }: View, { filter }: ShownReplay): Html {
  const asked = Object.entries(filter).flatMap(([name, value]) => {
    if (value === null) return [];
    const shown = name.startsWith("created_")
      ? momentOf(String(value), session.timeZone)
      : html`<code>${[value].flat().join(" or ")}</code>`;
    return [html`<li>${NAMES[name as keyof typeof NAMES]} ${shown}</li>`];
  });
  return html`<ul class="asked">${asked.length === 0 ? html`<li>everything failing or abandoned</li>` : asked}</ul>`;
}

/** A person is known by the session; staff's names are not told to accounts. */
export function makerOf({ created_by: maker }: Pick<ShownReplay, "created_by">): string {
  if (maker === null) return "not recorded";
  if (maker.viewer !== null) return maker.viewer;
  if (maker.staff) return maker.name ?? "support staff";
  return maker.name === null ? "an API key without a name" : `API key ${maker.name}`;
}

export function number(count: number): string {
  return count.toLocaleString("en");
}
