import type { Replay } from "../../log/replays-schema.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import { counted, facts, number, older, said } from "../parts.ts";
import { filterText, makerOf, progressOf, replayItem, replayStatusOf, stopForm } from "../replay-progress.ts";
import { get, post } from "../screen.ts";
import { momentOf, roughly } from "../times.ts";

const PAGE_ITEMS = 25;
const STOPPED = "Stopped: no more are started; those already started continue.";

/** Bulk replays with their progress, newest first. */
const replaysScreen = get("/replays", async (view) => {
  const { base, query, session } = view;
  const { items, next_cursor: next } = await view.ask("webhooks.replays.list", {
    query: { ...query, limit: String(PAGE_ITEMS) },
  });
  const listed = items.map((replay) => {
    const href = `${base}/replays/${replay.id}`;
    const [stop, filter] = [stopForm(view, replay), filterText(view, replay)];
    return replayItem(replay, href, countText(replay), session.timeZone, stop, filter);
  });
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
  const { id, status, failed, ended_at } = replay;
  const log = `${base}/deliveries`;
  const again = searchOf({ replay_id: id, status: "abandoned" });
  const mayRead = view.may("webhooks:read");
  const pace = `${number(replay.rate_per_second)} a second`;
  return {
    title: `Replay of ${countText(replay)}`,
    up: { href: `${base}/replays`, name: "Replays" },
    beside: [replayStatusOf(status), stopForm(view, replay)],
    main: html`${query.queued === "1" && status === "running" && said(`Queued: they start at ${pace}.`)}
${query.stopped === "1" && status === "cancelled" && said(STOPPED)}
<section class="panel" aria-label="Progress">${progressOf(replay)}
${status === "running" && stillToCome(replay)}</section>
<p class="links">${mayRead && html`<a href="${log}${searchOf({ replay_id: id })}">Deliveries of this replay</a>`}
${failed > 0 && mayRead && html`<a href="${log}${again}">Those that failed again</a>`}
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
