import type { z } from "zod";
import type { Account, AccountReplay } from "../../operations/accounts.ts";
import { auditTable, type Change } from "../audit-table.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import { makerOf, progressOf, replayStatusOf } from "../replay-progress.ts";
import type { Screen, View } from "../screen.ts";
import { leave } from "../screens/leave.ts";
import { screens } from "../screens.ts";
import { momentOf } from "../times.ts";
import { auditFile, auditScreen } from "./audit-screens.ts";
import { hurtList } from "./hurt-list.ts";
import { searchForm, searchScreen } from "./search-screen.ts";
import { STAFF_PATH } from "./staff-sites.ts";

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
