import { DAY_SECONDS } from "./time.ts";

/** Scopes of API keys; each operation requires one. */
export const scopes = [
  "analyses:erase",
  "analyses:publish",
  "analyses:read",
  "audit:read",
  "console:link",
  "documents:read",
  "documents:write",
  "keys:write",
  "operations:read",
  "pages:read",
  "pages:write",
  "spaces:read",
  "spaces:write",
  "staff:read",
  "usage:read",
  "users:write",
  "webhooks:read",
  "webhooks:replay",
  "webhooks:secrets",
  "webhooks:write",
  "workflows:read",
  "workflows:run",
  "workflows:write",
] as const;

type Scope = (typeof scopes)[number];

/** It goes across accounts: no account's key has it. */
export const STAFF_SCOPE = "staff:read" satisfies Scope;

/** Whoever has it makes keys that act for any user of the account, and so can do what each of them may. */
export const USERS_SCOPE = "users:write" satisfies Scope;

/** What keys of accounts can have. */
export const accountScopes = scopes.filter((scope) => scope !== STAFF_SCOPE);

type AccountScope = (typeof accountScopes)[number];

/** With them a user's key would change what is the account's, such as its endpoint. The database refuses it, too. */
export const ACCOUNTS_OWN_SCOPES: ReadonlySet<string> = new Set<AccountScope>([
  "audit:read",
  USERS_SCOPE,
  "webhooks:secrets",
  "webhooks:write",
]);

/** With these an account puts in order what its users may have filled: endpoint, signing secrets, keys. */
export const RECOVERY_SCOPES: ReadonlySet<string> = new Set<AccountScope>([
  "keys:write",
  "webhooks:secrets",
  "webhooks:write",
]);

/** What keys that act for a user can have. */
export const userScopes = accountScopes.filter((scope) => !ACCOUNTS_OWN_SCOPES.has(scope));

/** Part of the key's text: `live` in production, `test` elsewhere. Neither is valid in the other environment. */
export const KEY_CLASSES = ["live", "test"] as const;

export type KeyClass = (typeof KEY_CLASSES)[number];

/** Ten years. */
export const API_KEY_LIFETIME_SECONDS_MAX = 3_650 * DAY_SECONDS;
