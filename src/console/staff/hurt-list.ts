import type { z } from "zod";
import { explainEndReason, explainErrorCode } from "../../model/error-codes.ts";
import type { Account } from "../../operations/accounts.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import { number } from "../replay-progress.ts";
import type { View } from "../screen.ts";
import { statusOf } from "../status.ts";
import { momentOf } from "../times.ts";
import { STAFF_PATH } from "./staff-sites.ts";

type Hurt = z.output<typeof Account>;

/** As many as the API counts. */
const COUNTED_MAX = 1_000;

/** Accounts to whom something did not arrive: how much, why, since when, and the way to each. */
export function hurtList(view: View, accounts: readonly Hurt[]): Html {
  if (accounts.length === 0) {
    return html`<section class="empty"><h3>Nobody is hurt</h3>
<p>No account has an abandoned delivery that could be replayed.</p></section>`;
  }
  return html`<ul class="hurt">${accounts.map((account) => hurtItem(view, account))}</ul>`;
}

function hurtItem(view: View, account: Hurt): Html {
  const { id, name, abandoned, failed, since, last_success_at: last } = account;
  const { timeZone } = view.session;
  const base = `${STAFF_PATH}/a/${id}`;
  const log = `${base}/deliveries${searchOf({ status: ["failed", "abandoned"] })}`;
  const replay = `${base}/replays/new${searchOf({ status: ["abandoned"] })}`;
  return html`<li id="h-${id}">
<div class="line"><h3>${name}</h3>${statusOf("abandoned")}<strong>${countText(abandoned)}</strong>
${failed > 0 && html`${statusOf("failed")}<span>${countText(failed)}</span>`}
<span class="ways"><a class="button" href="${log}">Open<span class="unseen"> ${name}</span></a>
${
  view.may("webhooks:replay") &&
  html`<a class="button" href="${replay}">Replay…<span class="unseen"> ${name}</span></a>`
}</span></div>
<p class="cause">${causeOf(account)}</p>
<p class="fine">${since !== null && html`Since ${momentOf(since, timeZone)}. `}${
    last === null
      ? "No success among the newest deliveries."
      : html`Last success ${momentOf(last, timeZone)}.`
  }${account.endpoint_paused && " The endpoint is paused."}</p>
</li>`;
}

/** The host, the code, and what it means. */
function causeOf({ leading }: Hurt): Html | null {
  if (leading === null) return null;
  const { target_host: host, error_code: code, reason } = leading;
  const isCode = code !== null && reason !== "no_target" && reason !== "analysis_expired";
  const shown = isCode ? code : reason;
  const message = isCode ? explainErrorCode(code).message : reason && explainEndReason(reason).message;
  const where = host !== null && html`<code>${host}</code> `;
  const what = shown !== null && html`<code class="code">${shown}</code> `;
  return html`${where}${what}${message}`;
}

function countText(count: number): string {
  return count >= COUNTED_MAX ? `at least ${number(COUNTED_MAX)}` : number(count);
}
