/** What a key may be made for; each operation of the API asks for one of these. */
export const scopes = [
  "analyses:publish",
  "analyses:read",
  "operations:read",
  "webhooks:read",
  "webhooks:replay",
  "webhooks:secrets",
  "webhooks:write",
] as const;

/** Stands in a key's text: `live` in production, `test` elsewhere. A key of the one is unknown to the other. */
export const KEY_CLASSES = ["live", "test"] as const;

export type KeyClass = (typeof KEY_CLASSES)[number];
