import { createHmac } from "node:crypto";
import type { scopes } from "./api-keys.ts";

/** What a viewer may do unless the link says otherwise. */
export const DEFAULT_PERMISSIONS = ["webhooks:read"] as const satisfies readonly (typeof scopes)[number][];

/** How long a link opens a session, once. */
export const LINK_SECONDS = 60;
/** Of an account at a time: a page that opens one for every view is a loop. */
export const SESSIONS_MAX = 20_000;
export const SESSION_SECONDS = { min: 300, max: 86_400, default: 3_600 } as const;
/** Of support staff at most, whatever they do. */
export const STAFF_SESSION_SECONDS = 8 * 3_600;
/** Of support staff, without a request that a person made. */
export const STAFF_IDLE_SECONDS = 30 * 60;

export const CONSOLE_THEMES = ["light", "dark"] as const;

export type ConsoleTheme = (typeof CONSOLE_THEMES)[number];

/**
 * What names an origin in a link that it may frame: who has no link for it can neither compute this nor guess it, and
 * so cannot ask which origins there are. The same in every process. `secretsKey`: 32 bytes.
 */
export function framerTag(secretsKey: Uint8Array, origin: string): string {
  return createHmac("sha256", secretsKey).update(`console framer ${origin}`).digest("base64url").slice(0, 22);
}

/** A session that may be used: who looks at a page, and what they may do. */
export type ConsoleSession = {
  readonly id: string;
  /** Null: support staff. */
  readonly accountId: string | null;
  /** Null: support staff. */
  readonly accountName: string | null;
  /** Since when the account's endpoint has been paused, ISO 8601; null: it is not. */
  readonly pausedAt: string | null;
  /** The key that opened it; null: the command line, or a proxy in front that vouches for staff. */
  readonly keyId: string | null;
  /** The user that this key acts for, with whose eyes everything is shown; null: none. */
  readonly userId: string | null;
  /** Those of its permissions that its key still has. */
  readonly permissions: ReadonlySet<string>;
  readonly viewerId: string | null;
  readonly viewerLabel: string | null;
  /** The origin that may frame it; null: none. */
  readonly embedOrigin: string | null;
  /** Times are shown in it; null: UTC. */
  readonly timeZone: string | null;
  /** What its link says of that, whatever the viewer has chosen since; null: nothing. */
  readonly linkTimeZone: string | null;
  /** Null: as the viewer's system has it. */
  readonly theme: ConsoleTheme | null;
  readonly expiresAt: Date;
};

/** What is known of the account on every page about it. */
export type ShownAccount = { readonly accountName: string; readonly pausedAt: string | null };

/** What a session of support staff begins with. `keyId` null: a proxy in front vouches for them. */
export type StaffSession = Pick<ConsoleSession, "keyId" | "viewerId" | "viewerLabel"> & {
  readonly permissions: readonly string[];
};

/** In which zone a session's times are shown, and in which they would be without the viewer's choice. */
export type ConsoleZones = Pick<ConsoleSession, "timeZone" | "linkTimeZone">;

/** What became of a link. `path`: where it opens, below the account; null: the first page. */
export type EnteredLink =
  | { readonly kind: "entered"; readonly accountId: string; readonly path: string | null }
  | { readonly kind: "used" | "expired" | "unknown" };
