/** Scopes of API keys; each operation requires one. */
export const scopes = [
  "analyses:publish",
  "analyses:read",
  "console:link",
  "operations:read",
  "webhooks:read",
  "webhooks:replay",
  "webhooks:secrets",
  "webhooks:write",
] as const;

/** Part of the key's text: `live` in production, `test` elsewhere. Neither is valid in the other environment. */
export const KEY_CLASSES = ["live", "test"] as const;

export type KeyClass = (typeof KEY_CLASSES)[number];
