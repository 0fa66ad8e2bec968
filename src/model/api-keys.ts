import { DAY_SECONDS } from "./time.ts";

/** Scopes of API keys; each operation requires one. */
export const scopes = [
  "analyses:publish",
  "analyses:read",
  "audit:read",
  "console:link",
  "keys:write",
  "operations:read",
  "webhooks:read",
  "webhooks:replay",
  "webhooks:secrets",
  "webhooks:write",
] as const;

/** Part of the key's text: `live` in production, `test` elsewhere. Neither is valid in the other environment. */
export const KEY_CLASSES = ["live", "test"] as const;

export type KeyClass = (typeof KEY_CLASSES)[number];

/** Ten years. */
export const API_KEY_LIFETIME_SECONDS_MAX = 3_650 * DAY_SECONDS;
