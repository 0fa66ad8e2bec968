import { z } from "zod";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../api/pagination.ts";
import { jsonAnswer } from "../api/shapes.ts";
import type { ReplayOutcome } from "../model/statuses.ts";
import { findDelivery } from "../store/deliveries.ts";
import { createListDeliveries } from "../store/delivery-pages.ts";
import { replayDelivery } from "../store/replays.ts";
import { filterOf, filters } from "./delivery-filter.ts";
import { attemptBody, Delivery, DeliveryWithAttempts, deliveryBody } from "./delivery-shape.ts";
import type { Dependencies } from "./dependencies.ts";
import { id } from "./fields.ts";
import type { DomainCode } from "./problems.ts";
import { read, type SealpostOperation, write } from "./sealpost-operation.ts";

const tag = "Deliveries";
const params = z.strictObject({ delivery_id: id });
const listQuery = z.strictObject({ ...optional(filters), ...pageQuery });

/** The delivery log, and replaying one delivery of it. */
export function deliveryOperations(dependencies: Dependencies): readonly SealpostOperation[] {
  const { logPool, analysisRetentionMs } = dependencies;
  const cursors = createCursors(id);
  const listDeliveries = createListDeliveries(logPool, () => performance.now());
  return [
    read({
      key: "webhooks.deliveries.list",
      tag,
      summary: "List deliveries",
      description:
        "The delivery log, the newest first. All filters that are given have to fit. `total` is exact up to 10,000; " +
        "with `Total-Capped: true` it is a lower bound: not more than 10,000 were counted, or looked at for what " +
        "fits. Where few deliveries fit, a page may hold fewer items than `limit` and still have a `next_cursor`.",
      method: "GET",
      path: "/v1/webhooks/deliveries",
      scope: "webhooks:read",
      query: listQuery,
      answer: jsonAnswer(200, pageOf(Delivery), totalCappedHeader),
      handle: async ({ accountId, query }) => {
        const { cursor, limit, ...asked } = query;
        const asWritten = { accountId, ...asked };
        const belowId = cursors.read(cursor, asWritten);
        const page = await listDeliveries(accountId, filterOf(asked), belowId, limit);
        const items = page.deliveries.map((delivery) => deliveryBody(delivery, analysisRetentionMs));
        const next_cursor = page.nextBelowId === null ? null : cursors.write(page.nextBelowId, asWritten);
        return { body: { items, next_cursor, total: page.total }, headers: totalHeaders(page.isTotalCapped) };
      },
    }),
    read({
      key: "webhooks.deliveries.get",
      tag,
      summary: "Read a delivery",
      description:
        "One delivery with every attempt: when, where to, what came back, and what it means in plain words.",
      method: "GET",
      path: "/v1/webhooks/deliveries/{delivery_id}",
      scope: "webhooks:read",
      params,
      answer: jsonAnswer(200, DeliveryWithAttempts),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }) => {
        const found = await findDelivery(logPool, accountId, params.delivery_id);
        if (found === null) throw problem("not_found");
        const { delivery, attempts } = found;
        return {
          body: { ...deliveryBody(delivery, analysisRetentionMs), attempts: attempts.map(attemptBody) },
        };
      },
    }),
    write({
      key: "webhooks.deliveries.replay",
      tag,
      summary: "Replay a delivery",
      description:
        "Starts the next run of a `failed` or `abandoned` delivery: the same id and the same body, to the target as " +
        "it is configured now, with a new signature. If an attempt is under way, the new run starts after it, and " +
        "falls away if that attempt succeeds.",
      method: "POST",
      path: "/v1/webhooks/deliveries/{delivery_id}/replay",
      scope: "webhooks:replay",
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      params,
      answer: jsonAnswer(202, Delivery),
      errors: ["not_found", "delivery_not_replayable", "analysis_expired"],
      handle: async ({ accountId, params, problem }, tx) => {
        const outcome = await replayDelivery(tx, accountId, params.delivery_id, analysisRetentionMs);
        const refusal = refusalOf(outcome);
        if (refusal !== null) throw problem(refusal);
        const found = await findDelivery(tx, accountId, params.delivery_id);
        if (found === null) throw new Error(`delivery ${params.delivery_id} was replayed and is not there`);
        return { body: deliveryBody(found.delivery, analysisRetentionMs) };
      },
    }),
  ];
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

/** Each of the fields, for a query that may leave it out. */
function optional<Fields extends Record<string, z.ZodType>>(
  fields: Fields,
): { [Name in keyof Fields]: z.ZodOptional<Fields[Name]> } {
  return z.object(fields).partial().shape as { [Name in keyof Fields]: z.ZodOptional<Fields[Name]> };
}
