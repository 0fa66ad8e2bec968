import type { Pool } from "pg";
import { z } from "zod";
import { time } from "../api/fields.ts";
import { type ApiPart, operationsOf } from "../api/operations.ts";
import { readStorage } from "../base/database/storage.ts";
import { STORAGE_KINDS, type StorageUse } from "../base/model/storage.ts";
import { jsonResponse, type Operation } from "../http/operation.ts";

const bytes = z.int().min(0);

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
        bytes: bytes.describe("Stored now. A row counts 1 KiB on top of its content."),
        bytes_max: bytes
          .nullable()
          .describe("More than that is refused: 409 `storage_full`. Null: no limit."),
        bytes_left: bytes.nullable(),
      }),
    ),
  })
  .meta({ id: "Usage", description: "What the account stores, by kind, and how much it may store." });

/** What an account uses. @param parts of which each adds what its area stores */
export function usageOperations(pool: Pool, parts: readonly ApiPart[]): readonly Operation[] {
  return [
    operationsOf("Usage").read({
      key: "usage.get",
      summary: "Get what the account stores",
      description:
        "How many bytes of each kind the account stores, how many it may store, and how many are left. 403 for keys " +
        "that act for a user: it covers the whole account.",
      path: "/v1/usage",
      scope: "usage:read",
      isOfAccount: true,
      response: jsonResponse(200, Usage),
      handle: async ({ accountId }) => {
        const { uses, analysesCountedAt } = await readStorage(pool, accountId);
        const ofParts = await Promise.all(parts.map((part) => part.readStorage?.(accountId) ?? []));
        const all = new Map([...uses, ...ofParts.flat()].map((use) => [use.kind, use]));
        const listed = STORAGE_KINDS.flatMap((kind) => all.get(kind) ?? []);
        return {
          body: { analyses_counted_at: analysesCountedAt.toISOString(), storage: listed.map(useBody) },
        };
      },
    }),
  ];
}

function useBody({ kind, bytes, bytesMax }: StorageUse) {
  const bytes_left = bytesMax === null ? null : Math.max(bytesMax - bytes, 0);
  return { kind, bytes, bytes_max: bytesMax, bytes_left };
}
