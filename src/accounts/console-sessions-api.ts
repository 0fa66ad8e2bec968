import type { Pool } from "pg";
import { z } from "zod";
import { id, lineOfText, time } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { accountScopes } from "../base/model/api-keys.ts";
import {
  CONSOLE_THEMES,
  DEFAULT_PERMISSIONS,
  framerTag,
  LINK_SECONDS,
  SESSION_SECONDS,
} from "../base/model/console.ts";
import { keysOf, type SecretsKey } from "../base/model/secrets-key.ts";
import { isTimeZone } from "../base/model/time.ts";
import { digestSecret, newSecret } from "../http/api-keys.ts";
import { emptyResponse, jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import { pageOf } from "../http/pagination.ts";
import { invalidRequest } from "../http/problems.ts";
import { ConsoleSession } from "./accounts-schema.ts";
import { hasRoomForSession, insertLink, listSessions, revokeSessions } from "./console-sessions-sql.ts";

const { read, write } = operationsOf("Console");
const path = "/v1/console";
/** A viewer has a handful. */
const SESSIONS_LISTED_MAX = 100;

const viewerText = lineOfText.min(1).max(200);
const viewerId = viewerText.describe("The viewer's id in your system.");
const viewerLabel = viewerText.describe(
  "A name to show to people. The audit log has it for 365 days: a pseudonym, where somebody may have to be forgotten.",
);

const NewLink = z.strictObject({
  permissions: z
    .array(z.enum(accountScopes))
    .min(1)
    .max(accountScopes.length)
    .default([...DEFAULT_PERMISSIONS])
    .describe("Scopes of the session, each of which the key must have. Absent: `webhooks:read`."),
  session_seconds: z
    .int()
    .min(SESSION_SECONDS.min)
    .max(SESSION_SECONDS.max)
    .default(SESSION_SECONDS.default)
    .describe("How long the session lasts."),
  viewer: z.strictObject({ id: viewerId, label: viewerLabel }).describe("Who the session is for."),
  embed_origin: z
    .string()
    .max(300)
    .optional()
    .describe("Origin of the page that shows it in a frame; one of the service's CONSOLE_ANCESTORS."),
  path: z
    .string()
    .regex(/^(?:\/[a-z0-9-]{1,60}){1,4}$/, "Must be a path of the console, such as /deliveries.")
    .optional()
    .describe("Where it opens, below the account: `/deliveries`, `/deliveries/DELIVERY_ID`, `/endpoint`."),
  theme: z.enum(CONSOLE_THEMES).optional().describe("Without it: the setting of the viewer's system."),
  time_zone: z
    .string()
    .refine(isTimeZone, "Must be a time zone such as Europe/Berlin.")
    .optional()
    .describe("Times are shown in this zone, until the viewer chooses another. Without it: UTC."),
});

const NewLinkAnswer = z
  .object({
    url: z.string().describe("Opens the console once; send the viewer's browser there."),
    link_expires_at: time,
    session_expires_at: time,
  })
  .meta({ id: "ConsoleLink", description: "A link that opens the console for one viewer." });

export type ConsoleDependencies = {
  readonly pool: Pool;
  /** URL under which clients reach the service, without /v1. */
  readonly publicUrl: string;
  /** Origins that may show the console in a frame. */
  readonly consoleAncestors: readonly string[];
  /** Opens and seals signing secrets. */
  readonly secretsKey: SecretsKey;
};

/** Access to the console: a tenant's own application opens it for its users. */
export function consoleOperations({
  pool,
  publicUrl,
  consoleAncestors,
  secretsKey,
}: ConsoleDependencies): readonly Operation[] {
  return [
    write({
      key: "console.links.create",
      summary: "Open the console for a viewer",
      description:
        "Returns a link that opens the console for one of your users. It works once, for 60 seconds; revoking the " +
        "key ends the sessions that it opened. A session acts for the same user as the key, or for none if the key " +
        "acts for none.",
      method: "POST",
      path: `${path}/links`,
      scope: "console:link",
      risk: "reversible",
      holdsSecret: true,
      audit: ({ body: { permissions, viewer, embed_origin } }) => ({ permissions, viewer, embed_origin }),
      body: jsonBody(NewLink),
      response: jsonResponse(201, NewLinkAnswer),
      errors: ["too_many_sessions"],
      handle: async ({ accountId, body, caller, problem }, tx) => {
        for (const permission of body.permissions) {
          if (!caller.scopes.has(permission))
            throw invalidRequest("body.permissions", `The key itself does not have ${permission}.`);
        }
        if (body.embed_origin !== undefined && !consoleAncestors.includes(body.embed_origin)) {
          throw invalidRequest("body.embed_origin", "It is not among the service's CONSOLE_ANCESTORS.");
        }
        if (!(await hasRoomForSession(tx, accountId, caller.userId))) throw problem("too_many_sessions");
        const token = newSecret();
        const link = await insertLink(tx, {
          accountId,
          keyId: caller.keyId,
          permissions: body.permissions,
          viewerId: body.viewer.id,
          viewerLabel: body.viewer.label,
          embedOrigin: body.embed_origin ?? null,
          timeZone: body.time_zone ?? null,
          theme: body.theme ?? null,
          path: body.path ?? null,
          linkDigest: digestSecret(token),
          linkSeconds: LINK_SECONDS,
          sessionSeconds: body.session_seconds,
        });
        const framer =
          body.embed_origin === undefined ? null : framerTag(keysOf(secretsKey)[0], body.embed_origin);
        return {
          body: {
            url: consoleUrl(publicUrl, token, framer),
            link_expires_at: link.linkExpiresAt.toISOString(),
            session_expires_at: link.expiresAt.toISOString(),
          },
        };
      },
    }),
    read({
      key: "console.sessions.list",
      summary: "List console sessions",
      description:
        `The account's live sessions, newest first, at most ${SESSIONS_LISTED_MAX}. With a key that acts for a user: ` +
        "those that this user's keys have opened.",
      path: `${path}/sessions`,
      scope: "console:link",
      query: z.strictObject({ viewer_id: viewerId.optional() }),
      response: jsonResponse(200, pageOf(ConsoleSession)),
      handle: async ({ accountId, caller: { userId }, query }) => {
        const whose = { viewerId: query.viewer_id ?? null, userId };
        const items = await listSessions(pool, accountId, whose, SESSIONS_LISTED_MAX);
        return { body: { items, next_cursor: null, total: items.length } };
      },
    }),
    write({
      key: "console.sessions.revoke",
      summary: "End console sessions",
      description:
        "Ends one session, all sessions of a viewer, or, with an empty body, all of the account. With a key that " +
        "acts for a user: only those that this user's keys have opened.",
      method: "POST",
      path: `${path}/sessions/revoke`,
      scope: "console:link",
      audit: ({ body: { session_id, viewer_id } }) => ({ session_id, viewer_id }),
      body: jsonBody(z.strictObject({ session_id: id.optional(), viewer_id: viewerId.optional() }), {
        isOptional: true,
      }),
      response: emptyResponse(),
      handle: async ({ accountId, caller: { userId }, body }, tx) => {
        await revokeSessions(tx, accountId, {
          userId,
          id: body.session_id ?? null,
          viewerId: body.viewer_id ?? null,
        });
      },
    }),
  ];
}

/** A fragment reaches no log, no proxy and no Referer. `framer`: tag of the origin that may frame it; null: none. */
export function consoleUrl(publicUrl: string, token: string, framer: string | null): string {
  const query = framer === null ? "" : `?frame=${framer}`;
  return `${publicUrl.replace(/\/+$/, "")}/console/enter${query}#t=${token}`;
}
