import type { AccountAuditEntry as Change } from "../../accounts/accounts-schema.ts";
import { explainEndReason, explainErrorCode } from "../../base/model/error-codes.ts";
import { hasNothingLeft } from "../../base/model/statuses.ts";
import type { Account, Found } from "../../log/accounts-schema.ts";
import { accountLink, auditFile, auditScreen, auditTable } from "../audit.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import { type Column, DELIVERY_SIGNS, number, older, plain, table } from "../parts.ts";
import { type AccountReplay, get, type Screen, type View } from "../screen.ts";
import { replayItem } from "../screens/replays.ts";
import { leaveTo, screens, unknownScreen } from "../screens.ts";
import { STAFF_PATH } from "../site.ts";
import { awaitedOf, momentOf } from "../times.ts";

/** As many as the API counts. */
const COUNTED_MAX = 1_000;

/** Accounts with failed deliveries: how many, why, since when, and the way to each. */
function failingList(view: View, accounts: readonly Account[]): Html {
  if (accounts.length === 0) {
    return html`<section class="empty"><h3>No failing accounts</h3>
<p>No account has an abandoned delivery that could be replayed.</p></section>`;
  }
  return html`<ul class="failing-accounts">${accounts.map((account) => failingItem(view, account))}</ul>`;
}

function failingItem(view: View, account: Account): Html {
  const { id, name, abandoned, failed, since, last_success_at: last, leading } = account;
  const { timeZone } = view.session;
  const base = `${STAFF_PATH}/a/${id}`;
  const log = `${base}/deliveries${searchOf({ status: ["failed", "abandoned"] })}`;
  const replay = `${base}/replays/new${searchOf({ status: ["abandoned"] })}`;
  return html`<li id="f-${id}">
<div class="line"><h3>${name}</h3>
<span class="whole">${DELIVERY_SIGNS.abandoned} <strong>${countText(abandoned)}</strong></span>
${failed > 0 && html`<span class="whole">${DELIVERY_SIGNS.failed} ${countText(failed)}</span>`}
<span class="ways"><a class="button" href="${log}">Open<span class="unseen"> ${name}</span></a>
${
  view.may("webhooks:replay") &&
  html`<a class="button" href="${replay}">Replay…<span class="unseen"> ${name}</span></a>`
}</span></div>
<p class="cause">${causeOf(account)}</p>
<p class="fine">${since !== null && html`Since ${awaitedOf(since, timeZone, view.nowMs)}. `}${
    leading?.accepted_at
      ? html`<span class="good">✓ It accepts again</span>, the last ${momentOf(leading.accepted_at, timeZone)}.`
      : last === null
        ? "No success among the newest deliveries."
        : html`${since !== null && last > since ? "Others succeeded" : "Last success"} ${momentOf(last, timeZone)}.`
  }${account.endpoint_paused && " The endpoint is paused."}</p>
</li>`;
}

/** The host, the code, and what it means. */
function causeOf({ leading }: Account): Html | null {
  if (leading === null) return null;
  const { target_host: host, error_code: code, reason } = leading;
  const isCode = code !== null && reason !== "no_target" && !hasNothingLeft(reason);
  const shown = isCode ? code : reason;
  const message = isCode ? explainErrorCode(code).message : reason && explainEndReason(reason).message;
  const where = host !== null && html`<code>${host}</code> `;
  const what = shown !== null && html`<code class="code">${shown}</code> `;
  return html`${where}${what}${message}`;
}

function countText(count: number): string {
  return count >= COUNTED_MAX ? `at least ${number(COUNTED_MAX)}` : number(count);
}

/** A caller has an id, a name or a host, and does not know whose it is. */
function searchForm(asked: string): Html {
  return html`<form class="find" method="get" action="${STAFF_PATH}/search" role="search">
<label for="q">Find an account, delivery, analysis or host</label>
<div><input id="q" name="q" value="${asked}" maxlength="255" required autocomplete="off" spellcheck="false"
  placeholder="name or id, from any account"><button>Search</button></div>
</form>`;
}

/** What a search has found, of all accounts. */
const searchScreen = get("/search", async (view) => {
  const asked = String([view.query.q ?? ""].flat()[0] ?? "").trim();
  if (asked === "") return { goTo: STAFF_PATH };
  const { accounts, deliveries, hosts, left_out } = await view.ask("search.find", { query: { q: asked } });
  return {
    title: `Search: ${asked}`,
    heading: "Search",
    main: html`${searchForm(asked)}
${accounts.length + deliveries.length + hosts.length === 0 && nothing(asked)}
${section("Accounts", ACCOUNT_COLUMNS, accounts)}
${section("Deliveries", DELIVERY_COLUMNS, deliveries)}
${section("Hosts", HOST_COLUMNS, hosts)}
${left_out && html`<p class="fine">The analysis was looked for in the newest 10,000 accounts only.</p>`}`,
  };
});

const ACCOUNT_COLUMNS: readonly Column<Found["accounts"][number]>[] = [
  { name: "Name", label: null, cell: accountLink },
  { name: "Id", cell: ({ id }) => html`<code>${id}</code>` },
];

const DELIVERY_COLUMNS: readonly Column<Found["deliveries"][number]>[] = [
  { name: "Status", label: null, cell: ({ status }) => DELIVERY_SIGNS[status] },
  {
    name: "Analysis",
    label: null,
    cell: ({ id, analysis_id, account }) =>
      html`<a href="${STAFF_PATH}/a/${account.id}/deliveries/${id}">${analysis_id}</a>`,
  },
  { name: "Account", cell: ({ account }) => account.name },
  { name: "Target", cell: ({ target_host }) => target_host ?? "–" },
  { name: "Delivery", cell: ({ id }) => html`<code>${id}</code>` },
];

const HOST_COLUMNS: readonly Column<Found["hosts"][number]>[] = [
  {
    name: "Host",
    label: null,
    cell: ({ target_host, account }) =>
      html`<a href="${STAFF_PATH}/a/${account.id}/deliveries${searchOf({ target_host })}">${target_host}</a>`,
  },
  { name: "Account", cell: ({ account }) => account.name },
  {
    name: "Arrived in 24 h",
    label: "Arrived, 24 h",
    isNumber: true,
    cell: ({ succeeded }) => number(succeeded),
  },
  { name: "Failed in 24 h", label: "Failed, 24 h", isNumber: true, cell: ({ failed }) => number(failed) },
];

function section<Item>(name: string, columns: readonly Column<Item>[], items: readonly Item[]): Html | null {
  if (items.length === 0) return null;
  const id = name.toLowerCase();
  return html`<section aria-labelledby="${id}"><h2 id="${id}">${name}</h2>
${table("found", columns, plain(items))}</section>`;
}

function nothing(asked: string): Html {
  return html`<section class="empty"><h2>Nothing found</h2>
<p>No account is called <strong>${asked}</strong>, no delivery or analysis has that id, and no attempt went to such a
host. A delivery is found by at least the first 8 digits of its id, an analysis or a host by its beginning.</p>
<p>What the log no longer keeps is not found.</p></section>`;
}

const ACCOUNTS_SHOWN = 20;
const REPLAYS_SHOWN = 10;
const CHANGES_SHOWN = 10;

/** Whose deliveries fail, what goes on, what was done. */
const frontScreen = get("", async (view) => {
  const { cursor } = view.query;
  const page = { limit: String(ACCOUNTS_SHOWN), ...(typeof cursor === "string" && { cursor }) };
  const [failing, replays, changes] = await Promise.all([
    view.ask("accounts.list", { query: { ...page, failing: "true" } }),
    view.ask("accounts.replays.list"),
    view.may("audit:read")
      ? view.ask("accounts.audit.list", { query: { limit: String(CHANGES_SHOWN), without_openings: "true" } })
      : null,
  ]);
  const { total, items, next_cursor: next } = failing;
  return {
    title: "Support",
    main: html`${searchForm("")}
<section aria-labelledby="failing">
<h2 id="failing">Failing accounts${total > 0 && html` <span class="fine">${total}</span>`}</h2>
${failingList(view, items)}
${next !== null && older(`${STAFF_PATH}${searchOf({ cursor: next })}`, "More")}</section>
<section aria-labelledby="going"><h2 id="going">Running replays</h2>
${goingReplays(view, replays.items.slice(0, REPLAYS_SHOWN))}</section>
${changes !== null && recent(view, changes.items)}`,
  };
});

function goingReplays(view: View, replays: readonly AccountReplay[]): Html {
  if (replays.length === 0) return html`<p class="none">None at the moment.</p>`;
  const items = replays.map((replay) => {
    const { id, name } = replay.account;
    return replayItem({ ...view, base: `${STAFF_PATH}/a/${id}` }, replay, name, null);
  });
  return html`<ul class="replays">${items}</ul>`;
}

function recent(view: View, changes: readonly Change[]): Html {
  return html`<section aria-labelledby="recent"><div class="head recent"><h2 id="recent">Recent actions</h2>
<a href="${STAFF_PATH}/audit">Show all</a> <a href="${STAFF_PATH}/audit.csv">CSV</a></div>
${changes.length === 0 ? html`<p class="none">Nothing has been changed yet.</p>` : auditTable(view, changes)}
</section>`;
}

export const staffScreens: readonly Screen[] = [
  frontScreen,
  searchScreen,
  auditScreen,
  auditFile,
  leaveTo(STAFF_PATH),
  unknownScreen,
];

/** An account's own screens; whoever leaves signs out of all. */
export const staffAccountScreens: readonly Screen[] = screens.filter(({ path }) => path !== "/leave");
