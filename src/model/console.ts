import type { scopes } from "./api-keys.ts";

/** What a viewer may do unless the link says otherwise. */
export const DEFAULT_PERMISSIONS = ["webhooks:read"] as const satisfies readonly (typeof scopes)[number][];

/** How long a link opens a session, once. */
export const LINK_SECONDS = 60;
export const SESSION_SECONDS = { min: 300, max: 86_400, default: 3_600 } as const;
/** Of support staff, without a request that a person made. */
export const STAFF_IDLE_SECONDS = 30 * 60;

export const CONSOLE_THEMES = ["light", "dark"] as const;

export type ConsoleTheme = (typeof CONSOLE_THEMES)[number];
