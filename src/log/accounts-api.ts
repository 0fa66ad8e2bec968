import { z } from "zod";
import { analysisId, id, lineOfText } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { jsonResponse, type Operation } from "../http/operation.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../http/pagination.ts";
import { ACCOUNT_FOUND_MAX, Account, AccountName, FOUND_MAX, Found } from "./accounts-schema.ts";
import {
  findAccounts,
  findDeliveriesBetween,
  findDeliveriesOfAnalysis,
  findHosts,
  hasUnsearchedAccounts,
  listAccountPage,
  listFailingAccounts,
} from "./accounts-sql.ts";
import type { LogDependencies } from "./deliveries-api.ts";
import { ID_BEGINNING, idsFrom } from "./delivery-filter-api.ts";
import { replayBody } from "./replays-api.ts";
import { Replay } from "./replays-schema.ts";
import { listRunningReplays } from "./replays-sql.ts";

const { staffRead } = operationsOf("Support");
/** More are on the accounts' own lists. */
const REPLAYS_LISTED_MAX = 100;

export const AccountReplay = z
  .object({ ...Replay.shape, account: AccountName })
  .meta({ id: "AccountReplay", description: "A bulk replay with its progress and its account." });

/** For support staff: every account, those with failed deliveries, and whose something is that a caller names. */
export function accountOperations({
  pool,
  logPool,
  analysisRetentionMs,
}: LogDependencies): readonly Operation[] {
  // The newest first by their ids, the failing ones by their place in the list: their order is of this moment.
  const cursors = createCursors(z.union([id, z.int().min(0)]));
  return [
    staffRead({
      key: "accounts.list",
      summary: "List accounts",
      description:
        "All accounts, newest first; or with `failing` those with abandoned deliveries that can still be replayed, " +
        "most first; that order may change between pages. For staff keys only, without " +
        "X-Account-Id.",
      path: "/v1/accounts",
      scope: "staff:read",
      query: z.strictObject({
        name: lineOfText.min(1).max(200).optional().describe("A part of the name; not with `failing`."),
        failing: z.boolean().default(false).describe("Only those with abandoned deliveries."),
        hurt: z.boolean().optional().meta({ description: "The old name of `failing`.", deprecated: true }),
        ...pageQuery,
      }),
      response: jsonResponse(200, pageOf(Account), totalCappedHeader),
      handle: async ({ query: { name = null, hurt = false, cursor, limit, ...query }, problem }) => {
        const failing = query.failing || hurt;
        if (failing && name !== null) {
          const message = "Cannot be combined with failing, which lists the worst accounts.";
          throw problem("invalid_request", [{ path: "query.name", message }]);
        }
        const filter = [name, failing];
        const place = cursors.read(cursor, filter);
        const offset = typeof place === "number" ? place : 0;
        const belowId = typeof place === "string" ? place : null;
        const page = failing
          ? await listFailingAccounts(logPool, analysisRetentionMs, offset, limit)
          : await listAccountPage(logPool, analysisRetentionMs, name, belowId, limit);
        return { body: cursors.pageBody(page, filter, (account) => account), headers: totalHeaders(page) };
      },
    }),
    staffRead({
      key: "accounts.replays.list",
      summary: "List running replays of all accounts",
      description:
        "Bulk replays that are starting deliveries, or whose deliveries still have attempts due, newest first, at " +
        `most ${REPLAYS_LISTED_MAX}. For staff keys only, without X-Account-Id.`,
      path: "/v1/accounts/replays",
      scope: "staff:read",
      response: jsonResponse(200, pageOf(AccountReplay)),
      handle: async ({ caller }) => {
        const replays = await listRunningReplays(pool, REPLAYS_LISTED_MAX);
        const items = replays.map(({ account, ...replay }) => ({ ...replayBody(replay, caller), account }));
        return { body: { items, next_cursor: null, total: items.length } };
      },
    }),
    staffRead({
      key: "search.find",
      summary: "Search all accounts",
      description:
        "Finds accounts by name or id, deliveries by their id or their analysis's, and hosts with their accounts. " +
        "The beginning of an id is enough, of a delivery's its first 8 digits, and so is a host's. At most " +
        `${FOUND_MAX} of each, of one account's analyses ${ACCOUNT_FOUND_MAX}. For staff keys only, without ` +
        "X-Account-Id.",
      path: "/v1/search",
      scope: "staff:read",
      query: z.strictObject({
        q: lineOfText
          .trim()
          .min(1)
          .max(255)
          .describe(
            "An account's name or id, or the beginning of a delivery's or an analysis's id, or of a host.",
          ),
      }),
      response: jsonResponse(200, Found),
      handle: async ({ query: { q } }) => {
        const isOfAnalysis = analysisId.safeParse(q).success;
        const host = hostOf(q);
        const [accounts, byId, byAnalysis, hosts, left_out] = await Promise.all([
          findAccounts(pool, q),
          ID_BEGINNING.test(q) ? findDeliveriesBetween(logPool, ...idsFrom(q)) : [],
          isOfAnalysis ? findDeliveriesOfAnalysis(logPool, q) : [],
          host === null ? [] : findHosts(logPool, host),
          isOfAnalysis && hasUnsearchedAccounts(pool),
        ]);
        const deliveries = new Map([...byId, ...byAnalysis].map((one) => [one.id, one]));
        return { body: { accounts, deliveries: [...deliveries.values()], hosts, left_out } };
      },
    }),
  ];
}

/** As the log's activity has it: of a URL its host, in lower case, without a port. Null: it is none. */
function hostOf(text: string): string | null {
  const url = /^https?:\/\//i.test(text) ? text : `https://${text}`;
  if (/\s/.test(text) || !URL.canParse(url)) return null;
  const { hostname } = new URL(url);
  return hostname.includes(".") || hostname.startsWith("[") ? hostname : null;
}
