import { DAY_SECONDS } from "./time.ts";

/** Scopes of API keys; each operation requires one. */
export const scopes = [
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
  "webhooks:read",
  "webhooks:replay",
  "webhooks:secrets",
  "webhooks:write",
  "workflows:read",
  "workflows:run",
  "workflows:write",
] as const;

type Scope = (typeof scopes)[number];

/** Those of them that no account's key has: they go across accounts. */
const STAFF_SCOPES = ["staff:read"] as const satisfies readonly Scope[];

type AccountScope = Exclude<Scope, (typeof STAFF_SCOPES)[number]>;

/** What keys of accounts can have. */
export const accountScopes = scopes.filter((scope): scope is AccountScope => !isStaffScope(scope));

export function isStaffScope(scope: string): boolean {
  return STAFF_SCOPES.some((one) => one === scope);
}

/**
 * Those that no key has which acts for a user: with them it would read or change what is the account's, such as where
 * everybody's webhooks go. The database refuses such a key, too.
 */
const ACCOUNTS_OWN_SCOPES = [
  "audit:read",
  "webhooks:secrets",
  "webhooks:write",
] as const satisfies readonly AccountScope[];

export function isAccountsOwnScope(scope: string): boolean {
  return ACCOUNTS_OWN_SCOPES.some((one) => one === scope);
}

/** With these an account puts in order what its users may have filled: endpoint, signing secrets, keys. */
const HELPING_SCOPES = [
  "keys:write",
  "webhooks:secrets",
  "webhooks:write",
] as const satisfies readonly AccountScope[];

export function isHelpingScope(scope: string): boolean {
  return HELPING_SCOPES.some((one) => one === scope);
}

/** What keys that act for a user can have. */
export const userScopes = accountScopes.filter((scope) => !isAccountsOwnScope(scope));

/** Part of the key's text: `live` in production, `test` elsewhere. Neither is valid in the other environment. */
export const KEY_CLASSES = ["live", "test"] as const;

export type KeyClass = (typeof KEY_CLASSES)[number];

/** Ten years. */
export const API_KEY_LIFETIME_SECONDS_MAX = 3_650 * DAY_SECONDS;
