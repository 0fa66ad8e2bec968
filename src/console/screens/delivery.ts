import type { AnalysisOrigin, OriginStep } from "../../base/model/events.ts";
import { hasNothingLeft, isReplayable } from "../../base/model/statuses.ts";
import type { Attempt, DeliveryWithAttempts as Delivery } from "../../log/delivery-schema.ts";
import { type Html, html } from "../html.ts";
import { counted, DELIVERY_SIGNS, facts, keyField, number, said, stacked } from "../parts.ts";
import { get, post, type View } from "../screen.ts";
import { awaitedOf, clockText, durationText, inZone, momentOf, readableUntil } from "../times.ts";

const STEP = 34;
const HEIGHT = 24;
const MIDDLE = HEIGHT / 2;
const RADIUS = 8;

/**
 * A run's attempts as dots that lead to them, and what it has left. Places are by number: delays grow fourfold, so by
 * time only a logarithmic scale would keep the dots apart, and that one puts them about here.
 */
function timelineOf(view: View, delivery: Delivery, run: number, attempts: readonly Attempt[]): Html {
  const last = attempts.at(-1)?.number ?? 0;
  const isCurrent = run === delivery.run;
  const isOpen = isCurrent && (delivery.status === "pending" || delivery.status === "failed");
  const places = Math.max(last, view.installation.attemptsMax);
  const next = isOpen && last < places ? last + 1 : null;
  const width = places * STEP;
  const middleOf = (place: number) => (place - 0.5) * STEP;
  const left = Array.from({ length: places - last }, (_, n) => last + 1 + n);
  const spare = left.filter((place) => place !== next);
  return html`<div class="timeline">
<svg viewBox="0 0 ${width} ${HEIGHT}" width="${width}" height="${HEIGHT}" role="group"
  aria-label="Attempts of run ${run}">
<path class="way" d="M${middleOf(1)} ${MIDDLE}H${middleOf(next ?? last)}"/>
${spare.map((place) => html`<circle class="spare" cx="${middleOf(place)}" cy="${MIDDLE}" r="2"/>`)}
${attempts.map((attempt) => dotOf(view, attempt, middleOf(attempt.number)))}
${next !== null && html`<circle class="next" cx="${middleOf(next)}" cy="${MIDDLE}" r="${RADIUS - 1}"/>`}
</svg>
<p>${last} of ${places}${next !== null && `, ${nextText(view, delivery)}`}</p></div>`;
}

function nextText({ session }: View, { next_attempt_at: next, in_flight, held }: Delivery): string {
  if (held) return "held";
  if (in_flight || next === null) return "the next is on its way";
  return `next ${clockText(Date.parse(next), session.timeZone, "date")}`;
}

/** What became of it is in the sign: ✓, ✕, or a bar for what nobody knows the end of. */
function dotOf({ session }: View, attempt: Attempt, x: number): Html {
  const { outcome, run, number, started_at, status_code, error_code } = attempt;
  const told = status_code ?? error_code ?? outcome;
  const text = `Attempt ${number}: ${told}, ${clockText(Date.parse(started_at), session.timeZone, "date")}`;
  const kind = outcome === "succeeded" ? "good" : outcome === "interrupted" ? "unknown" : "bad";
  return html`<a href="#a-${run}-${number}" class="${kind}"><title>${text}</title>
<path class="hit" d="M${x - STEP / 2} 0h${STEP}v${HEIGHT}h-${STEP}z"/>
<circle cx="${x}" cy="${MIDDLE}" r="${RADIUS}"/><path class="sign" d="M${x} ${MIDDLE}${SIGNS[kind]}"/></a>`;
}

/** From the dot's middle. */
const SIGNS = {
  good: "m-3.5 .2l2.5 2.6l4.5-5",
  bad: "m-3-3l6 6m0-6l-6 6",
  unknown: "m-3.5 0h7",
} as const;

/** From what was read to the webhook, in one line. */
function originLine({ name, runId, steps }: AnalysisOrigin): Html {
  return html`<nav class="origin" aria-label="Where it comes from"><ol>
<li><span>Workflow</span> <strong>${name}</strong> <code title="Run ${runId}">${runId.slice(-8)}</code></li>
${steps.map(step)}
<li><span>This webhook</span></li>
</ol></nav>`;
}

function step({ name, hasFailed, itemCount }: OriginStep): Html {
  const became = hasFailed ? "failed" : counted(itemCount, "item");
  return html`<li class="${hasFailed ? "bad" : "good"}">${name} <span>${became}</span></li>`;
}

/** Longer texts are for programs. */
const SHOWN_CHARS_MAX = 65_536;

/** What every attempt of a delivery sends. */
const bodyScreen = get("/deliveries/{delivery_id}/body", async ({ askForText, params, base }) => {
  const { delivery_id: id = "" } = params;
  const text = await askForText("webhooks.deliveries.body", { params });
  const isCut = text.length > SHOWN_CHARS_MAX;
  return {
    title: "Body",
    heading: "The body, as it is sent",
    up: { href: `${base}/deliveries/${id}`, name: "Delivery" },
    main: html`<p class="fine">Signed over exactly these bytes.${
      isCut &&
      html` Only the first ${number(SHOWN_CHARS_MAX)} characters are shown:
<code>GET …/deliveries/${id}/body</code> has them all.`
    }</p>
<pre>${text.slice(0, SHOWN_CHARS_MAX)}</pre>`,
  };
});

const STEP_NAMES = { dns: "DNS", connect: "connect", tls: "TLS", first_byte: "first byte" } as const;
const STEPS = Object.keys(STEP_NAMES) as readonly (keyof typeof STEP_NAMES)[];

/** One delivery with its newest attempts. */
const deliveryScreen = get("/deliveries/{delivery_id}", async (view) => {
  const { base, params, session, query } = view;
  const delivery = await view.ask("webhooks.deliveries.get", { params });
  const { analysis_id, status, next_attempt_at: next, attempts_count: count, attempts } = delivery;
  // Whoever may read the analysis may know what made it.
  const published = { analysisId: analysis_id, deliveryId: delivery.id };
  const origin = view.may("analyses:read") ? await view.findOrigin(published) : null;
  const runs = [...Map.groupBy(attempts, ({ run }) => run)].reverse();
  const until = readableUntil(delivery.created_at, view.installation.analysisRetentionMs, session.timeZone);
  const mayReplay = isReplayable(status) && !hasNothingLeft(delivery.reason);
  return {
    title: analysis_id,
    up: { href: `${base}/deliveries`, name: "Deliveries" },
    beside: [DELIVERY_SIGNS[status], mayReplay && replayForm(view, delivery)],
    main: html`${query.replayed === "1" && status === "pending" && said(`Queued: run ${delivery.run} starts now.`)}
<p class="explanation">${inZone(delivery.explanation, session.timeZone)}</p>
${origin !== null && originLine(origin)}
${facts([
  ["Event", delivery.event],
  ["Published", momentOf(delivery.created_at, session.timeZone)],
  ["Target", delivery.target_url ?? "none"],
  ["Delivery", html`<code>${delivery.id}</code> ${copyButton(delivery.id, "id")}`],
  mayReplay && ["Replay until", until],
  next !== null && ["Next attempt", awaitedOf(next, session.timeZone, view.nowMs)],
])}
${runs.length === 0 && html`<p class="empty">No attempt has ended yet.</p>`}
${runs.map(([run, attempts]) => runSection(view, delivery, run, attempts))}
${
  count > attempts.length &&
  html`<p class="fine">The newest ${attempts.length} of ${number(count)} attempts; older ones are left out.</p>`
}
${more(view, delivery, until)}`,
  };
});

/** Starts another run, once for each form that was sent. */
const replayDelivery = post("/deliveries/{delivery_id}/replay", async ({ ask, base, params }) => {
  await ask("webhooks.deliveries.replay", { params });
  return { goTo: `${base}/deliveries/${params.delivery_id}?replayed=1` };
});

export const deliveryScreens = [deliveryScreen, bodyScreen, replayDelivery];

/** What it carries, and how to ask for it elsewhere. */
function more(view: View, delivery: Delivery, until: Html): Html {
  const address = `${view.installation.publicUrl}/v1/webhooks/deliveries/${delivery.id}`;
  const curl = `curl -sS ${address} -H "Authorization: Bearer $API_KEY"`;
  return html`<section aria-labelledby="more">
<h2 id="more">Analysis</h2>
${
  delivery.analysis_erased
    ? html`<p>It was erased: nothing of its text is left, nor of what the receiver answered.</p>`
    : html`<p>Readable until ${until} with <code>GET /v1/analyses/${delivery.analysis_id}</code>.
${
  view.may("analyses:read") &&
  html`<a href="${view.base}/deliveries/${delivery.id}/body">The body, as it is sent</a>`
}</p>`
}
<details><summary>This page in the API</summary><pre>${curl}</pre>${copyButton(curl, "command")}</details>
</section>`;
}

/** Shown where the script can copy. */
function copyButton(text: string, name: string): Html {
  return html`<button type="button" class="copy" data-copy="${text}">Copy ${name}</button>`;
}

function replayForm(view: View, { id }: Delivery): Html {
  if (!view.may("webhooks:replay")) {
    return html`<p class="fine">Replaying needs a session with the permission to replay.</p>`;
  }
  return html`<form method="post" action="${view.base}/deliveries/${id}/replay">
${keyField()}
<button class="primary" data-key="r">Replay</button></form>`;
}

function runSection(view: View, delivery: Delivery, run: number, attempts: readonly Attempt[]): Html {
  return html`<section aria-labelledby="run-${run}">
<div class="run"><h2 id="run-${run}">Run ${run}</h2>
${timelineOf(view, delivery, run, attempts)}</div>
<ol class="attempts">${attempts.map((attempt) => attemptItem(view, attempt))}</ol>
</section>`;
}

function attemptItem(view: View, attempt: Attempt): Html {
  const { request_headers: sent, response_headers: headers, response_excerpt: excerpt } = attempt;
  const { timeZone } = view.session;
  return html`<li class="${attempt.outcome === "succeeded" ? "good" : "bad"}" id="a-${attempt.run}-${attempt.number}">
<p class="line"><span class="number">#${attempt.number}</span> ${momentOf(attempt.started_at, timeZone)}
<strong>${attempt.status_code ?? attempt.error_code ?? attempt.outcome}</strong>
<span>${attempt.duration_ms !== null && durationText(attempt.duration_ms)}</span> ${steps(attempt)}</p>
${attempt.error_message !== null && html`<p class="why">${inZone(attempt.error_message, timeZone)}</p>`}
${sent !== null && html`<details><summary>Request</summary><pre>${headerLines(sent)}</pre></details>`}
${
  (headers !== null || excerpt !== null) &&
  html`<details><summary>Response</summary>
${headers !== null && html`<pre>${headerLines(headers)}</pre>`}
${excerpt !== null && html`<pre>${excerpt}</pre>`}</details>`
}
</li>`;
}

function headerLines(headers: Readonly<Record<string, string>>): readonly string[] {
  return Object.entries(headers).map(([name, value]) => `${name}: ${value}\n`);
}

/** A bar whose parts are as long as the steps took; the table twin is in its label. */
function steps({ timings, duration_ms }: Attempt): Html | null {
  const taken = STEPS.filter((step) => timings[step] !== null);
  if (taken.length === 0 || duration_ms === null || duration_ms === 0) return null;
  const label = taken.map((step) => `${STEP_NAMES[step]} ${durationText(timings[step]!)}`).join(", ");
  const widths = taken.map((kind) => ({ kind, width: Math.max(1, (timings[kind]! / duration_ms) * 200) }));
  return html`<svg class="steps" viewBox="0 0 200 8" width="200" height="8" role="img" aria-label="${label}">
<title>${label}</title>${stacked(widths, 200, 8)}</svg>`;
}
