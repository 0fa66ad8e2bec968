import type { z } from "zod";
import { explainEndReason, explainErrorCode } from "../../base/model/error-codes.ts";
import type { AccountReplay } from "../../log/accounts-api.ts";
import type { Account, Found } from "../../log/accounts-schema.ts";
import { accountLink, auditTable, type Change } from "../audit.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import { makerOf, number, progressOf, replayStatusOf, statusOf } from "../replay-progress.ts";
import type { Screen, View } from "../screen.ts";
import { leave } from "../screens/leave.ts";
import { screens } from "../screens.ts";
import { momentOf } from "../times.ts";
import { auditFile, auditScreen } from "./audit-screens.ts";
import { STAFF_PATH } from "./staff-sites.ts";

type Hurt = z.output<typeof Account>;

/** As many as the API counts. */
const COUNTED_MAX = 1_000;

/** Accounts to whom something did not arrive: how much, why, since when, and the way to each. */
function hurtList(view: View, accounts: readonly Hurt[]): Html {
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

type Findings = z.output<typeof Found>;

/** A caller has an id, a name or a host, and does not know whose it is. */
function searchForm(asked: string): Html {
  return html`<form class="find" method="get" action="${STAFF_PATH}/search" role="search">
<label for="q">Find an account, delivery, analysis or host</label>
<div><input id="q" name="q" value="${asked}" maxlength="255" required autocomplete="off" spellcheck="false"
  placeholder="name or id, from any account"><button>Search</button></div>
</form>`;
}

/** What a search has found, of all accounts. */
const searchScreen: Screen = {
  method: "GET",
  path: "/search",
  show: async (view) => {
    const asked = String([view.query.q ?? ""].flat()[0] ?? "").trim();
    if (asked === "") return { goTo: STAFF_PATH };
    const found = await view.ask<Findings>("search.find", { query: { q: asked } });
    const { accounts, deliveries, hosts, left_out } = found;
    return {
      title: `Search: ${asked}`,
      main: html`<div class="head"><h1>Search</h1></div>
${searchForm(asked)}
${accounts.length + deliveries.length + hosts.length === 0 && nothing(asked)}
${
  accounts.length > 0 &&
  html`<section aria-labelledby="accounts"><h2 id="accounts">Accounts</h2>
<table class="log found"><thead><tr><th scope="col">Name</th><th scope="col">Id</th></tr></thead>
${accounts.map(
  (account) => html`<tbody><tr><td>${accountLink(account)}</td>
<td data-label="Id"><code>${account.id}</code></td></tr></tbody>`,
)}</table></section>`
}
${deliveries.length > 0 && foundDeliveries(deliveries)}
${hosts.length > 0 && foundHosts(hosts)}
${left_out && html`<p class="fine">The analysis was looked for in the newest 10,000 accounts only.</p>`}`,
    };
  },
};

function foundDeliveries(deliveries: Findings["deliveries"]): Html {
  return html`<section aria-labelledby="deliveries"><h2 id="deliveries">Deliveries</h2>
<table class="log found"><thead><tr><th scope="col">Status</th><th scope="col">Analysis</th><th scope="col">Account</th>
<th scope="col">Target</th><th scope="col">Delivery</th></tr></thead>
${deliveries.map(
  ({ id, analysis_id, status, target_host, account }) => html`<tbody><tr><td>${statusOf(status)}</td>
<td><a href="${STAFF_PATH}/a/${account.id}/deliveries/${id}">${analysis_id}</a></td>
<td data-label="Account">${account.name}</td>
<td data-label="Target">${target_host ?? "–"}</td>
<td data-label="Delivery"><code>${id}</code></td></tr></tbody>`,
)}</table></section>`;
}

function foundHosts(hosts: Findings["hosts"]): Html {
  return html`<section aria-labelledby="hosts"><h2 id="hosts">Hosts</h2>
<table class="log found"><thead><tr><th scope="col">Host</th><th scope="col">Account</th>
<th scope="col" class="number">Arrived in 24 h</th><th scope="col" class="number">Failed in 24 h</th></tr></thead>
${hosts.map(
  ({ target_host, succeeded, failed, account }) => html`<tbody><tr>
<td><a href="${STAFF_PATH}/a/${account.id}/deliveries${searchOf({ target_host })}">${target_host}</a></td>
<td data-label="Account">${account.name}</td>
<td data-label="Arrived, 24 h" class="number">${number(succeeded)}</td>
<td data-label="Failed, 24 h" class="number">${number(failed)}</td></tr></tbody>`,
)}</table></section>`;
}

function nothing(asked: string): Html {
  return html`<section class="empty"><h2>Nothing found</h2>
<p>No account is called <strong>${asked}</strong>, no delivery or analysis has that id, and no attempt went to such a
host. A delivery is found by its whole id or its first 8 digits or more, an analysis and a host by all of it.</p>
<p>What the log no longer keeps is not found.</p></section>`;
}

type Page<Item> = {
  readonly items: readonly Item[];
  readonly next_cursor: string | null;
  readonly total: number;
};
type ShownAccount = z.output<typeof Account>;
type GoingReplay = z.output<typeof AccountReplay>;

const HURT_SHOWN = 20;
const REPLAYS_SHOWN = 10;
const CHANGES_SHOWN = 10;

/** Who is hurt, what goes on, what was done. */
const frontScreen: Screen = {
  method: "GET",
  path: "",
  show: async (view) => {
    const { cursor } = view.query;
    const page = { limit: String(HURT_SHOWN), ...(typeof cursor === "string" && { cursor }) };
    const [hurt, replays, changes] = await Promise.all([
      view.ask<Page<ShownAccount>>("accounts.list", { query: { ...page, hurt: "true" } }),
      view.ask<Page<GoingReplay>>("accounts.replays.list"),
      view.may("audit:read")
        ? view.ask<Page<Change>>("accounts.audit.list", { query: { limit: String(CHANGES_SHOWN) } })
        : null,
    ]);
    const next = hurt.next_cursor;
    return {
      title: "Support",
      main: html`<div class="head"><h1>Support</h1></div>
${searchForm("")}
<section aria-labelledby="hurt">
<h2 id="hurt">Hurt${hurt.total > 0 && html` <span class="fine">${hurt.total}</span>`}</h2>
${hurtList(view, hurt.items)}
${next !== null && more(`${STAFF_PATH}${searchOf({ cursor: next })}`)}</section>
<section aria-labelledby="going"><h2 id="going">Running replays</h2>
${goingReplays(view, replays.items.slice(0, REPLAYS_SHOWN))}</section>
${changes !== null && recent(view, changes.items)}`,
    };
  },
};

function more(href: string): Html {
  return html`<nav class="pages" aria-label="Pages"><a rel="next" href="${href}">More →</a></nav>`;
}

function goingReplays(view: View, replays: readonly GoingReplay[]): Html {
  if (replays.length === 0) return html`<p class="none">None at the moment.</p>`;
  const items = replays.map(
    (replay) => html`<li id="r-${replay.id}">
<div class="line">${replayStatusOf(replay.status)}
<a href="${STAFF_PATH}/a/${replay.account.id}/replays/${replay.id}">${replay.account.name}</a>
<span class="fine">${momentOf(replay.created_at, view.session.timeZone)}, ${makerOf(replay)}</span></div>
${progressOf(replay)}
${replay.note !== null && html`<p class="note">${replay.note}</p>`}
</li>`,
  );
  return html`<ul class="replays">${items}</ul>`;
}

function recent(view: View, changes: readonly Change[]): Html {
  return html`<section aria-labelledby="recent"><div class="head recent"><h2 id="recent">Recent actions</h2>
<a href="${STAFF_PATH}/audit">All of them</a> <a href="${STAFF_PATH}/audit.csv">CSV</a></div>
${changes.length === 0 ? html`<p class="none">Nothing has been changed yet.</p>` : auditTable(view, changes)}
</section>`;
}

/** Ends the session. */
const signOut: Screen = {
  method: "POST",
  path: "/leave",
  show: async ({ leave }) => {
    await leave();
    return { goTo: STAFF_PATH };
  },
};

export const staffScreens: readonly Screen[] = [frontScreen, searchScreen, auditScreen, auditFile, signOut];

/** An account's own screens; whoever leaves signs out of all. */
export const staffAccountScreens: readonly Screen[] = screens.filter((screen) => screen !== leave);
