import type { DeliveryStatus, ReplayStatus } from "../base/model/statuses.ts";
import type { Replay } from "../log/replays-schema.ts";
import type { AccountReplay } from "./answers.ts";
import { type Html, html, type Part } from "./html.ts";
import { hidden, number, sign } from "./parts.ts";
import type { View } from "./screen.ts";
import { momentOf } from "./times.ts";

const DELIVERY_SIGNS: Readonly<Record<DeliveryStatus, Html>> = {
  pending: sign("pending", "○", "pending"),
  failed: sign("failed", "↻", "failing"),
  succeeded: sign("succeeded", "✓", "arrived"),
  abandoned: sign("abandoned", "✕", "abandoned"),
};

export function statusOf(status: DeliveryStatus): Html {
  return DELIVERY_SIGNS[status];
}

/** Nothing says "successful": what counts is in the numbers. */
const REPLAY_SIGNS: Readonly<Record<ReplayStatus, Html>> = {
  running: sign("running", "▸", "running"),
  delivering: sign("delivering", "○", "all started"),
  done: sign("done", "●", "ended"),
  cancelled: sign("cancelled", "■", "stopped"),
};

export function replayStatusOf(status: ReplayStatus): Html {
  return REPLAY_SIGNS[status];
}

/** One of a list. @param beside in its first line @param below its progress */
export function replayItem(
  replay: Replay | AccountReplay,
  href: string,
  name: string,
  timeZone: string | null,
  beside: Part,
  below: Part,
): Html {
  const by = replay.created_by !== null && `, ${makerOf(replay)}`;
  return html`<li id="r-${replay.id}">
<div class="line">${replayStatusOf(replay.status)}
<a href="${href}">${name}</a>
<span class="fine">${momentOf(replay.created_at, timeZone)}${by}</span>
${beside}</div>
${progressOf(replay)}
${below}
${replay.note !== null && html`<p class="note">${replay.note}</p>`}
</li>`;
}

/** A bar as long as the set, and the same in words. */
export function progressOf(replay: Replay): Html {
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
export function stopForm({ base, isOfAccount }: View, { id, status, created_by }: Replay): Html | null {
  // A user stops no others' replays, and is not told who they are.
  if (status !== "running" || (!isOfAccount && created_by === null)) return null;
  return html`<form method="post" action="${base}/replays/${id}/cancel">
${hidden("_key", `stop-${id}`)}
<button title="Starts no more; those already started continue.">Stop<span
class="fine">: those started continue</span></button></form>`;
}

const NAMES: Readonly<Record<keyof Replay["filter"], string>> = {
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
export function filterText({ session }: View, { filter }: Replay): Html {
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
export function makerOf({ created_by: maker }: Pick<Replay, "created_by">): string {
  if (maker === null) return "not recorded";
  if (maker.viewer !== null) return maker.viewer;
  if (maker.staff) return maker.name ?? "support staff";
  return maker.name === null ? "an API key without a name" : `API key ${maker.name}`;
}
