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

/** Part of the key's text: `live` in production, `test` elsewhere. Neither is valid in the other environment. */
export const KEY_CLASSES = ["live", "test"] as const;

export type KeyClass = (typeof KEY_CLASSES)[number];

/** Ten years. */
export const API_KEY_LIFETIME_SECONDS_MAX = 3_650 * DAY_SECONDS;
