import { Problem } from "../../api/problems.ts";
import { keyField, unless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, Shown, View } from "../screen.ts";
import { type CheckReport, reportOf } from "./check-report.ts";
import { wayBack } from "./endpoint-changes.ts";

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
