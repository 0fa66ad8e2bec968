import type { User } from "../../accounts/accounts-schema.ts";
import { USERS_SCOPE } from "../../base/model/api-keys.ts";
import { DISPLAY_NAME_CHARS_MAX, MAIL_ADDRESS_CHARS_MAX } from "../../base/model/formats.ts";
import type { FieldError } from "../../http/problems.ts";
import { formRefusal, marksOfForm, refusalsOf } from "../field-marks.ts";
import { html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import {
  type Column,
  facts,
  keyField,
  older,
  plain,
  type RowParts,
  refusalOf,
  refuseUnless,
  said,
  sign,
  table,
} from "../parts.ts";
import { get, type Page, post, type View } from "../screen.ts";
import { momentOf } from "../times.ts";
import { findListed, NO_KEY, refuseWithoutKey, USERS_PATH } from "./api-keys.ts";

const UP = { href: "/keys", name: "Keys" };
const PAGE_ITEMS = 50;

/** The people of the account, for whom keys act: shown to who acts for none of them. */
const usersScreen = get(USERS_PATH, async (view) => {
  const { base, query, ask } = view;
  const { cursor, done } = query;
  const page = { limit: String(PAGE_ITEMS), ...(typeof cursor === "string" && { cursor }) };
  const { items, next_cursor: next } = await ask("users.list", { query: page });
  return {
    title: "Users",
    up: { ...UP, href: base + UP.href },
    beside: view.hasKey && html`<a class="button primary" href="${base}${USERS_PATH}/new">New user</a>`,
    main: html`${typeof done === "string" && DONE[done] !== undefined && said(DONE[done])}
<p class="fine">A key can act for a user: it sees that user's spaces, and what their workflows publish.</p>
${!view.hasKey && NO_KEY}
${items.length === 0 ? EMPTY : table("keys", columnsOf(view), plain(items), ROW)}
${next !== null && older(`${base}${USERS_PATH}${searchOf({ cursor: next })}`)}`,
  };
});

const DONE: Readonly<Record<string, string>> = {
  added: "Added. Nobody acts for them yet: make a key that does.",
  disabled: "Disabled: whatever used their keys is refused from now on.",
};

const EMPTY = html`<section class="empty"><h2>No users yet</h2>
<p>Webhooks need none. Spaces belong to users, and a user's key reaches what they may see.</p></section>`;

const ROW: RowParts<User> = {
  idOf: ({ id }) => `u-${id}`,
  below: ({ email, idp_user_id: idpId }) => html`${email} · at the identity provider <code>${idpId}</code>`,
};

function columnsOf({ base, hasKey, session }: View): readonly Column<User>[] {
  return [
    { name: "Name", label: null, cell: ({ name }) => html`<strong>${name}</strong>` },
    { name: "State", label: null, cell: stateOf },
    { name: "Added", cell: ({ created_at }) => momentOf(created_at, session.timeZone) },
    {
      name: "Change",
      label: null,
      cell: ({ id, name, disabled_at: disabled }) => {
        const whose = html`<span class="unseen"> for ${name}</span>`;
        return (
          hasKey &&
          disabled === null &&
          html`<a href="${base}/keys/new${searchOf({ user: id })}">New key${whose}</a> ·
<a href="${base}${USERS_PATH}/${id}/disable">Disable<span class="unseen"> ${name}</span></a>`
        );
      },
    },
  ];
}

function stateOf({ disabled_at: disabled }: User) {
  return disabled === null ? sign("good", "●", "enabled") : sign("soft", "✕", "disabled");
}

const FIELDS = [
  { name: "name", label: "Name", type: "text", max: DISPLAY_NAME_CHARS_MAX, about: null },
  {
    name: "email",
    label: "Mail address",
    type: "email",
    max: MAIL_ADDRESS_CHARS_MAX,
    about: "Nothing is sent to it.",
  },
  {
    name: "idp_user_id",
    label: "Id at the identity provider",
    type: "text",
    max: DISPLAY_NAME_CHARS_MAX,
    about: "By which the account knows them: each id once. One that is disabled is enabled again.",
  },
] as const;

type Typed = Readonly<Partial<Record<(typeof FIELDS)[number]["name"], string>>>;

const newUserForm = get(`${USERS_PATH}/new`, async (view) => newUserPage(view, {}, []));

const addUser = post(`${USERS_PATH}/new`, async (view) => {
  refuseWithoutKey(view);
  const typed: Typed = Object.fromEntries(
    FIELDS.map(({ name }) => [name, (view.form.get(name) ?? "").trim()]),
  );
  try {
    await view.ask("users.create", { body: typed });
  } catch (error) {
    return { ...newUserPage(view, typed, refusalsOf(error, REFUSALS)), status: 422 };
  }
  return { goTo: `${view.base}${USERS_PATH}?done=added` };
});

const REFUSALS: Readonly<Record<string, string>> = {
  user_exists: "The account has a user with this id at the identity provider already.",
  idempotency_key_reused:
    "This form was already sent, and its user added. To add another one, send it again.",
};

function newUserPage(view: View, typed: Typed, errors: readonly FieldError[]): Page {
  refuseWithoutKey(view);
  refuseUnless(view, USERS_SCOPE);
  const marks = marksOfForm(
    errors,
    FIELDS.map(({ name }) => name),
  );
  const path = view.base + USERS_PATH;
  return {
    title: marks.areAny ? "Not added: New user" : "New user",
    heading: "New user",
    up: { href: path, name: "Users" },
    main: html`<section class="panel">
${formRefusal(marks)}
<form class="new-key" method="post" action="${path}/new">${keyField()}
${FIELDS.map(
  ({ name, label, type, max, about }) => html`${marks.field(
    [name],
    (marked) => html`<p><label for="${name}">${label}</label>
<input id="${name}" name="${name}" type="${type}" value="${typed[name] ?? ""}" maxlength="${max}" required
  autocomplete="off"${marked}></p>`,
  )}
${about !== null && html`<p class="fine">${about}</p>`}`,
)}
<div class="actions"><button class="primary">Add user</button> <a href="${path}">Cancel</a></div>
</form>
</section>`,
  };
}

/** Asks first. */
const disableForm = get(`${USERS_PATH}/{user_id}/disable`, async (view) => await disablingPage(view, null));

const disable = post(`${USERS_PATH}/{user_id}/disable`, async (view) => {
  refuseWithoutKey(view);
  try {
    await view.ask("users.disable", { params: view.params });
  } catch (error) {
    const why = "A key of theirs may do more than this session. Use one that may do as much.";
    return { ...(await disablingPage(view, refusalOf(error, { exceeds_own_key: why }))), status: 403 };
  }
  return { goTo: `${view.base}${USERS_PATH}?done=disabled` };
});

async function disablingPage(view: View, refusal: string | null): Promise<Page> {
  refuseWithoutKey(view);
  const user = await findListed((query) => view.ask("users.list", { query }), view.params.user_id);
  const path = view.base + USERS_PATH;
  return {
    title: user.disabled_at === null ? "Disable this user?" : "This user is disabled",
    up: { href: path, name: "Users" },
    main: html`${refusal !== null && said(`Not disabled. ${refusal}`)}
${facts([
  ["Name", user.name],
  ["State", stateOf(user)],
  ["Mail address", user.email],
  ["At the identity provider", html`<code>${user.idp_user_id}</code>`],
])}
${
  user.disabled_at === null &&
  html`<section class="panel">
<p>Every key that acts for them is revoked, at once and for good. What is theirs stays, such as spaces.</p>
<form class="actions" method="post" action="${path}/${user.id}/disable">${keyField()}
<button class="danger">Disable</button> <a href="${path}">Leave it</a></form>
</section>`
}`,
  };
}

export const userScreens = [usersScreen, newUserForm, addUser, disableForm, disable];
