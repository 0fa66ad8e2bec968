import { STATUS_CODES } from "node:http";
import type { AnalysisOrigin, OriginStep } from "../../base/model/events.ts";
import { hasNothingLeft, isReplayable } from "../../base/model/statuses.ts";
import type { Attempt, DeliveryWithAttempts as Delivery } from "../../log/delivery-schema.ts";
import { type Html, html, type Part } from "../html.ts";
import { copyButton, counted, DELIVERY_SIGNS, facts, keyField, number, said, stacked } from "../parts.ts";
import { get, post, type View } from "../screen.ts";
import { briefOf, clockText, durationText, inZone, momentOf, readableUntil } from "../times.ts";
import { makerOf } from "./replays.ts";
import { runLink } from "./run.ts";

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
  return html`<div class="timeline end">
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
function originLine(view: View, origin: AnalysisOrigin): Html {
  const { runId, steps } = origin;
  return html`<nav class="origin" aria-label="Where it comes from"><ol>
<li><span>Workflow</span> ${runLink(view, origin)} <code title="Run ${runId}">${runId.slice(-8)}</code></li>
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
  const shown = isCut ? text.slice(0, SHOWN_CHARS_MAX) : legible(text);
  return {
    title: "Body",
    heading: "The body, as it is sent",
    up: { href: `${base}/deliveries/${id}`, name: "Delivery" },
    beside: [
      !isCut && copyButton(text, "body"),
      html`<a class="button" href="${base}/deliveries/${id}/body.json">Download</a>`,
    ],
    main: html`<p class="soft">The signature covers the bytes as they are sent${
      isCut
        ? `; only the first ${number(SHOWN_CHARS_MAX)} characters of them are shown.`
        : ", which are copied and downloaded; here they have spaces and lines."
    }</p>
<pre>${shown}</pre>`,
  };
});

/** The same bytes, to be kept. */
const bodyFile = get("/deliveries/{delivery_id}/body.json", async ({ askForText, params }) => {
  const text = await askForText("webhooks.deliveries.body", { params });
  async function* parts() {
    yield text;
  }
  return { file: { name: `${params.delivery_id}.json`, type: "application/json", parts } };
});

const STEP_NAMES = { dns: "DNS", connect: "connect", tls: "TLS", first_byte: "first byte" } as const;
const STEPS = Object.keys(STEP_NAMES) as readonly (keyof typeof STEP_NAMES)[];

/** One delivery: why it is as it is, what its receiver answered last, and its newest attempts. */
const deliveryScreen = get("/deliveries/{delivery_id}", async (view) => {
  const { base, params, session, query } = view;
  const delivery = await view.ask("webhooks.deliveries.get", { params });
  const { analysis_id, status, attempts } = delivery;
  // Whoever may read the analysis may know what made it.
  const published = { analysisId: analysis_id, deliveryId: delivery.id };
  const origin = view.may("analyses:read") ? await view.findOrigin(published) : null;
  const mayReplay = isReplayable(status) && !hasNothingLeft(delivery.reason);
  const isQueued = query.replayed === "1" && status === "pending";
  return {
    title: analysis_id,
    up: { href: `${base}/deliveries`, name: "Deliveries" },
    beside: [DELIVERY_SIGNS[status], mayReplay && replayForm(view, delivery)],
    main: html`${isQueued && said(`Queued: run ${delivery.run} starts now.`)}
${explanationOf(view, delivery)}
${origin !== null && originLine(view, origin)}
${lastResponse(view, attempts.at(-1))}
${facts([
  copied("Target", delivery.target_url),
  copied("Delivery", delivery.id),
  ["Published", momentOf(delivery.created_at, session.timeZone)],
  ["Event", delivery.event],
])}
${attemptsSection(view, delivery)}
${more(view, delivery)}`,
  };
});

function copied(name: string, text: string | null): readonly [Html, Part] {
  if (text === null) return [html`${name}`, "none"];
  // A URL that is too long is broken between its parts.
  const parts = text.split(/(?<=[/?&])/).map((part) => html`${part}<wbr>`);
  return [html`${name} ${copyButton(text, name)}`, html`<code>${parts}</code>`];
}

const KINDS = { pending: "", failed: "is-warn", succeeded: "is-good", abandoned: "is-bad" } as const;

/** What happened, what to do, and what comes next. */
function explanationOf(
  { session, nowMs }: View,
  { status, cause, remedy, next, explanation }: Delivery,
): Html {
  const inWords = (text: string) => inZone(text, session.timeZone, nowMs);
  return html`<section class="panel cause ${KINDS[status]}" aria-label="Explanation">
<h2>${inWords(cause ?? explanation)}</h2>
${remedy !== null && html`<p><strong>Remedy:</strong> ${inWords(remedy)}</p>`}
${next !== null && html`<p class="soft">${inWords(next)}</p>`}
</section>`;
}

/** What the receiver said last, as it can be read; null: nothing. */
function lastResponse(view: View, attempt: Attempt | undefined): Html | null {
  if (attempt?.status_code == null) return null;
  const { status_code: code, response_excerpt: excerpt, response_headers: headers, outcome } = attempt;
  const { answered_by: answered } = attempt;
  const text = excerpt === null ? "" : legible(excerpt);
  return html`<section class="panel" aria-labelledby="response">
<div class="line"><h2 id="response">Last response</h2>
<code class="${outcome === "succeeded" ? "good" : "bad"}">HTTP ${code} ${STATUS_CODES[code] ?? ""}</code>
<span class="soft">${took(attempt)} · ${momentOf(attempt.started_at, view.session.timeZone)}${
    attempt.remote_address !== null && ` · ${attempt.remote_address}`
  }</span>
${text !== "" && html`<span class="end">${copyButton(text, "response")}</span>`}</div>
${
  answered !== null &&
  html`<p><strong>Answered by ${answered.name}</strong>, not the application.
<span class="soft">${answered.evidence}</span></p>`
}
${text === "" ? html`<p class="soft">without a body</p>` : html`<pre>${text}</pre>`}
${headers !== null && html`<details><summary>Headers</summary><pre>${headerLines(headers)}</pre></details>`}
</section>`;
}

/** JSON as people write it. What is cut off is none. */
function legible(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function took({ duration_ms }: Attempt): string {
  return duration_ms === null ? "" : durationText(duration_ms);
}

/** The newest first, by runs. */
function attemptsSection(view: View, delivery: Delivery): Html {
  const { attempts, attempts_count: count } = delivery;
  if (attempts.length === 0) return html`<p class="empty">No attempt has ended yet.</p>`;
  const longestMs = Math.max(1, ...attempts.map(({ duration_ms }) => duration_ms ?? 0));
  const runs = [...Map.groupBy(attempts, ({ run }) => run)].reverse();
  const left = count - attempts.length;
  return html`<section aria-labelledby="attempts">
<div class="head"><h2 id="attempts">Attempts</h2>${legend(longestMs)}</div>
<div class="attempts">${runs.map(([run, ofRun]) => runOf(view, delivery, run, ofRun, longestMs))}</div>
${left > 0 && html`<p class="fine">The newest ${attempts.length} of ${number(count)}; older ones are left out.</p>`}
</section>`;
}

function legend(longestMs: number): Html {
  const swatch = (kind: string, name: string) =>
    html`<span><svg viewBox="0 0 8 8" aria-hidden="true"><rect class="${kind}" width="8" height="8"/></svg>
${name}</span>`;
  return html`<p class="legend end">${STEPS.map((step) => swatch(step, STEP_NAMES[step]))}${swatch("rest", "the rest")}
<span>whole bar: ${durationText(longestMs)}</span></p>`;
}

function runOf(
  view: View,
  delivery: Delivery,
  run: number,
  attempts: readonly Attempt[],
  longestMs: number,
): Html {
  const asked = delivery.replays.find((replay) => replay.run === run);
  const shown = alike(attempts.toReversed()).map((equal) => joined(view, equal, longestMs));
  return html`<div class="run line"><h3 id="run-${run}">Run ${run}</h3>${asked !== undefined && askedBy(view, asked)}
${timelineOf(view, delivery, run, attempts)}</div>
<ol>${shown}</ol>`;
}

function askedBy(
  { base, may }: View,
  { created_by, note, replay_id: id }: Delivery["replays"][number],
): Html {
  const words = id === null ? "replayed" : "replayed in bulk";
  const what =
    id !== null && may("webhooks:replay") ? html`<a href="${base}/replays/${id}">${words}</a>` : words;
  return html`<span class="soft">${what}${created_by !== null && ` by ${makerOf({ created_by })}`}${
    note !== null && `: “${note}”`
  }</span>`;
}

/** Those beside each other that ended in the same way, in one. */
function alike(attempts: readonly Attempt[]): readonly (readonly Attempt[])[] {
  const groups: Attempt[][] = [];
  for (const attempt of attempts) {
    const last = groups.at(-1)?.[0];
    if (last !== undefined && resultOf(last) === resultOf(attempt)) groups.at(-1)!.push(attempt);
    else groups.push([attempt]);
  }
  return groups;
}

function resultOf({ status_code, error_code, outcome }: Attempt): string {
  return String(status_code ?? error_code ?? outcome);
}

function joined(view: View, equal: readonly Attempt[], longestMs: number): Html {
  const [newest, oldest] = [equal[0]!, equal.at(-1)!];
  if (newest === oldest) return attemptItem(view, newest, longestMs);
  const { timeZone } = view.session;
  return html`<li><details><summary class="line"><span class="number">#${oldest.number}–#${newest.number}</span>
<strong class="${kindOf(newest)}">${equal.length} × ${resultOf(newest)}</strong>
<span class="soft">${momentOf(oldest.started_at, timeZone)} to
${briefOf(newest.started_at, timeZone, Date.parse(oldest.started_at))}</span>
${steps(newest, longestMs)}</summary>
<ol>${equal.map((attempt) => attemptItem(view, attempt, longestMs))}</ol></details></li>`;
}

function kindOf({ outcome }: Attempt): string {
  return outcome === "succeeded" ? "good" : "bad";
}

/** In a line, with what was sent and what came back below it. */
function attemptItem(view: View, attempt: Attempt, longestMs: number): Html {
  const {
    request_headers: sent,
    response_headers: headers,
    response_excerpt: excerpt,
    error_message,
  } = attempt;
  const { timeZone } = view.session;
  return html`<li id="a-${attempt.run}-${attempt.number}"><details><summary class="line">
<span class="number">#${attempt.number}</span> <strong class="${kindOf(attempt)}">${resultOf(attempt)}</strong>
<span class="soft">${momentOf(attempt.started_at, timeZone)} ${took(attempt)}</span>
${steps(attempt, longestMs)}</summary>
${error_message !== null && html`<p>${inZone(error_message, timeZone)}</p>`}
${sent !== null && html`<h4>Request</h4><pre>${headerLines(sent)}</pre>`}
${
  (headers !== null || excerpt !== null) &&
  html`<h4>Response</h4>${headers !== null && html`<pre>${headerLines(headers)}</pre>`}
${excerpt !== null && html`<pre>${excerpt}</pre>`}`
}</details></li>`;
}

function headerLines(headers: Readonly<Record<string, string>>): readonly string[] {
  return Object.entries(headers).map(([name, value]) => `${name}: ${value}\n`);
}

const BAR_WIDTH = 160;

/** A bar as long as it took beside the longest, whose parts are as long as the steps; the same is in its label. */
function steps({ timings, duration_ms }: Attempt, longestMs: number): Html | null {
  if (duration_ms === null) return null;
  const taken = STEPS.filter((step) => timings[step] !== null);
  const label = [
    ...taken.map((step) => `${STEP_NAMES[step]} ${durationText(timings[step]!)}`),
    durationText(duration_ms),
  ];
  const restMs = duration_ms - taken.reduce((sum, step) => sum + timings[step]!, 0);
  const parts = [
    ...taken.map((kind) => ({ kind, ms: timings[kind]! })),
    { kind: "rest", ms: Math.max(0, restMs) },
  ];
  const widths = parts.map(({ kind, ms }) => ({ kind, width: (ms / longestMs) * BAR_WIDTH }));
  return html`<svg class="steps" viewBox="0 0 ${BAR_WIDTH} 8" width="${BAR_WIDTH}" height="8" role="img"
  aria-label="${label.join(", ")}"><title>${label.join(", ")}</title>${stacked(widths, BAR_WIDTH, 8)}</svg>`;
}

/** Starts another run, once for each form that was sent. */
const replayDelivery = post("/deliveries/{delivery_id}/replay", async ({ ask, base, params }) => {
  await ask("webhooks.deliveries.replay", { params });
  return { goTo: `${base}/deliveries/${params.delivery_id}?replayed=1` };
});

export const deliveryScreens = [deliveryScreen, bodyScreen, bodyFile, replayDelivery];

/** What it carries, and how to ask for it elsewhere. */
function more(view: View, delivery: Delivery): Html {
  const address = `${view.installation.publicUrl}/v1/webhooks/deliveries/${delivery.id}`;
  const curl = `curl -sS ${address} -H "Authorization: Bearer $API_KEY"`;
  const until = readableUntil(
    delivery.created_at,
    view.installation.analysisRetentionMs,
    view.session.timeZone,
  );
  return html`<section class="panel" aria-labelledby="more">
<h2 id="more">Analysis</h2>
${
  delivery.analysis_erased
    ? html`<p>It was erased: nothing of its text is left, nor of what the receiver answered.</p>`
    : html`<p>Readable until ${until}. ${
        view.may("analyses:read") &&
        html`<a href="${view.base}/deliveries/${delivery.id}/body">The body, as it is sent</a>`
      }</p>`
}
<details><summary>This page in the API</summary><pre>${curl}</pre>${copyButton(curl, "command")}</details>
</section>`;
}

/** What fails still is tried again by itself. */
function replayForm(view: View, { id, status }: Delivery): Html {
  if (!view.may("webhooks:replay")) {
    return html`<p class="fine">Replaying needs a session with the permission to replay.</p>`;
  }
  return html`<form method="post" action="${view.base}/deliveries/${id}/replay">
${keyField()}
<button${status === "abandoned" && html` class="primary"`} data-key="r">Replay</button></form>`;
}
