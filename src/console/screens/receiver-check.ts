import type { z } from "zod";
import { Problem } from "../../http/problems.ts";
import type { ReceiverCheck } from "../../receivers/receiver-check-schema.ts";
import { keyField, unless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, Shown, View } from "../screen.ts";
import { durationText, momentOf } from "../times.ts";
import { wayBack } from "./endpoint-changes.ts";

export type CheckReport = z.output<typeof ReceiverCheck>;
type Fault = CheckReport["faults"][number];
type Probe = CheckReport["probes"][number];

/** A symbol and a word: neither colour nor shape alone tells. */
const VERDICTS: Readonly<Record<CheckReport["verdict"], { readonly sign: Html; readonly text: string }>> = {
  dangerous: { sign: sign("abandoned", "✕", "dangerous"), text: "It accepts forgeries: mend this first." },
  faulty: { sign: sign("failed", "!", "faulty"), text: "It accepts no forgery, but webhooks get lost." },
  right: {
    sign: sign("succeeded", "✓", "right"),
    text: "It accepts what is genuine and rejects what is forged.",
  },
};
const SEVERITIES: Readonly<Record<Fault["severity"], Html>> = {
  danger: sign("abandoned", "✕", "danger"),
  fault: sign("failed", "!", "fault"),
  warning: sign("pending", "△", "warning"),
};
const PROBED: Readonly<Record<Probe["verdict"], Html>> = {
  wrong: sign("abandoned", "✕", "wrong"),
  not_judged: sign("pending", "○", "not judged"),
  right: sign("succeeded", "✓", "right"),
};
const FORGERY_ACCEPTED = sign("abandoned", "✕", "accepted");

/** What probes have shown of a receiver: faults with their probes first, forgeries that it accepted before all. */
function reportOf(report: CheckReport, timeZone: string | null): Html {
  const { verdict, faults, probes } = report;
  const told = new Set(faults.flatMap((fault) => fault.probes));
  const rest = probes.filter(({ name }) => !told.has(name));
  return html`<div class="head"><h1>Check of the receiver</h1>${VERDICTS[verdict].sign}</div>
<p class="explanation">${VERDICTS[verdict].text}</p>
<p class="address"><code>${report.url}</code></p>
${facts(report, timeZone)}
${faults.map((fault) => faultSection(fault, probes))}
${others("wrong", "What else is wrong", rest)}
${others("not_judged", "What nothing can be said about", rest)}
${others("right", "What it does right", rest)}`;
}

function facts({ checked_at, duration_ms, connection }: CheckReport, timeZone: string | null): Html {
  const { certificate_days_left: days, certificate_ends_at: endsAt, slowest_answer_ms: slowest } = connection;
  const certificate = days === null || endsAt === null ? "not seen" : daysLeft(days, endsAt, timeZone);
  const reached = [connection.tls_version, connection.remote_address].filter((one) => one !== null);
  return html`<dl class="facts">
<div><dt>Slowest answer</dt><dd>${slowest === null ? "none" : durationText(slowest)}</dd></div>
<div><dt>Certificate</dt><dd>${certificate}</dd></div>
<div><dt>Connection</dt><dd>${reached.join(", ") || "none"}</dd></div>
<div><dt>Checked</dt><dd>${momentOf(checked_at, timeZone)}, in ${durationText(duration_ms)}</dd></div>
</dl>`;
}

function daysLeft(days: number, endsAt: string, timeZone: string | null): Html {
  if (days < 0) return html`expired on ${momentOf(endsAt, timeZone)}`;
  return html`${days} ${days === 1 ? "day" : "days"} left, until ${momentOf(endsAt, timeZone)}`;
}

function faultSection(
  { code, severity, message, remedy, probes: names }: Fault,
  probes: readonly Probe[],
): Html {
  const shown = probes.filter(({ name }) => names.includes(name));
  return html`<section class="panel ${severity}" aria-labelledby="f-${code}">
<h2 id="f-${code}">${SEVERITIES[severity]} ${message}</h2>
<p><strong>Remedy:</strong> ${remedy}</p>
${shown.length > 0 && table(shown)}
</section>`;
}

function others(verdict: Probe["verdict"], title: string, probes: readonly Probe[]): Html | null {
  const shown = probes.filter((probe) => probe.verdict === verdict);
  if (shown.length === 0) return null;
  return html`<section aria-labelledby="o-${verdict}">
<h2 id="o-${verdict}">${title}</h2>
${table(shown)}
</section>`;
}

function table(probes: readonly Probe[]): Html {
  return html`<table class="log probes">
<thead><tr><th scope="col">Verdict</th><th scope="col">What was sent</th>
<th scope="col">A right receiver</th><th scope="col">This one</th><th scope="col" class="number">Took</th></tr></thead>
${probes.map(row)}
</table>`;
}

function row(probe: Probe): Html {
  const { sent, expected, got, duration_ms, verdict, explanation } = probe;
  const hasAcceptedForgery = verdict === "wrong" && expected === "not 2xx";
  return html`<tbody>
<tr><td>${hasAcceptedForgery ? FORGERY_ACCEPTED : PROBED[verdict]}</td>
<td>${sent}</td>
<td data-label="Right">${expected}</td>
<td data-label="This one"><strong>${got}</strong></td>
<td data-label="Took" class="number">${durationText(duration_ms)}</td></tr>
${
  verdict !== "right" &&
  !hasAcceptedForgery &&
  html`<tr class="why"><td></td><td colspan="4">${explanation}</td></tr>`
}
</tbody>`;
}

function sign(colour: string, symbol: string, word: string): Html {
  return html`<span class="status ${colour}"><span aria-hidden="true">${symbol}</span> ${word}</span>`;
}

/** Sends the probes and shows what the receiver did. */
export const checkReceiver: Screen = {
  method: "POST",
  path: "/endpoint/check",
  show: async (view) => {
    const { ask, base, form } = view;
    const idempotencyKey = form.get("_key");
    try {
      const checking = ask<CheckReport>("webhooks.endpoint.check", { idempotencyKey });
      const report = await unless("not_found", checking);
      if (report === null) return { goTo: `${base}/endpoint` };
      return {
        title: "Check of the receiver",
        main: html`${wayBack(view)}
${reportOf(report, view.session.timeZone)}
<div class="actions">${checkForm(view, "Check again")}</div>`,
      };
    } catch (error) {
      const code = error instanceof Problem ? error.code : null;
      if (code === "rate_limited") return tooSoon(view, (error as Problem).headers["retry-after"] ?? "60");
      if (code === "idempotency_in_progress") return stillRunning(view, idempotencyKey);
      throw error;
    }
  },
};

/** For who follows the address of a report, which is gone. */
export const checkAddress: Screen = {
  method: "GET",
  path: "/endpoint/check",
  show: async ({ base }) => ({ goTo: `${base}/endpoint` }),
};

export function checkForm({ base }: View, name: string, key: Html = keyField()): Html {
  return html`<form method="post" action="${base}/endpoint/check"
  data-wait="Checking the receiver: this takes up to 20 seconds.">${key}
<button class="primary">${name}</button></form>`;
}

function tooSoon(view: View, seconds: string): Shown {
  const text = html`A receiver is checked once a minute, whoever asks. Check again in
${seconds} ${seconds === "1" ? "second" : "seconds"}.`;
  return notice(view, 429, "It was checked a moment ago", text, checkForm(view, "Check again"));
}

/** A second click while the first is being worked on; its report is the same. */
function stillRunning(view: View, key: string | null): Shown {
  const again = checkForm(
    view,
    "Show the result",
    html`<input type="hidden" name="_key" value="${key ?? ""}">`,
  );
  return notice(
    view,
    409,
    "The check is still running",
    html`It takes up to 20 seconds. Nothing is sent twice.`,
    again,
  );
}

function notice(view: View, status: number, title: string, text: Html, form: Html): Shown {
  return {
    status,
    title,
    main: html`${wayBack(view)}
<div class="head"><h1>${title}</h1></div>
<section class="panel"><p>${text}</p><div class="actions">${form}</div></section>`,
  };
}
