import type { ClientBase, Pool } from "pg";
import { timeText } from "../base/database/time-text.ts";
import {
  type ConsoleSession,
  type EnteredLink,
  SESSIONS_MAX,
  STAFF_IDLE_SECONDS,
  STAFF_SESSION_SECONDS,
  type StaffSession,
} from "../base/model/console.ts";
import { type Held, hasRoomFor } from "../base/model/reader.ts";
import type { ConsoleSession as ShownSession } from "./accounts-schema.ts";

/** `keyId` null: the command line. */
export type NewLink = Pick<ConsoleSession, "keyId" | "embedOrigin" | "timeZone" | "theme"> & {
  readonly accountId: string;
  readonly permissions: readonly string[];
  readonly viewerId: string;
  readonly viewerLabel: string;
  /** Under the account's part of the console; null: its first page. */
  readonly path: string | null;
  readonly linkDigest: Buffer;
  readonly linkSeconds: number;
  readonly sessionSeconds: number;
};

export type Link = { readonly sessionId: string; readonly linkExpiresAt: Date; readonly expiresAt: Date };

/** Whether the account, or its user, may open another. Some opened at the same moment may go beyond the limit. */
export async function hasRoomForSession(
  client: ClientBase,
  accountId: string,
  userId: string | null,
): Promise<boolean> {
  const { rows } = await client.query<Held>(
    `select count(*)::integer as "inAll",
       case when $3::uuid is not null then count(*) filter (where ${openedBy("$3")})::integer end as "ofUser"
     from (
       select key_id from sealpost.console_sessions
       where account_id = $1 and expires_at > now() and revoked_at is null limit $2
     ) as open`,
    [accountId, SESSIONS_MAX, userId],
  );
  return hasRoomFor(1, rows[0]!, SESSIONS_MAX);
}

/** Creates a session, which whoever first enters by the link gets. */
export async function insertLink(client: ClientBase | Pool, link: NewLink): Promise<Link> {
  const { accountId, keyId, permissions, viewerId, viewerLabel, embedOrigin, timeZone, theme, path } = link;
  const session = [accountId, keyId, permissions, viewerId, viewerLabel, embedOrigin, timeZone, theme, path];
  const { rows } = await client.query<Link>(
    `insert into sealpost.console_sessions
       (account_id, key_id, permissions, viewer_id, viewer_label, embed_origin, time_zone, theme, path, link_digest,
        link_expires_at, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now() + $11::float8 * interval '1 second',
       now() + $12::float8 * interval '1 second')
     returning id as "sessionId", link_expires_at as "linkExpiresAt", expires_at as "expiresAt"`,
    [...session, link.linkDigest, link.linkSeconds, link.sessionSeconds],
  );
  return rows[0]!;
}

/** Opens a session of support staff, which has no account, under `digest`. Returns its id. */
export async function insertStaffSession(
  client: ClientBase,
  digest: Buffer,
  { keyId, permissions, viewerId, viewerLabel }: StaffSession,
): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `insert into sealpost.console_sessions
       (key_id, permissions, viewer_id, viewer_label, digest, entered_at, last_active_at, expires_at)
     values ($1, $2, $3, $4, $5, now(), now(), now() + $6::float8 * interval '1 second')
     returning id`,
    [keyId, permissions, viewerId, viewerLabel, digest, STAFF_SESSION_SECONDS],
  );
  return rows[0]!.id;
}

/** Consumes a link: the first who comes while it is valid gets its session, under `digest`. */
export async function enterByLink(pool: Pool, linkDigest: Buffer, digest: Buffer): Promise<EnteredLink> {
  const { rows } = await pool.query<{ account_id: string; path: string | null }>(
    `update sealpost.console_sessions
     set digest = $2, entered_at = now(), last_active_at = now()
     where link_digest = $1 and entered_at is null and link_expires_at > now() and revoked_at is null
     returning account_id, path`,
    [linkDigest, digest],
  );
  if (rows[0]) return { kind: "entered", accountId: rows[0].account_id, path: rows[0].path };
  const { rows: found } = await pool.query<{ is_used: boolean }>(
    "select entered_at is not null as is_used from sealpost.console_sessions where link_digest = $1",
    [linkDigest],
  );
  return { kind: found[0] === undefined ? "unknown" : found[0].is_used ? "used" : "expired" };
}

const FIND = `
select s.digest, s.id, s.account_id as "accountId", a.name as "accountName", ${timeText("e.paused_at")} as "pausedAt",
  s.key_id as "keyId", k.user_id as "userId",
  case when s.key_id is null then s.permissions
    else array(select unnest(s.permissions) intersect select unnest(k.scopes)) end as permissions,
  s.viewer_id as "viewerId", coalesce(s.viewer_label, k.name) as "viewerLabel", s.embed_origin as "embedOrigin",
  s.time_zone as "timeZone", s.time_zone as "linkTimeZone", s.theme, s.expires_at as "expiresAt"
from sealpost.console_sessions s
left join sealpost.api_keys k on k.id = s.key_id
left join sealpost.accounts a on a.id = s.account_id
left join sealpost.endpoints e on e.account_id = s.account_id
where s.digest = any($1) and s.revoked_at is null and s.expires_at > now()
  and (s.key_id is null or k.revoked_at is null and (k.expires_at is null or k.expires_at > now()))
  and (s.account_id is not null or s.last_active_at > now() - $2::float8 * interval '1 second')`;

type Found = Omit<ConsoleSession, "permissions"> & { digest: Buffer; permissions: string[] };

/** By their digests in hexadecimal, without those that have ended, whose key has, or whose staff were idle too long. */
export async function findSessions(
  pool: Pool,
  digests: readonly string[],
): Promise<ReadonlyMap<string, ConsoleSession>> {
  const { rows } = await pool.query<Found>({
    name: "find_console_sessions",
    text: FIND,
    values: [digests.map((digest) => Buffer.from(digest, "hex")), STAFF_IDLE_SECONDS],
  });
  return new Map(
    rows.map(({ digest, permissions, ...session }) => [
      digest.toString("hex"),
      { ...session, permissions: new Set(permissions) },
    ]),
  );
}

/** A person did something, noted at most once a minute. */
export async function noteSessionUse(pool: Pool, id: string): Promise<void> {
  await pool.query({
    name: "note_console_session_use",
    text: `update sealpost.console_sessions set last_active_at = now()
      where id = $1 and last_active_at < now() - interval '1 minute'`,
    values: [id],
  });
}

/** For a caller that acts for a user there are no sessions but those that the user's keys have opened. */
const openedBy = (user: string) =>
  `(${user}::uuid is null or key_id in (select id from sealpost.api_keys where user_id = ${user}))`;

/** Live, or still to be entered, newest first. `viewerId`, and `userId` (whose keys have opened them), null: all. */
export async function listSessions(
  pool: Pool,
  accountId: string,
  { viewerId, userId }: { readonly viewerId: string | null; readonly userId: string | null },
  max: number,
): Promise<ShownSession[]> {
  const { rows } = await pool.query<ShownSession>(
    `select id, json_build_object('id', coalesce(viewer_id, ''), 'label', coalesce(viewer_label, '')) as viewer,
       permissions, ${timeText("created_at")} as created_at, ${timeText("entered_at")} as entered_at,
       ${timeText("last_active_at")} as last_active_at, ${timeText("expires_at")} as expires_at
     from sealpost.console_sessions
     where account_id = $1 and ($2::text is null or viewer_id = $2) and revoked_at is null and expires_at > now()
       and ${openedBy("$4")}
       and (entered_at is not null or link_expires_at > now())
       and (key_id is null or exists (
         select from sealpost.api_keys as k
         where k.id = key_id and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
       ))
     order by id desc limit $3`,
    [accountId, viewerId, max, userId],
  );
  return rows;
}

/** Ends the account's: one, a viewer's, or all; with a user, of those that the user's keys opened. */
export async function revokeSessions(
  client: ClientBase | Pool,
  accountId: string,
  { id, viewerId, userId }: Readonly<Record<"id" | "viewerId" | "userId", string | null>>,
): Promise<void> {
  await client.query(
    `update sealpost.console_sessions set revoked_at = now()
     where account_id = $1 and ($2::uuid is null or id = $2) and ($3::text is null or viewer_id = $3)
       and revoked_at is null and expires_at > now() and ${openedBy("$4")}`,
    [accountId, id, viewerId, userId],
  );
}

/** Its holder has left. */
export async function endSession(pool: Pool, id: string): Promise<void> {
  await pool.query("update sealpost.console_sessions set revoked_at = now() where id = $1", [id]);
}
