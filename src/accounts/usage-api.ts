import type { Pool } from "pg";
import { z } from "zod";
import { time } from "../api/fields.ts";
import { type ApiPart, operationsOf } from "../api/operations.ts";
import { readStorage } from "../base/database/storage.ts";
import { QUOTA_NAMES, QUOTAS, STORAGE_KINDS, type StorageUse } from "../base/model/storage.ts";
import { jsonResponse, type Operation } from "../http/operation.ts";

const amount = z.int().min(0);

const Usage = z
  .object({
    analyses_counted_at: time.describe(
      "What was published by then is counted, unless its transaction was still open; about half a minute ago.",
    ),
    storage: z.array(
      z.object({
        kind: z
          .enum(STORAGE_KINDS)
          .describe(
            "`analyses` with 2 KiB each for the log, and its attempts; `replays` that are kept, 256 bytes for each " +
              "delivery that they have started or may start; `answers` to today's writes (UTC), kept for their " +
              "Idempotency-Keys; `audit`: rows of the audit log, as long as they are kept; " +
              "`documents`, including uploads in progress; `leftovers` of renames and uploads, " +
              "which are removed soon; `pages` with their versions; `workflows` with theirs; `runs` with their " +
              "items, including ended runs.",
          ),
        bytes: amount.describe("Stored now. A row counts 1 KiB on top of its content."),
        bytes_max: amount
          .nullable()
          .describe("More than that is refused: 409 `storage_full`. Null: no limit."),
        bytes_left: amount.nullable(),
      }),
    ),
    quotas: z
      .array(
        z.object({
          quota: z
            .enum(QUOTA_NAMES)
            .describe(`${QUOTA_NAMES.map((quota) => `\`${quota}\`: ${QUOTAS[quota].what}`).join("; ")}.`),
          used: amount.describe("Now; of one space: of the one that has the most."),
          max: amount
            .nullable()
            .describe(
              "More than that is refused, by the operator's choice: 413 `space_too_large` where it is about one " +
                "space, else 402 `billing_credits_exhausted`. Null: any amount.",
            ),
          left: amount.nullable(),
        }),
      )
      .describe("Of the workspace; empty where that is not offered."),
  })
  .meta({ id: "Usage", description: "What the account stores, by kind, and what it may have." });

/** What an account uses. @param parts of which each adds what its area stores */
export function usageOperations(pool: Pool, parts: readonly ApiPart[]): readonly Operation[] {
  return [
    operationsOf("Usage").read({
      key: "usage.get",
      summary: "Get what the account stores",
      description:
        "How many bytes of each kind the account stores, how many it may store, and how many are left; and the same " +
        "of its quotas. 403 for keys that act for a user: it covers the whole account.",
      path: "/v1/usage",
      scope: "usage:read",
      isOfAccount: true,
      response: jsonResponse(200, Usage),
      handle: async ({ accountId }) => {
        const { uses, analysesCountedAt } = await readStorage(pool, accountId);
        const ofParts = await Promise.all(parts.map((part) => part.readStorage?.(accountId) ?? []));
        const all = new Map([...uses, ...ofParts.flat()].map((use) => [use.kind, use]));
        const listed = STORAGE_KINDS.flatMap((kind) => all.get(kind) ?? []);
        const quotas = (await Promise.all(parts.map((part) => part.readQuotas?.(accountId) ?? []))).flat();
        return {
          body: {
            analyses_counted_at: analysesCountedAt.toISOString(),
            storage: listed.map(useBody),
            quotas: quotas.map(({ quota, used, most }) => ({
              quota,
              used,
              max: most,
              left: leftOf(most, used),
            })),
          },
        };
      },
    }),
  ];
}

function useBody({ kind, bytes, bytesMax }: StorageUse) {
  return { kind, bytes, bytes_max: bytesMax, bytes_left: leftOf(bytesMax, bytes) };
}

const leftOf = (most: number | null, used: number) => (most === null ? null : Math.max(most - used, 0));
