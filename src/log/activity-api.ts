import { z } from "zod";
import { moment } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { DAY_MS } from "../base/model/time.ts";
import { jsonResponse, type Operation } from "../http/operation.ts";
import { invalidRequest } from "../http/problems.ts";
import { Activity, EndpointHealth, ITEMS_MAX } from "./activity-schema.ts";
import { ACTIVITY_KEPT_MS, FINE_ACTIVITY_MS, readActivity, readEndpointHealth } from "./activity-sql.ts";
import type { LogDependencies } from "./deliveries-api.ts";

const BUCKETS = { "5m": 5 * 60_000, "1h": 3_600_000, "1d": DAY_MS } as const;
type Bucket = keyof typeof BUCKETS;

const query = z.strictObject({
  from: moment.optional().describe("Default: a day before `to`."),
  to: moment.optional().describe("Default: now."),
  bucket: z.enum(Object.keys(BUCKETS) as [Bucket, ...Bucket[]]).default("1h"),
});

/** Attempts, added up. */
export function activityOperations({ readLog, now }: LogDependencies): readonly Operation[] {
  return [
    operationsOf("Deliveries").read({
      key: "webhooks.activity",
      summary: "Count attempts over time",
      description:
        "How many attempts succeeded and failed, by when they ended, and what failed where. Buckets begin at full " +
        "five minutes, hours or days of UTC; those that contain `from` and `to` are included whole. At most 288: " +
        "if a range touches 289, the first is left out. Five-minute buckets are kept for 48 hours, longer ones for " +
        "30 days. 403 for keys that act for a user: it covers the whole account.",
      path: "/v1/webhooks/activity",
      scope: "webhooks:read",
      isOfAccount: true,
      query,
      response: jsonResponse(200, Activity),
      handle: async ({ accountId, query }) => {
        const range = rangeOf(query, now());
        return { body: await readLog((database) => readActivity(database, accountId, range)) };
      },
    }),
    operationsOf("Endpoint").read({
      key: "webhooks.endpoint.health",
      summary: "Get the endpoint's health",
      description:
        "Whether the endpoint's host takes webhooks, since when it does not, and how fast it responds; 404 while no " +
        "endpoint is set. 403 for keys that act for a user: it covers the whole account.",
      path: "/v1/webhooks/endpoint/health",
      scope: "webhooks:read",
      isOfAccount: true,
      response: jsonResponse(200, EndpointHealth),
      errors: ["not_found"],
      handle: async ({ accountId, problem }) => {
        const health = await readLog((database) => readEndpointHealth(database, accountId));
        if (health === null) throw problem("not_found");
        return { body: health };
      },
    }),
  ];
}

/** In whole buckets. Throws `invalid_request` for a range that cannot be answered. */
function rangeOf({ from, to, bucket }: z.output<typeof query>, nowMs: number) {
  const bucketMs = BUCKETS[bucket];
  const toMs = to === undefined ? nowMs : Date.parse(to);
  const fromMs = from === undefined ? toMs - DAY_MS : Date.parse(from);
  const name = from === undefined ? "query.to" : "query.from";
  if (fromMs >= toMs) throw invalidRequest("query.from", "Must be before `to`, which is now if not given.");
  if (fromMs > nowMs) throw invalidRequest(name, "Is in the future.");
  if (fromMs < nowMs - ACTIVITY_KEPT_MS - bucketMs) {
    throw invalidRequest(name, "Activity is kept for 30 days: ask for a later time.");
  }
  if (bucket === "5m" && fromMs < nowMs - FINE_ACTIVITY_MS) {
    throw invalidRequest(
      name,
      "Five-minute buckets are kept for 48 hours: ask for a later time, or bucket=1h.",
    );
  }
  const startMs = Math.floor(fromMs / bucketMs) * bucketMs;
  const endMs = Math.ceil(toMs / bucketMs) * bucketMs;
  const items = (endMs - startMs) / bucketMs;
  // As a day from nearly any moment does.
  if (items > ITEMS_MAX + 1) {
    const message = `That range has ${items} buckets of ${bucket}, and at most ${ITEMS_MAX} are returned.`;
    throw invalidRequest("query.bucket", `${message} Ask for larger buckets, or a shorter range.`);
  }
  const beginMs = items > ITEMS_MAX ? startMs + bucketMs : startMs;
  return { from: new Date(beginMs), to: new Date(endMs), bucketMs };
}
