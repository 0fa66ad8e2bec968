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
