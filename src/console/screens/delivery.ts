import type { z } from "zod";
import type { AnalysisOrigin } from "../../model/analysis-origin.ts";
import type { DeliveryWithAttempts } from "../../operations/delivery-schema.ts";
import { keyField } from "../forms.ts";
import { type Html, html } from "../html.ts";
import { originLine } from "../origin-line.ts";
import { timelineOf } from "../run-timeline.ts";
import type { Screen, View } from "../screen.ts";
import { statusOf } from "../status.ts";
import { durationText, momentOf, readableUntil } from "../times.ts";

type Shown = z.output<typeof DeliveryWithAttempts>;
type Attempt = Shown["attempts"][number];

const STEPS = ["dns", "connect", "tls", "first_byte"] as const;
const STEP_NAMES = { dns: "DNS", connect: "connect", tls: "TLS", first_byte: "first byte" } as const;

/** One delivery with every attempt. */
export const deliveryScreen: Screen = {
  method: "GET",
  path: "/deliveries/{delivery_id}",
  show: async (view) => {
    const delivery = await view.ask<Shown>("webhooks.deliveries.get", { params: view.params });
    // Whoever may read the analysis may know what made it.
    const published = { analysisId: delivery.analysis_id, deliveryId: delivery.id };
    const origin = view.may("analyses:read") ? await view.findOrigin(published) : null;
    return { title: delivery.analysis_id, main: page(view, delivery, origin) };
  },
};

/** Starts another run, once for each form that was sent. */
export const replayDelivery: Screen = {
  method: "POST",
  path: "/deliveries/{delivery_id}/replay",
  show: async ({ ask, base, params, form }) => {
    const idempotencyKey = form.get("_key");
    await ask("webhooks.deliveries.replay", { params, idempotencyKey });
    return { goTo: `${base}/deliveries/${params.delivery_id}?replayed=1` };
  },
};

function page(view: View, delivery: Shown, origin: AnalysisOrigin | null): Html {
  const runs = [...Map.groupBy(delivery.attempts, ({ run }) => run)].reverse();
  const next = delivery.next_attempt_at;
  const until = readableUntil(delivery.created_at, view.analysisRetentionMs, view.session.timeZone);
  const isReplayable = delivery.status === "failed" || delivery.status === "abandoned";
  return html`<nav class="way" aria-label="Way back"><a href="${view.base}/deliveries">Deliveries</a></nav>
<div class="head"><h1>${delivery.analysis_id}</h1>${statusOf(delivery.status)}
${isReplayable && replayForm(view, delivery)}</div>
${view.query.replayed === "1" && delivery.status === "pending" && queued(delivery)}
<p class="explanation">${delivery.explanation}</p>
${origin !== null && originLine(origin)}
<dl class="facts">
<div><dt>Event</dt><dd>${delivery.event}</dd></div>
<div><dt>Published</dt><dd>${momentOf(delivery.created_at, view.session.timeZone)}</dd></div>
<div><dt>Target</dt><dd class="wrap">${delivery.target_url ?? "none"}</dd></div>
<div><dt>Delivery</dt><dd><code>${delivery.id}</code> ${copyButton(delivery.id, "id")}</dd></div>
${isReplayable && html`<div><dt>Replay until</dt><dd>${until}</dd></div>`}
${next !== null && html`<div><dt>Next attempt</dt><dd>${momentOf(next, view.session.timeZone)}</dd></div>`}
</dl>
${runs.length === 0 && html`<p class="empty">No attempt has ended yet.</p>`}
${runs.map(([run, attempts]) => runSection(view, delivery, run, attempts))}
${more(view, delivery, until)}`;
}

/** What it carries, and how to ask for it elsewhere. */
function more(view: View, delivery: Shown, until: Html): Html {
  const address = `${view.publicUrl}/v1/webhooks/deliveries/${delivery.id}`;
  const curl = `curl -sS ${address} -H "Authorization: Bearer $API_KEY"`;
  return html`<section aria-labelledby="more">
<h2 id="more">Analysis</h2>
<p>Readable until ${until}, by
<code class="wrap">GET /v1/analyses/${delivery.analysis_id}</code>.
${
  view.may("analyses:read") &&
  html`<a href="${view.base}/deliveries/${delivery.id}/body">The body as it is sent</a>`
}</p>
<details><summary>This page by the API</summary><pre>${curl}</pre>${copyButton(curl, "command")}</details>
</section>`;
}

/** Shown where the script can copy. */
function copyButton(text: string, name: string): Html {
  return html`<button type="button" class="copy" data-copy="${text}">Copy ${name}</button>`;
}

function replayForm(view: View, { id }: Shown): Html {
  if (!view.may("webhooks:replay")) {
    return html`<p class="fine">Replaying needs a session with the permission to replay.</p>`;
  }
  return html`<form method="post" action="${view.base}/deliveries/${id}/replay">
${keyField()}
<button class="primary" data-key="r">Replay</button></form>`;
}

function queued({ run }: Shown): Html {
  return html`<p class="said" role="status">Queued: run ${run} starts now.</p>`;
}

function runSection(view: View, delivery: Shown, run: number, attempts: readonly Attempt[]): Html {
  return html`<section aria-labelledby="run-${run}">
<div class="run"><h2 id="run-${run}">Run ${run}</h2>
${timelineOf(view, delivery, run, attempts)}</div>
<ol class="attempts">${attempts.map((attempt) => attemptItem(view, attempt))}</ol>
</section>`;
}

function attemptItem(view: View, attempt: Attempt): Html {
  const { request_headers: sent, response_headers: headers, response_excerpt: excerpt } = attempt;
  return html`<li class="${attempt.outcome === "succeeded" ? "good" : "bad"}" id="a-${attempt.run}-${attempt.number}">
<p class="line"><span class="number">#${attempt.number}</span> ${momentOf(attempt.started_at, view.session.timeZone)}
<strong>${attempt.status_code ?? attempt.error_code ?? attempt.outcome}</strong>
<span>${attempt.duration_ms !== null && durationText(attempt.duration_ms)}</span> ${steps(attempt)}</p>
${attempt.error_message !== null && html`<p class="why">${attempt.error_message}</p>`}
${sent !== null && html`<details><summary>Request</summary><pre>${headerLines(sent)}</pre></details>`}
${
  (headers !== null || excerpt !== null) &&
  html`<details><summary>Answer</summary>
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
  const taken = STEPS.flatMap((step) => {
    const ms = timings[step];
    return ms === null ? [] : [{ step, ms }];
  });
  if (taken.length === 0 || duration_ms === null || duration_ms === 0) return null;
  const label = taken.map(({ step, ms }) => `${STEP_NAMES[step]} ${durationText(ms)}`).join(", ");
  let at = 0;
  const bars = taken.map(({ step, ms }) => {
    const width = Math.min(200 - at, Math.max(1, (ms / duration_ms) * 200));
    const bar = html`<rect class="${step}" x="${at.toFixed(1)}" width="${width.toFixed(1)}" height="8"></rect>`;
    at += width;
    return bar;
  });
  return html`<svg class="steps" viewBox="0 0 200 8" width="200" height="8" role="img" aria-label="${label}">
<title>${label}</title>${bars}</svg>`;
}
