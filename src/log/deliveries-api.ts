import type { Pool } from "pg";
import { z } from "zod";
import { event, id, time } from "../api/fields.ts";
import { read, write } from "../api/operations.ts";
import type { DomainCode } from "../api/problems.ts";
import type { ReadLog } from "../base/database/log-reader.ts";
import { createdAtMs } from "../base/database/partitions.ts";
import type { ReplayOutcome } from "../base/model/statuses.ts";
import { Analysis } from "../delivery/analyses-api.ts";
import { findBody } from "../delivery/analyses-sql.ts";
import { findLastRotation } from "../delivery/signing-secrets-sql.ts";
import { webhookBody } from "../delivery/webhook.ts";
import type { Operation } from "../http/operation.ts";
import { bytesResponse, jsonResponse } from "../http/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../http/pagination.ts";
import {
  ATTEMPTS_SHOWN_MAX,
  findDelivery,
  findLoggedDelivery,
  type LoggedDelivery,
} from "./deliveries-sql.ts";
import { filterOf, queryFilters } from "./delivery-filter-api.ts";
import { createListDeliveries } from "./delivery-pages-sql.ts";
import { Delivery, DeliveryWithAttempts, deliveryBody, deliveryWithAttemptsBody } from "./delivery-schema.ts";
import { concernsSecret } from "./explanation.ts";
import { replayDelivery } from "./replays-sql.ts";

const tag = "Deliveries";
const params = z.strictObject({ delivery_id: id });
const WebhookBody = z.object({ id, event, created_at: time, data: Analysis });
const listQuery = z.strictObject({ ...optional(queryFilters), ...pageQuery });

export type DeliveryDependencies = {
  readonly pool: Pool;
  /** For reading the delivery log; see readingLog. */
  readonly logPool: Pool;
  /** For lists of the log, from a standby where there is one. */
  readonly readLog: ReadLog;
  /** How long an analysis stays readable after it was published. */
  readonly analysisRetentionMs: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};

/** The delivery log, and replaying a single delivery. */
export function deliveryOperations({
  pool,
  logPool,
  readLog,
  analysisRetentionMs,
  now,
}: DeliveryDependencies): readonly Operation[] {
  const cursors = createCursors(id);
  const listDeliveries = createListDeliveries(readLog, () => performance.now());
  return [
    read({
      key: "webhooks.deliveries.list",
      tag,
      summary: "List deliveries",
      description:
        "The delivery log, newest first. A delivery must match all given filters. `status` and `reason` can be " +
        "repeated: what needs attention is `status=failed&status=abandoned`. `total` is exact up to 10,000; " +
        "with `Total-Capped: true` it is a lower bound: no more than 10,000 were counted, or scanned for " +
        "matches. Where matches are rare, a page may hold fewer items than `limit`, or none, and still have a " +
        "`next_cursor`; for a key that acts for a user, also where the user may read few of the deliveries.",
      method: "GET",
      path: "/v1/webhooks/deliveries",
      scope: "webhooks:read",
      query: listQuery,
      response: jsonResponse(200, pageOf(Delivery), totalCappedHeader),
      handle: async ({ accountId, reader, query }) => {
        const { cursor, limit, ...asked } = query;
        const asWritten = { accountId, ...asked, ...single(asked.status) };
        const belowId = cursors.read(cursor, asWritten);
        const page = await listDeliveries(await reader(), filterOf(asked), belowId, limit);
        const known = page.items.some(concernsSecret)
          ? { secretRotatedAtMs: await findLastRotation(logPool, accountId) }
          : {};
        const itemOf = (delivery: LoggedDelivery) => deliveryBody(delivery, analysisRetentionMs, known);
        return { body: cursors.pageBody(page, asWritten, itemOf), headers: totalHeaders(page) };
      },
    }),
    read({
      key: "webhooks.deliveries.get",
      tag,
      summary: "Get a delivery",
      description:
        `A delivery with its newest ${ATTEMPTS_SHOWN_MAX} attempts: when, where to, the response, and an ` +
        "explanation.",
      method: "GET",
      path: "/v1/webhooks/deliveries/{delivery_id}",
      scope: "webhooks:read",
      params,
      response: jsonResponse(200, DeliveryWithAttempts),
      errors: ["not_found"],
      handle: async ({ reader, params, problem }) => {
        const found = await findDelivery(logPool, await reader(), params.delivery_id);
        if (found === null) throw problem("not_found");
        return { body: deliveryWithAttemptsBody(found, analysisRetentionMs) };
      },
    }),
    read({
      key: "webhooks.deliveries.body",
      tag,
      summary: "Get a delivery's body",
      description:
        "The exact bytes that every attempt of the delivery sends, and that its signatures are over. Readable for as " +
        "long as the analysis, then 410.",
      method: "GET",
      path: "/v1/webhooks/deliveries/{delivery_id}/body",
      scope: "analyses:read",
      params,
      response: bytesResponse({ mediaType: "application/json", documentedAs: WebhookBody }),
      errors: ["not_found", "analysis_expired"],
      handle: async ({ reader, params, problem }) => {
        const { delivery_id } = params;
        const found = await findBody(pool, await reader(), delivery_id);
        if (found === null) throw problem("not_found");
        const { event, text } = found;
        const publishedAtMs = createdAtMs(delivery_id);
        if (text === null || now() >= publishedAtMs + analysisRetentionMs) throw problem("analysis_expired");
        const envelope = {
          id: delivery_id.toLowerCase(),
          event,
          createdAtMs: publishedAtMs,
          analysisText: text,
        };
        return { bytes: webhookBody(envelope) };
      },
    }),
    write({
      key: "webhooks.deliveries.replay",
      tag,
      summary: "Replay a delivery",
      description:
        "Starts the next run of a `failed` or `abandoned` delivery: same id, same body, new signature, to the " +
        "target as configured now. If an attempt is in flight, the new run starts after it, and is dropped if " +
        "that attempt succeeds.",
      method: "POST",
      path: "/v1/webhooks/deliveries/{delivery_id}/replay",
      scope: "webhooks:replay",
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      params,
      audit: ({ params }) => ({ delivery_id: params.delivery_id }),
      judgeRepeat: async ({ reader, params }, tx) =>
        (await findLoggedDelivery(tx, await reader(tx), params.delivery_id)) === null ? "gone" : "again",
      response: jsonResponse(202, Delivery),
      errors: ["not_found", "delivery_not_replayable", "analysis_expired"],
      handle: async ({ reader, params, problem }, tx) => {
        const who = await reader(tx);
        const outcome = await replayDelivery(tx, who, params.delivery_id, analysisRetentionMs);
        const refusal = refusalOf(outcome);
        if (refusal !== null) throw problem(refusal);
        const delivery = await findLoggedDelivery(tx, who, params.delivery_id);
        if (delivery === null)
          throw new Error(`delivery ${params.delivery_id} was replayed and is not there`);
        return { body: deliveryBody(delivery, analysisRetentionMs) };
      },
    }),
  ];
}

/** As the version before wrote a status into its cursors, which are still around during an upgrade. */
function single(status: readonly string[] | undefined): { readonly status?: string } {
  return status?.length === 1 ? { status: status[0]! } : {};
}

function refusalOf(
  outcome: ReplayOutcome,
): Extract<DomainCode, "delivery_not_replayable" | "analysis_expired"> | "not_found" | null {
  switch (outcome) {
    case "replayed":
      return null;
    case "not_found":
      return "not_found";
    case "not_replayable":
      return "delivery_not_replayable";
    case "expired":
      return "analysis_expired";
    default:
      throw new Error(`Unknown outcome ${outcome satisfies never}`);
  }
}

/** Each field made optional, for a query. */
function optional<Fields extends Record<string, z.ZodType>>(
  fields: Fields,
): { [Name in keyof Fields]: z.ZodOptional<Fields[Name]> } {
  return z.object(fields).partial().shape as { [Name in keyof Fields]: z.ZodOptional<Fields[Name]> };
}
