import type { ApiKey } from "../../accounts/accounts-schema.ts";
import { accountScopes, USERS_SCOPE, userScopes } from "../../base/model/api-keys.ts";
import { DISPLAY_NAME_CHARS_MAX } from "../../base/model/formats.ts";
import { DAY_SECONDS } from "../../base/model/time.ts";
import { type FieldError, Problem } from "../../http/problems.ts";
import { shortId } from "../change-sentences.ts";
import { formRefusal, marksOfForm, refusalsOf } from "../field-marks.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import {
  type Column,
  facts,
  hidden,
  keyField,
  older,
  options,
  plain,
  type RowParts,
  refusalOf,
  refuseUnless,
  said,
  sign,
  table,
} from "../parts.ts";
import { type Fields, get, type Page, post, type View } from "../screen.ts";
import { momentOf } from "../times.ts";

const UP = "/keys";
export const USERS_PATH = `${UP}/users`;
const PAGE_ITEMS = 50;
const PAGE_ITEMS_MAX = 100;

/** Every key of the account, or of the user that the session acts for, the newest first. */
const keysScreen = get(UP, async (view) => {
  const { base, query, ask } = view;
  const { cursor } = query;
  const page = { limit: String(PAGE_ITEMS), ...(typeof cursor === "string" && { cursor }) };
  const { items, next_cursor: next } = await ask("api_keys.list", { query: page });
  return {
    title: "API keys",
    beside: [
      view.may(USERS_SCOPE) && html`<a class="button" href="${base}${USERS_PATH}">Users</a> `,
      view.hasKey && html`<a class="button primary" href="${base}${UP}/new">New key</a>`,
    ],
    main: html`${query.done === "revoked" && said("Revoked: whatever uses that key is refused from now on.")}
${!view.hasKey && NO_KEY}
${items.length === 0 ? EMPTY : table("keys", columnsOf(view, items), plain(items), ROW)}
${next !== null && older(`${base}${UP}${searchOf({ cursor: next })}`)}`,
  };
});

const ROW: RowParts<ApiKey> = {
  idOf: ({ id }) => `k-${id}`,
  below: ({ scopes }) => `May: ${scopes.join(", ")}`,
};

const EMPTY = html`<section class="empty"><h2>No API keys yet</h2>
<p>Programs use one to publish analyses and to read the log.</p></section>`;

/** Beside a list of what only a key makes and ends. */
export const NO_KEY = html`<p class="fine">No API key opened this session, and only a key can make or revoke others
here. Open the console with one, or use <code>sealpost key</code> and <code>sealpost user</code> on the command
line.</p>`;

function columnsOf(view: View, keys: readonly ApiKey[]): readonly Column<ApiKey>[] {
  const { base, hasKey, session } = view;
  const at = (iso: string | null, none: string) => (iso === null ? none : momentOf(iso, session.timeZone));
  return [
    { name: "Name", label: null, cell: nameOf },
    { name: "State", label: null, cell: (key) => STATES[stateOf(key, view.nowMs)] },
    ...(keys.some(({ user_id }) => user_id !== null) ? [ACTS_FOR] : []),
    { name: "Made", cell: ({ created_at }) => at(created_at, "") },
    { name: "Last used", cell: ({ last_used_at }) => at(last_used_at, "never") },
    {
      name: "Ends",
      cell: ({ revoked_at, expires_at }) =>
        revoked_at === null ? at(expires_at, "never") : html`revoked ${at(revoked_at, "")}`,
    },
    {
      name: "Revoke",
      label: null,
      cell: (key) =>
        hasKey &&
        stateOf(key, view.nowMs) === "active" &&
        key.scopes.every(view.may) &&
        html`<a href="${base}${UP}/${key.id}/revoke">Revoke<span class="unseen"> ${nameOf(key)}</span></a>`,
    },
  ];
}

const ACTS_FOR: Column<ApiKey> = {
  name: "Acts for",
  cell: ({ user_id: id }) =>
    id === null ? "the account" : html`user <code title="${id}">${shortId(id)}</code>`,
};

function nameOf({ id, name }: ApiKey): Html {
  return name === null ? html`<code title="${id}">${shortId(id)}</code>` : html`<strong>${name}</strong>`;
}

const STATES = {
  active: sign("good", "●", "active"),
  expired: sign("soft", "○", "expired"),
  revoked: sign("soft", "✕", "revoked"),
} as const;

function stateOf({ revoked_at: revoked, expires_at: end }: ApiKey, nowMs: number): keyof typeof STATES {
  if (revoked !== null) return "revoked";
  return end !== null && Date.parse(end) <= nowMs ? "expired" : "active";
}

/** What was typed, and what was refused of it. */
type Typed = {
  readonly name: string;
  readonly scopes: readonly string[];
  readonly seconds: string;
  readonly errors: readonly FieldError[];
};

const NOTHING: Typed = { name: "", scopes: [], seconds: "", errors: [] };

const newKeyForm = get(`${UP}/new`, async (view) => {
  const { user } = view.query;
  return newKeyPage(view, typeof user === "string" ? user : null, NOTHING);
});

/** Answers with the key itself: a POST, so that no address, history or refresh has it. */
const makeKey = post(`${UP}/new`, async (view) => {
  refuseWithoutKey(view);
  const { form } = view;
  const [name, seconds] = [(form.get("name") ?? "").trim(), form.get("expires_in_seconds") ?? ""];
  const [scopes, userId] = [form.getAll("scopes"), form.get("user_id")];
  try {
    const made = await view.ask("api_keys.create", {
      body: {
        name,
        scopes,
        ...(userId !== null && { user_id: userId }),
        ...(seconds !== "" && { expires_in_seconds: Number(seconds) }),
      },
    });
    return madePage(view, made);
  } catch (error) {
    const told = refusalsOf(error, REFUSALS);
    const isEmpty = scopes.length === 0;
    const errors = told.map((one) => {
      return isEmpty && one.path.startsWith("body.scopes")
        ? { ...one, message: "Choose at least one." }
        : one;
    });
    return { ...(await newKeyPage(view, userId, { name, scopes, seconds, errors })), status: 422 };
  }
});

/** Where no form is offered, none is taken. @throws Problem 403 */
export function refuseWithoutKey(view: View): void {
  refuseUnless(view, "keys:write");
  if (!view.hasKey) throw new Problem("access_denied");
}

const REFUSALS: Readonly<Record<string, string>> = {
  too_many_api_keys:
    "There are as many keys as there may be. Revoke those that nobody uses; if many were made today, " +
    "wait until tomorrow.",
  // Back in the browser, something else typed, and sent again.
  idempotency_key_reused:
    "This form was already sent, and its key was made. To make another one, send it again.",
};

/** @param userId for whom it is to act; null: whomever the key behind the session acts for. @throws Problem 404 */
async function newKeyPage(view: View, userId: string | null, typed: Typed): Promise<Page> {
  refuseWithoutKey(view);
  const user =
    userId === null ? null : await findListed((query) => view.ask("users.list", { query }), userId);
  const { name, scopes, seconds, errors } = typed;
  const marks = marksOfForm(errors, ["name", "scopes", "expires_in_seconds"]);
  const heading = user === null ? "New API key" : `New API key for ${user.name}`;
  const back = view.base + (user === null ? UP : USERS_PATH);
  const offered = user === null ? accountScopes : userScopes;
  return {
    title: marks.areAny ? `Not made: ${heading}` : heading,
    heading,
    up: { href: back, name: user === null ? "Keys" : "Users" },
    main: html`<section class="panel">
${formRefusal(marks)}
<form class="new-key" method="post" action="${view.base}${UP}/new">${keyField()}
${user !== null && hidden("user_id", user.id)}
${marks.field(
  ["name"],
  (marked) => html`<p><label for="name">Name</label>
<input id="name" name="name" value="${name}" maxlength="${DISPLAY_NAME_CHARS_MAX}" required
  autocomplete="off"${marked}></p>`,
)}
<p class="fine">Who or what uses it. Changes show it beside what the key did.</p>
${marks.field(
  ["scopes"],
  (marked) => html`<fieldset${marked}><legend>It may</legend>
${offered.filter(view.may).map((scope) => {
  const isChosen = scopes.includes(scope) && html` checked`;
  return html`<label><input type="checkbox" name="scopes" value="${scope}"${isChosen}> ${SCOPES[scope]}
<code class="fine">${scope}</code></label>`;
})}</fieldset>`,
)}
<p class="fine">No more than this session may itself.</p>
${marks.field(["expires_in_seconds"], (marked) => {
  const ends = Object.keys(LIFETIMES).sort((one, other) => Number(one) - Number(other));
  return html`<p><label for="lifetime">It ends</label>
<select id="lifetime" name="expires_in_seconds"${marked}>${options(ends, seconds, LIFETIMES)}</select></p>`;
})}
<div class="actions"><button class="primary">Make key</button> <a href="${back}">Cancel</a></div>
</form>
</section>`,
  };
}

const LIFETIMES: Readonly<Record<string, string>> = {
  "": "with the key behind this session, if that ends",
  [DAY_SECONDS]: "in 1 day",
  [30 * DAY_SECONDS]: "in 30 days",
  [90 * DAY_SECONDS]: "in 90 days",
  [365 * DAY_SECONDS]: "in 1 year",
};

const SCOPES: Readonly<Record<(typeof accountScopes)[number], string>> = {
  "analyses:erase": "Erase analyses",
  "analyses:publish": "Publish analyses",
  "analyses:read": "Read analyses",
  "audit:read": "See changes",
  "console:link": "Open the console for others",
  "documents:read": "Read documents",
  "documents:write": "Add and rename documents",
  "keys:write": "Make and revoke API keys",
  "operations:read": "List the API's operations",
  "pages:read": "Read pages",
  "pages:write": "Write and publish pages",
  "spaces:read": "See spaces and their members",
  "spaces:write": "Make spaces, and choose their members",
  "usage:read": "See how much is stored",
  "users:write": "Add and disable users, and make their keys",
  "webhooks:read": "See deliveries and the endpoint",
  "webhooks:replay": "Replay deliveries",
  "webhooks:secrets": "See and rotate the signing secret",
  "webhooks:write": "Change, pause, test and check the endpoint",
  "workflows:read": "See workflows and their runs",
  "workflows:run": "Run workflows",
  "workflows:write": "Make and change workflows",
};

/** The only page that shows it. The same form sent again shows it again, for a day, and makes no other. */
function madePage({ base, session }: View, made: ApiKey & { readonly api_key: string }): Page {
  const { api_key: text, name, scopes, expires_at: end, user_id: userId } = made;
  return {
    title: "API key made",
    up: { href: base + UP, name: "Keys" },
    main: html`<section class="panel">
<p>Copy it now: this is the only time that it is shown. Whoever has it can do what it may.</p>
<pre id="api-key">${text}</pre>
<div class="actions"><button type="button" class="copy" data-copy="${text}">Copy key</button>
<a class="button" href="${base}${UP}">Done</a></div>
</section>
${facts([
  ["Name", name],
  ["May", scopes.join(", ")],
  userId !== null && ["Acts for", html`user <code>${userId}</code>`],
  ["Ends", end === null ? "never, unless it is revoked" : momentOf(end, session.timeZone)],
])}`,
  };
}

/** Asks first. */
const revokeKeyForm = get(`${UP}/{key_id}/revoke`, async (view) => await revocationPage(view, null));

const revokeKey = post(`${UP}/{key_id}/revoke`, async (view) => {
  refuseWithoutKey(view);
  try {
    await view.ask("api_keys.revoke", { params: view.params });
  } catch (error) {
    const words = { exceeds_own_key: "It may do more than this session. Use one that may do as much." };
    return { ...(await revocationPage(view, refusalOf(error, words))), status: 403 };
  }
  return { goTo: `${view.base}${UP}?done=revoked` };
});

async function revocationPage(view: View, refusal: string | null): Promise<Page> {
  refuseWithoutKey(view);
  const { base, params, session, nowMs } = view;
  const key = await findListed((query) => view.ask("api_keys.list", { query }), params.key_id);
  const isOver = stateOf(key, nowMs) !== "active";
  const title = isOver ? "This key has ended" : "Revoke this key?";
  const { timeZone } = session;
  return {
    title,
    up: { href: base + UP, name: "Keys" },
    main: html`${refusal !== null && said(`Not revoked. ${refusal}`)}
${facts([
  ["Name", nameOf(key)],
  ["State", STATES[stateOf(key, nowMs)]],
  ["May", key.scopes.join(", ")],
  ["Made", momentOf(key.created_at, timeZone)],
  ["Last used", key.last_used_at === null ? "never" : momentOf(key.last_used_at, timeZone)],
])}
${
  !isOver &&
  html`<section class="panel">
<p>Whatever uses it is refused at once, and for good. Console sessions that it opened end: perhaps this one, too.
Keys that it made stay.</p>
<form class="actions" method="post" action="${base}${UP}/${key.id}/revoke">${keyField()}
<button class="danger">Revoke</button> <a href="${base}${UP}">Keep it</a></form>
</section>`
}`,
  };
}

/** One of a list, by its id. @throws Problem 404 */
export async function findListed<Item extends { readonly id: string }>(
  read: (query: Fields) => Promise<{ readonly items: readonly Item[]; readonly next_cursor: string | null }>,
  id: string | undefined,
): Promise<Item> {
  let query: Fields = { limit: String(PAGE_ITEMS_MAX) };
  while (true) {
    const { items, next_cursor: cursor } = await read(query);
    const found = items.find((one) => one.id === id);
    if (found !== undefined) return found;
    if (cursor === null) throw new Problem("not_found");
    query = { ...query, cursor };
  }
}

export const keyScreens = [keysScreen, newKeyForm, makeKey, revokeKeyForm, revokeKey];
