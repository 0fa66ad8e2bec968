import type { Pool } from "pg";
import { z } from "zod";
import { id, lineOfText, time, timeTextOrNull } from "../api/fields.ts";
import { staffRead } from "../api/operations.ts";
import { END_REASONS, type EndReason } from "../base/model/statuses.ts";
import { isoTime } from "../base/model/time.ts";
import type { Operation } from "../http/operation.ts";
import { jsonResponse } from "../http/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../http/pagination.ts";
import { COUNTED_MAX, listAccountPage, listHurtAccounts, type SeenAccount } from "./accounts-sql.ts";
import { errorCode } from "./error-codes-api.ts";
import { Replay, replayBody } from "./replays-api.ts";
import { listGoingReplays } from "./replays-sql.ts";

const tag = "Support";
const path = "/v1/accounts";
/** More are on the accounts' own lists. */
const REPLAYS_LISTED_MAX = 100;

/** Whose something is, where it is listed across accounts. */
export const AccountName = z
  .object({ id, name: z.string() })
  .meta({ id: "AccountName", description: "An account, as people call it." });

export const Account = z
  .object({
    id,
    name: z.string(),
    created_at: time,
    endpoint_url: z.string().nullable(),
    endpoint_paused: z.boolean(),
    abandoned: z
      .int()
      .describe(`Abandoned deliveries that can still be replayed; ${COUNTED_MAX} means that many or more.`),
    failed: z.int().describe("Deliveries that failed and are tried again; counted like `abandoned`."),
    leading: z
      .object({
        target_host: z.string().nullable().describe("Null: they had no target."),
        error_code: errorCode.nullable().describe("Null: there was no attempt."),
        reason: z.enum(END_REASONS).nullable().describe("Null: they are tried again."),
      })
      .nullable()
      .describe("What most of the newest of these failed with; null: there are none."),
    since: time
      .nullable()
      .describe(
        "Since when the endpoint takes nothing; where that is not known, when the oldest of the leading ones was " +
          "published. Null: all is well.",
      ),
    last_success_at: time.nullable().describe("Null: none among the newest deliveries."),
  })
  .meta({ id: "Account", description: "An account, and what does not arrive there." });

export const AccountReplay = z
  .object({ ...Replay.shape, account: AccountName })
  .meta({ id: "AccountReplay", description: "A bulk replay with its progress, and whose it is." });

export type AccountDependencies = {
  readonly pool: Pool;
  /** For reading the delivery log; see readingLog. */
  readonly logPool: Pool;
  /** How long an analysis stays readable after it was published. */
  readonly analysisRetentionMs: number;
};

/** For support staff: every account, and those to whom something does not arrive. */
export function accountOperations({
  pool,
  logPool,
  analysisRetentionMs,
}: AccountDependencies): readonly Operation[] {
  // The newest first by their ids, the hurt ones by their place in the list: their order is of this moment.
  const cursors = createCursors(z.union([id, z.int().min(0)]));
  return [
    staffRead({
      key: "accounts.list",
      tag,
      summary: "List accounts",
      description:
        "All accounts, newest first; or with `hurt` those with abandoned deliveries that can still be replayed, " +
        "those with most first, which may have changed places between two pages. For staff keys alone, which name " +
        "no account here.",
      method: "GET",
      path,
      scope: "staff:read",
      query: z.strictObject({
        name: lineOfText.min(1).max(200).optional().describe("A part of the name; not with `hurt`."),
        hurt: z.boolean().default(false).describe("Only those with abandoned deliveries."),
        ...pageQuery,
      }),
      response: jsonResponse(200, pageOf(Account), totalCappedHeader),
      handle: async ({ query: { name = null, hurt, cursor, limit }, problem }) => {
        if (hurt && name !== null) {
          const message = "Not with hurt: the worst are listed, whatever they are called.";
          throw problem("invalid_request", [{ path: "query.name", message }]);
        }
        const filter = [name, hurt];
        const place = cursors.read(cursor, filter);
        const offset = typeof place === "number" ? place : 0;
        const belowId = typeof place === "string" ? place : null;
        const page = hurt
          ? await listHurtAccounts(logPool, analysisRetentionMs, offset, limit)
          : await listAccountPage(logPool, analysisRetentionMs, name, belowId, limit);
        return { body: cursors.pageBody(page, filter, accountBody), headers: totalHeaders(page) };
      },
    }),
    staffRead({
      key: "accounts.replays.list",
      tag,
      summary: "List running replays of all accounts",
      description:
        "Bulk replays that start deliveries, or whose deliveries have attempts to come, newest first, at most " +
        `${REPLAYS_LISTED_MAX}. For staff keys alone, which name no account here.`,
      method: "GET",
      path: `${path}/replays`,
      scope: "staff:read",
      response: jsonResponse(200, pageOf(AccountReplay)),
      handle: async () => {
        const replays = await listGoingReplays(pool, REPLAYS_LISTED_MAX);
        const items = replays.map(({ account, ...replay }) => ({ ...replayBody(replay, true), account }));
        return { body: { items, next_cursor: null, total: items.length } };
      },
    }),
  ];
}

function accountBody(account: SeenAccount): z.output<typeof Account> {
  const { abandoned, failed } = account;
  const isHurt = abandoned + failed > 0;
  return {
    id: account.id,
    name: account.name,
    created_at: isoTime(account.createdAtMs),
    endpoint_url: account.endpointUrl,
    endpoint_paused: account.isPaused,
    abandoned,
    failed,
    leading: isHurt
      ? {
          target_host: account.host,
          error_code: account.errorCode as z.output<typeof errorCode> | null,
          reason: account.reason as EndReason | null,
        }
      : null,
    since: isHurt ? timeTextOrNull(account.sinceMs) : null,
    last_success_at: timeTextOrNull(account.lastSuccessAtMs),
  };
}
