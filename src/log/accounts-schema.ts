import { z } from "zod";
import { analysisId, id, time } from "../api/fields.ts";
import { DELIVERY_STATUSES, END_REASONS } from "../base/model/statuses.ts";
import { errorCode } from "./error-codes-api.ts";

/** More of one account's are "at least" so many. */
export const COUNTED_MAX = 1_000;
/** Found of each kind: who finds more than that asks for less. */
export const FOUND_MAX = 20;
/** Found of one account's analyses, so that many of one beginning hide nobody else's. */
export const ACCOUNT_FOUND_MAX = 3;
/** Accounts that an analysis's id is looked for in, the newest first: each is one look into an index. */
export const ACCOUNTS_SEARCHED_MAX = 10_000;

/** Whose something is, where it is listed across accounts. */
export const AccountName = z
  .object({ id, name: z.string() })
  .meta({ id: "AccountName", description: "An account's id and name." });

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
        accepted_at: time
          .nullable()
          .describe("When the target accepted one last, if none has failed there since. Null: it has."),
      })
      .nullable()
      .describe("The most common error of the newest of these; null: there are none."),
    since: time
      .nullable()
      .describe(
        "When the endpoint began to accept nothing; if that is not known, when the oldest delivery with this error " +
          "was published. Null: all is well.",
      ),
    last_success_at: time.nullable().describe("Null: none among the newest deliveries."),
  })
  .meta({ id: "Account", description: "An account and its failing deliveries." });

const FoundDelivery = z
  .object({
    id,
    analysis_id: analysisId,
    status: z.enum(DELIVERY_STATUSES),
    target_host: z.string().nullable(),
    account: AccountName,
  })
  .meta({ id: "FoundDelivery", description: "A delivery that was found, and its account." });

const FoundHost = z
  .object({
    target_host: z.string(),
    succeeded: z.int().describe("Attempts in the last 24 hours."),
    failed: z.int().describe("Attempts in the last 24 hours."),
    account: AccountName,
  })
  .meta({ id: "FoundHost", description: "A host that attempts went to, and their account." });

export const Found = z
  .object({
    accounts: z.array(AccountName).describe("By id, or a part of the name."),
    deliveries: z
      .array(FoundDelivery)
      .describe("By the delivery's id or its beginning, or the analysis's id."),
    hosts: z.array(FoundHost).describe("By the whole host, or a URL with it; as of half a minute ago."),
    left_out: z
      .boolean()
      .describe(`Whether the analysis was looked for in the newest ${ACCOUNTS_SEARCHED_MAX} accounts only.`),
  })
  .meta({ id: "Found", description: "What a search across all accounts has found." });

export type Account = z.output<typeof Account>;
export type AccountName = z.output<typeof AccountName>;
export type Found = z.output<typeof Found>;
