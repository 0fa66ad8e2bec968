import { Problem } from "../../http/problems.ts";
import type { ReceiverReport } from "../../receivers/receiver-check.ts";
import { type Html, html } from "../html.ts";
import {
  type Column,
  counted,
  facts,
  hidden,
  keyField,
  plain,
  sign,
  table,
  unless,
  upToEndpoint,
} from "../parts.ts";
import { get, type Page, post, type View } from "../screen.ts";
import { durationText, momentOf } from "../times.ts";

type Fault = ReceiverReport["faults"][number];
type Probe = ReceiverReport["probes"][number];

const VERDICTS: Readonly<Record<ReceiverReport["verdict"], { readonly sign: Html; readonly text: string }>> =
  {
    dangerous: { sign: sign("abandoned", "✕", "dangerous"), text: "It accepts forgeries: fix this first." },
    faulty: { sign: sign("failed", "!", "faulty"), text: "It accepts no forgery, but webhooks get lost." },
    right: {
      sign: sign("succeeded", "✓", "right"),
      text: "It accepts genuine webhooks and rejects forged ones.",
    },
  };
const CHALLENGED = { true: "answered", false: "not answered", null: "no response" } as const;
const UNPROVEN = "Whether it accepts forgeries was not tried.";
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
function reportOf(report: ReceiverReport, timeZone: string | null): Html {
  const { verdict, faults, probes, checked_at, duration_ms, connection, answered_by: answered } = report;
  const { certificate_days_left: days, certificate_ends_at: endsAt, slowest_answer_ms: slowest } = connection;
  const reached = [connection.tls_version, connection.remote_address].filter((one) => one !== null);
  const told = new Set(faults.flatMap((fault) => fault.probes));
  const rest = probes.filter(({ name }) => !told.has(name));
  const isUnproven = faults.some(({ code }) => code === "unproven");
  return html`<p class="explanation">${isUnproven ? UNPROVEN : VERDICTS[verdict].text}</p>
<p class="address"><code>${report.url}</code></p>
${facts([
  ["Slowest response", slowest === null ? "none" : durationText(slowest)],
  ["Certificate", days === null || endsAt === null ? "not seen" : daysLeft(days, endsAt, timeZone)],
  ["Connection", reached.join(", ") || "none"],
  ["Challenge", CHALLENGED[`${report.answers_challenge}`]],
  answered !== null && ["Answered by", html`${answered.name}. ${answered.evidence}`],
  ["Checked", html`${momentOf(checked_at, timeZone)}, in ${durationText(duration_ms)}`],
])}
${faults.map((fault) => faultSection(fault, probes))}
${others("wrong", "What else is wrong", rest)}
${others("not_judged", "Inconclusive", rest)}
${others("right", "What it does right", rest)}`;
}

function daysLeft(days: number, endsAt: string, timeZone: string | null): Html {
  const end = momentOf(endsAt, timeZone);
  return days < 0 ? html`expired on ${end}` : html`${counted(days, "day")} left, until ${end}`;
}

function faultSection(
  { code, severity, message, remedy, probes: names }: Fault,
  probes: readonly Probe[],
): Html {
  const shown = probes.filter(({ name }) => names.includes(name));
  return html`<section class="panel ${severity}" aria-labelledby="f-${code}">
<h2 id="f-${code}">${SEVERITIES[severity]} ${message}</h2>
<p><strong>Remedy:</strong> ${remedy}</p>
${shown.length > 0 && probeTable(shown)}
</section>`;
}

function others(verdict: Probe["verdict"], title: string, probes: readonly Probe[]): Html | null {
  const shown = probes.filter((probe) => probe.verdict === verdict);
  if (shown.length === 0) return null;
  return html`<section aria-labelledby="o-${verdict}">
<h2 id="o-${verdict}">${title}</h2>
${probeTable(shown)}
</section>`;
}

const COLUMNS: readonly Column<Probe>[] = [
  {
    name: "Verdict",
    label: null,
    cell: (probe) => (hasAcceptedForgery(probe) ? FORGERY_ACCEPTED : PROBED[probe.verdict]),
  },
  { name: "What was sent", label: null, cell: ({ sent }) => sent },
  { name: "Expected", cell: ({ expected }) => expected },
  { name: "This receiver", label: "Got", cell: ({ got }) => html`<strong>${got}</strong>` },
  { name: "Took", isNumber: true, cell: ({ duration_ms }) => durationText(duration_ms) },
];

function probeTable(probes: readonly Probe[]): Html {
  return table("probes", COLUMNS, plain(probes), {
    below: (probe) => probe.verdict !== "right" && !hasAcceptedForgery(probe) && probe.explanation,
  });
}

function hasAcceptedForgery({ verdict, expected }: Probe): boolean {
  return verdict === "wrong" && expected === "not 2xx";
}

/** Sends the probes and shows what the receiver did. */
const checkReceiver = post("/endpoint/check", async (view) => {
  const { ask, base, form, session } = view;
  try {
    const report = await unless("not_found", ask("webhooks.endpoint.check"));
    if (report === null) return { goTo: `${base}/endpoint` };
    return {
      title: "Receiver check",
      up: upToEndpoint(view),
      beside: VERDICTS[report.verdict].sign,
      main: html`${reportOf(report, session.timeZone)}
<div class="actions">${checkForm(view, "Check again")}</div>`,
    };
  } catch (error) {
    const code = error instanceof Problem ? error.code : null;
    if (code === "rate_limited") {
      const again = counted(Number((error as Problem).headers["retry-after"] ?? "60"), "second");
      const text = `A receiver can be checked once a minute, no matter who asks. Check again in ${again}.`;
      return notice(view, 429, "It was checked a moment ago", text, checkForm(view, "Check again"));
    }
    if (code === "receiver_not_proven") {
      const again = counted(Number((error as Problem).headers["retry-after"]), "second");
      const text =
        "It has returned no 2xx in the last 30 days, and gets one request at a time; deliveries are before this one. " +
        `The log shows how it responds to them. Check again in ${again}.`;
      return notice(view, 409, "It is not this check's turn", text, checkForm(view, "Check again"));
    }
    // A second click while the first is being worked on; its report is the same.
    if (code === "idempotency_in_progress") {
      const again = checkForm(view, "Show the result", hidden("_key", form.get("_key") ?? ""));
      const text = "It takes up to 20 seconds. Nothing is sent twice.";
      return notice(view, 409, "The check is still running", text, again);
    }
    throw error;
  }
});

/** For who follows the address of a report, which is gone. */
const checkAddress = get("/endpoint/check", async ({ base }) => ({ goTo: `${base}/endpoint` }));

export const checkScreens = [checkReceiver, checkAddress];

export function checkForm({ base }: View, name: string, key: Html = keyField()): Html {
  return html`<form method="post" action="${base}/endpoint/check"
  data-wait="Checking the receiver: this takes up to 20 seconds.">${key}
<button class="primary">${name}</button></form>`;
}

function notice(view: View, status: number, title: string, text: string, form: Html): Page {
  return {
    status,
    title,
    up: upToEndpoint(view),
    main: html`<section class="panel"><p>${text}</p><div class="actions">${form}</div></section>`,
  };
}
