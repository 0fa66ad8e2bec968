import type { ReplayStatus } from "../../base/model/statuses.ts";
import type { Replay } from "../../log/replays-schema.ts";
import { shortId } from "../change-sentences.ts";
import { type Html, html, type Part } from "../html.ts";
import { FILTER_NAMES, searchOf } from "../log-filters.ts";
import { counted, facts, hidden, number, older, said, sign, stacked } from "../parts.ts";
import { type AccountReplay, get, post, type View } from "../screen.ts";
import { STAFF_PATH } from "../site.ts";
import { momentOf, roughly } from "../times.ts";

const PAGE_ITEMS = 25;
const STOPPED = "Stopped: no more are started; those already started continue.";

/** Bulk replays with their progress, newest first. */
const replaysScreen = get("/replays", async (view) => {
  const { base, query } = view;
  const { items, next_cursor: next } = await view.ask("webhooks.replays.list", {
    query: { ...query, limit: String(PAGE_ITEMS) },
  });
  const listed = items.map((replay) => replayItem(view, replay, countText(replay), filterText(view, replay)));
  return {
    title: "Replays",
    beside: html`<a class="button" href="${base}/replays/new">Replay many…</a>`,
    main: html`${items.length === 0 ? empty() : html`<ul class="replays">${listed}</ul>`}
${next !== null && older(`${base}/replays${searchOf({ cursor: next })}`)}`,
  };
});

/** One replay, refreshed while it goes on. */
const replayScreen = get("/replays/{replay_id}", async (view) => {
  const { base, query, session, params } = view;
  const replay = await view.ask("webhooks.replays.get", { params });
  const { id, status, failing, failed, ended_at } = replay;
  const log = `${base}/deliveries`;
  const again = searchOf({ replay_id: id, status: "abandoned" });
  const now = searchOf({ replay_id: id, status: "failed" });
  const stop = stopForm(view, replay);
  const mayRead = view.may("webhooks:read");
  const pace = `${number(replay.rate_per_second)} a second`;
  return {
    title: `Replay of ${countText(replay)}`,
    up: { href: `${base}/replays`, name: "Replays" },
    beside: hasNoneArrived(replay) ? sign("failed", "↻", "none arrived") : [REPLAY_SIGNS[status], stop],
    main: html`${query.queued === "1" && status === "running" && said(`Queued: they start at ${pace}.`)}
${query.stopped === "1" && status === "cancelled" && said(STOPPED)}
<section class="panel" aria-label="Progress">${progressOf(replay, stop)}
${status === "running" && stillToCome(replay)}</section>
${await nextAccount(view, replay)}
<p class="links">${mayRead && html`<a href="${log}${searchOf({ replay_id: id })}">Deliveries of this replay</a>`}
${failing > 0 && mayRead && html`<a href="${log}${now}">Those that are failing</a>`}
${failed > 0 && mayRead && html`<a href="${log}${again}">Those abandoned again</a>`}
${failed > 0 && status !== "running" && html`<a href="${base}/replays/new${again}">Replay those…</a>`}</p>
${facts([
  ["Filter", filterText(view, replay)],
  ["Pace", pace],
  ["By", view.isOfAccount || replay.created_by !== null ? makerOf(replay) : "others"],
  ["Note", replay.note ?? "none"],
  ["Started", momentOf(replay.created_at, session.timeZone)],
  ended_at !== null && ["Ended", momentOf(ended_at, session.timeZone)],
  ["Replay", html`<code>${id}</code>`],
])}
${
  replay.skipped > 0 &&
  html`<p class="fine">Skipped: already delivered, already replayed or expired when their turn came.</p>`
}`,
  };
});

/** Where staff go on from a replay of theirs: the other account with the most to replay, with the same note. */
async function nextAccount(view: View, { note, created_by: maker }: Replay): Promise<Html | null> {
  const isOfStaff = view.base.startsWith(STAFF_PATH) && maker?.staff === true;
  if (!isOfStaff || !view.may("webhooks:replay")) return null;
  const query = { failing: "true", limit: "2" };
  const listed = await view.ask("accounts.list", { query, isOfAll: true }).catch(() => null);
  const next = listed?.items.find(({ id }) => id !== view.accountId);
  if (next === undefined) return null;
  const search = searchOf({ status: "abandoned", ...(note !== null && { note }) });
  return html`<p class="panel line"><span>Next: <strong>${next.name}</strong> has
${counted(next.abandoned, "abandoned delivery", "abandoned deliveries")}.</span>
<a class="button" href="${STAFF_PATH}/a/${next.id}/replays/new${search}">Replay ${next.name}…</a></p>`;
}

const cancelReplay = post("/replays/{replay_id}/cancel", async ({ ask, base, params }) => {
  await ask("webhooks.replays.cancel", { params });
  return { goTo: `${base}/replays/${params.replay_id}?stopped=1` };
});

export const replayScreens = [replaysScreen, replayScreen, cancelReplay];

function empty(): Html {
  return html`<section class="empty"><h2>Nothing has been replayed in bulk</h2>
<p>To replay what failed in an outage, filter the deliveries and choose “Replay all that match”.</p></section>`;
}

function stillToCome({ matched, replayed, skipped, rate_per_second }: Replay): Html {
  const left = matched - replayed - skipped;
  return html`<p class="fine">The other ${number(left)} start in ${roughly(left / rate_per_second)}.</p>`;
}

function countText({ matched }: Replay): string {
  return counted(matched, "delivery", "deliveries");
}

/** Nothing says "successful": what counts is in the numbers. */
const REPLAY_SIGNS: Readonly<Record<ReplayStatus, Html>> = {
  running: sign("running", "▸", "running"),
  delivering: sign("delivering", "○", "all started"),
  done: sign("done", "●", "ended"),
  cancelled: sign("cancelled", "■", "stopped"),
};

/** One of a list. @param view of its account @param below its progress */
export function replayItem(view: View, replay: Replay | AccountReplay, name: string, below: Part): Html {
  const stop = stopForm(view, replay);
  const by = replay.created_by !== null && `, ${makerOf(replay)}`;
  return html`<li id="r-${replay.id}">
<div class="line">${REPLAY_SIGNS[replay.status]}
<a href="${view.base}/replays/${replay.id}">${name}</a>
<span class="fine">${momentOf(replay.created_at, view.session.timeZone)}${by}</span>
${!hasNoneArrived(replay) && stop}</div>
${progressOf(replay, stop)}
${below}
${replay.note !== null && html`<p class="note">${replay.note}</p>`}
</li>`;
}

/** It only fails so far: whoever started it may want to stop it. */
function hasNoneArrived({ status, succeeded, failing, failed }: Replay): boolean {
  return (status === "running" || status === "delivering") && succeeded === 0 && failing + failed > 0;
}

function causesOf({ failing, failing_causes: causes }: Replay): string {
  const named = causes.map(({ error_code, deliveries }) => `${error_code} ${number(deliveries)}`);
  const rest = causes.reduce((left, { deliveries }) => left - deliveries, failing);
  return named.length === 0 ? "" : `: ${[...named, ...(rest > 0 ? ["…"] : [])].join(", ")}`;
}

/** A bar as long as the set, and the same in words. @param stop is offered where none has arrived */
function progressOf(replay: Replay, stop: Html | null): Html {
  const { matched, replayed, succeeded, waiting, failing, failed, skipped } = replay;
  const counts = [
    { kind: "arrived", symbol: "✓", count: succeeded },
    { kind: "failing", symbol: "↻", count: failing, causes: causesOf(replay) },
    { kind: "waiting", symbol: "○", count: waiting - failing },
    { kind: "failed", symbol: "✕", count: failed, name: "abandoned again" },
    { kind: "skipped", symbol: "–", count: skipped },
  ];
  const widths = counts.map(({ kind, count }) => ({ kind, width: (count / Math.max(1, matched)) * 1_000 }));
  const words = counts
    .filter(({ kind, count }) => (kind !== "skipped" && kind !== "failing") || count > 0)
    .map(
      ({ kind, symbol, count, causes = "", name = kind }) =>
        html`<li class="${kind}${count === 0 && " none"}"><span aria-hidden="true">${symbol}</span> ${number(count)}
${name}${causes}</li>`,
    );
  return html`<svg class="progress" viewBox="0 0 1000 10" height="10" preserveAspectRatio="none"
  aria-hidden="true">${stacked(widths, 1_000, 10)}</svg>
<ul class="counts"><li>${number(replayed)} of ${number(matched)} started</li>${words}</ul>
${
  hasNoneArrived(replay) &&
  html`<div class="actions"><strong class="behind">None has arrived yet.${stop && " Stop?"}</strong> ${
    stop ??
    (replay.status === "delivering" &&
      "All have started, and those that fail are tried again by themselves: no second replay is needed.")
  }</div>`
}`;
}

/** The same key each time: stopping twice is stopping once, and a page that refreshes itself stays the same. */
function stopForm({ base, may, isOfAccount }: View, { id, status, created_by }: Replay): Html | null {
  // A user stops no others' replays, and is not told who they are.
  const mayStop = may("webhooks:replay") && (isOfAccount || created_by !== null);
  if (status !== "running" || !mayStop) return null;
  return html`<form method="post" action="${base}/replays/${id}/cancel">
${hidden("_key", `stop-${id}`)}
<button title="Starts no more; those already started continue.">Stop<span
class="fine">: those started continue</span></button></form>`;
}

/** What was asked for, in a line. */
function filterText({ session }: View, { filter }: Replay): Html {
  const asked = Object.entries(filter).flatMap(([name, value]) => {
    if (value === null) return [];
    const shown = name.startsWith("created_")
      ? momentOf(String(value), session.timeZone)
      : html`<code>${[value].flat().join(" or ")}</code>`;
    return [html`<li>${FILTER_NAMES[name] ?? name} ${shown}</li>`];
  });
  return html`<ul class="asked">${asked.length === 0 ? html`<li>everything failing or abandoned</li>` : asked}</ul>`;
}

/** A person is known by the session; staff's names are not told to accounts. */
export function makerOf({ created_by: maker }: Pick<Replay, "created_by">): string {
  if (maker === null) return "not recorded";
  if (maker.viewer !== null) return maker.viewer;
  if (maker.staff) return maker.name ?? "support staff";
  return `API key ${maker.name ?? shortId(maker.key_id)}`;
}
