import type { z } from "zod";
import type { Found } from "../../operations/search.ts";
import { accountLink } from "../audit-table.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import { number } from "../replay-progress.ts";
import type { Screen } from "../screen.ts";
import { statusOf } from "../status.ts";
import { STAFF_PATH } from "./staff-sites.ts";

type Findings = z.output<typeof Found>;

/** A caller has an id, a name or a host, and does not know whose it is. */
export function searchForm(asked: string): Html {
  return html`<form class="find" method="get" action="${STAFF_PATH}/search" role="search">
<label for="q">Find an account, delivery, analysis or host</label>
<div><input id="q" name="q" value="${asked}" maxlength="255" required autocomplete="off" spellcheck="false"
  placeholder="name or id, from any account"><button>Search</button></div>
</form>`;
}

/** What a search has found, of all accounts. */
export const searchScreen: Screen = {
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
