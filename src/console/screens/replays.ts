import { older } from "../forms.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import {
  filterText,
  makerOf,
  number,
  progressOf,
  replayStatusOf,
  type ShownReplay,
  stopForm,
} from "../replay-progress.ts";
import type { Screen, View } from "../screen.ts";
import { momentOf, roughly } from "../times.ts";

type Page = { readonly items: readonly ShownReplay[]; readonly next_cursor: string | null };

const PAGE_ITEMS = 25;

/** Bulk replays with their progress, newest first. */
export const replaysScreen: Screen = {
  method: "GET",
  path: "/replays",
  show: async (view) => {
    const { base, query } = view;
    const { items, next_cursor } = await view.ask<Page>("webhooks.replays.list", {
      query: { ...query, limit: String(PAGE_ITEMS) },
    });
    return {
      title: "Replays",
      main: html`<div class="head"><h1>Replays</h1>
<a class="button" href="${base}/replays/new">Replay many…</a></div>
${items.length === 0 ? empty() : html`<ul class="replays">${items.map((replay) => listed(view, replay))}</ul>`}
${next_cursor !== null && older(`${base}/replays${searchOf({ cursor: next_cursor })}`)}`,
    };
  },
};

/** One replay, refreshed while it goes on. */
export const replayScreen: Screen = {
  method: "GET",
  path: "/replays/{replay_id}",
  show: async (view) => {
    const replay = await view.ask<ShownReplay>("webhooks.replays.get", { params: view.params });
    const title = `Replay of ${countText(replay)}`;
    return { title, main: page(view, replay, title) };
  },
};

export const cancelReplay: Screen = {
  method: "POST",
  path: "/replays/{replay_id}/cancel",
  show: async ({ ask, base, params, form }) => {
    await ask("webhooks.replays.cancel", { params, idempotencyKey: form.get("_key") });
    return { goTo: `${base}/replays/${params.replay_id}?stopped=1` };
  },
};

function empty(): Html {
  return html`<section class="empty"><h2>Nothing has been replayed in bulk</h2>
<p>To replay what failed in an outage, filter the deliveries and choose “Replay all that match”.</p></section>`;
}

function listed(view: View, replay: ShownReplay): Html {
  const by = replay.created_by !== null && `, ${makerOf(replay)}`;
  return html`<li id="r-${replay.id}">
<div class="line">${replayStatusOf(replay.status)}
<a href="${view.base}/replays/${replay.id}">${countText(replay)}</a>
<span class="fine">${momentOf(replay.created_at, view.session.timeZone)}${by}</span>
${stopForm(view, replay)}</div>
${progressOf(replay)}
${filterText(view, replay)}
${replay.note !== null && html`<p class="note">${replay.note}</p>`}
</li>`;
}

function page(view: View, replay: ShownReplay, title: string): Html {
  const { base, query, session } = view;
  const { id, status, failed, ended_at } = replay;
  const log = `${base}/deliveries`;
  const again = searchOf({ replay_id: id, status: "abandoned" });
  const mayRead = view.may("webhooks:read");
  const pace = `${number(replay.rate_per_second)} a second`;
  return html`<nav class="way" aria-label="Way back"><a href="${base}/replays">Replays</a></nav>
<div class="head"><h1>${title}</h1>${replayStatusOf(status)}${stopForm(view, replay)}</div>
${query.queued === "1" && status === "running" && said(`Queued: they start at ${pace}.`)}
${query.stopped === "1" && status === "cancelled" && said("Stopped: no more are started; started ones go on.")}
<section class="panel" aria-label="Progress">${progressOf(replay)}
${status === "running" && stillToCome(replay)}</section>
<p class="links">${mayRead && html`<a href="${log}${searchOf({ replay_id: id })}">Its deliveries</a>`}
${failed > 0 && mayRead && html`<a href="${log}${again}">Those that failed again</a>`}
${failed > 0 && status !== "running" && html`<a href="${base}/replays/new${again}">Replay those…</a>`}</p>
<dl class="facts">
<div><dt>Asked for</dt><dd>${filterText(view, replay)}</dd></div>
<div><dt>Pace</dt><dd>${pace}</dd></div>
<div><dt>By</dt><dd>${makerOf(replay)}</dd></div>
<div><dt>Note</dt><dd>${replay.note ?? "none"}</dd></div>
<div><dt>Begun</dt><dd>${momentOf(replay.created_at, session.timeZone)}</dd></div>
${ended_at !== null && html`<div><dt>Ended</dt><dd>${momentOf(ended_at, session.timeZone)}</dd></div>`}
<div><dt>Replay</dt><dd><code>${id}</code></dd></div>
</dl>
${replay.skipped > 0 && html`<p class="fine">Skipped: ${SKIPPED}.</p>`}`;
}

const SKIPPED = "already delivered, already replayed or expired when their turn came";

function stillToCome({ matched, replayed, skipped, rate_per_second }: ShownReplay): Html {
  const left = matched - replayed - skipped;
  return html`<p class="fine">The other ${number(left)} start in ${roughly(left / rate_per_second)}.</p>`;
}

function said(text: string): Html {
  return html`<p class="said" role="status">${text}</p>`;
}

function countText({ matched }: ShownReplay): string {
  return `${number(matched)} ${matched === 1 ? "delivery" : "deliveries"}`;
}
