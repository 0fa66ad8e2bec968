import type { Pool } from "pg";
import { z } from "zod";
import { analysisId, id, lineOfText } from "../api/fields.ts";
import { staffRead } from "../api/operations.ts";
import { DELIVERY_STATUSES } from "../base/model/statuses.ts";
import type { Operation } from "../http/operation.ts";
import { jsonResponse } from "../http/operation-io.ts";
import { AccountName } from "./accounts-api.ts";
import {
  ACCOUNTS_SEARCHED_MAX,
  type FoundDelivery,
  findAccounts,
  findDeliveriesBetween,
  findDeliveriesOfAnalysis,
  findHosts,
  type FoundHost as HostOfAccount,
  hasUnsearchedAccounts,
} from "./search-sql.ts";

/** Of each kind: who finds more than that asks for less. */
const FOUND_MAX = 20;
/** Of an id's 32 digits the first eight are a minute. */
const ID_BEGINNING = /^[0-9a-f]{8}(?:-?[0-9a-f]){0,24}$/i;

const FoundInLog = z
  .object({
    id,
    analysis_id: analysisId,
    status: z.enum(DELIVERY_STATUSES),
    target_host: z.string().nullable(),
    account: AccountName,
  })
  .meta({ id: "FoundDelivery", description: "A delivery that was found, and whose it is." });

const FoundHost = z
  .object({
    target_host: z.string(),
    succeeded: z.int().describe("Attempts in the last 24 hours."),
    failed: z.int().describe("Attempts in the last 24 hours."),
    account: AccountName,
  })
  .meta({ id: "FoundHost", description: "A host to which attempts went, and whose they were." });

export const Found = z
  .object({
    accounts: z.array(AccountName).describe("By id, or a part of the name."),
    deliveries: z.array(FoundInLog).describe("By the delivery's id or its beginning, or the analysis's id."),
    hosts: z.array(FoundHost).describe("By the whole host, or a URL with it; as of half a minute ago."),
    left_out: z
      .boolean()
      .describe(`Whether the analysis was looked for in the newest ${ACCOUNTS_SEARCHED_MAX} accounts alone.`),
  })
  .meta({ id: "Found", description: "What a search has found, of all accounts." });

export type SearchDependencies = {
  readonly pool: Pool;
  /** For reading the delivery log; see readingLog. */
  readonly logPool: Pool;
};

/** For support staff, who have an id or a name from a caller and do not know whose it is. */
export function searchOperations({ pool, logPool }: SearchDependencies): readonly Operation[] {
  return [
    staffRead({
      key: "search.find",
      tag: "Support",
      summary: "Search all accounts",
      description:
        "Finds accounts by name or id, deliveries by their id, the first 8 digits of it or more, or by their " +
        `analysis's id, and who has a host. At most ${FOUND_MAX} of each. For staff keys alone, which name no ` +
        "account here.",
      method: "GET",
      path: "/v1/search",
      scope: "staff:read",
      query: z.strictObject({
        q: lineOfText
          .trim()
          .min(1)
          .max(255)
          .describe(
            "An account's name or id, a delivery's id or its beginning, an analysis's id, or a host.",
          ),
      }),
      response: jsonResponse(200, Found),
      handle: async ({ query: { q } }) => {
        const isOfAnalysis = analysisId.safeParse(q).success;
        const host = hostOf(q);
        const [accounts, byId, byAnalysis, hosts, left_out] = await Promise.all([
          findAccounts(pool, q, FOUND_MAX),
          ID_BEGINNING.test(q) ? findDeliveriesBetween(logPool, ...idsFrom(q), FOUND_MAX) : [],
          isOfAnalysis ? findDeliveriesOfAnalysis(logPool, q, FOUND_MAX) : [],
          host === null ? [] : findHosts(logPool, host, FOUND_MAX),
          isOfAnalysis && hasUnsearchedAccounts(pool),
        ]);
        const deliveries = new Map([...byId, ...byAnalysis].map((one) => [one.id, one]));
        return {
          body: {
            accounts: [...accounts],
            deliveries: [...deliveries.values()].map(foundBody),
            hosts: hosts.map(hostBody),
            left_out,
          },
        };
      },
    }),
  ];
}

/** The first and the last id that begin with these digits. */
function idsFrom(beginning: string): [string, string] {
  const digits = beginning.replaceAll("-", "").toLowerCase();
  return [digits.padEnd(32, "0"), digits.padEnd(32, "f")];
}

/** As the log's activity has it: of a URL its host, in lower case, without a port. Null: it is none. */
function hostOf(text: string): string | null {
  const url = /^https?:\/\//i.test(text) ? text : `https://${text}`;
  if (/\s/.test(text) || !URL.canParse(url)) return null;
  const { hostname } = new URL(url);
  return hostname.includes(".") || hostname.startsWith("[") ? hostname : null;
}

function hostBody(found: HostOfAccount): z.output<typeof FoundHost> {
  const { host: target_host, succeeded, failed, accountId: id, accountName: name } = found;
  return { target_host, succeeded, failed, account: { id, name } };
}

function foundBody(found: FoundDelivery): z.output<typeof FoundInLog> {
  return {
    id: found.id,
    analysis_id: found.analysisId,
    status: found.status,
    target_host: found.host,
    account: { id: found.accountId, name: found.accountName },
  };
}
