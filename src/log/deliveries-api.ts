import type { Pool } from "pg";
import { z } from "zod";
import { id } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import type { DomainCode } from "../api/problems.ts";
import type { ReadLog } from "../base/database/log-reader.ts";
import { createdAtMs } from "../base/database/partitions.ts";
import { answeredBy } from "../base/model/answered-by.ts";
import { endsBeforeSending } from "../base/model/error-codes.ts";
import type { FindWorkflowDeliveries } from "../base/model/origins.ts";
import { type ReplayOutcome, RUNS_PER_HOUR_MAX } from "../base/model/statuses.ts";
import { findBody } from "../delivery/analyses-sql.ts";
import { findLastRotation } from "../delivery/signing-secrets-sql.ts";
import { challengeBody, webhookBody, webhookHeaders } from "../delivery/webhook.ts";
import { sentEvents } from "../delivery/webhook-events.ts";
import { bytesResponse, jsonResponse, type Operation } from "../http/operation.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../http/pagination.ts";
import {
  type FoundDelivery,
  findDelivery,
  findLoggedDelivery,
  type LoggedAttempt,
  type LoggedDelivery,
  type SecretLife,
} from "./deliveries-sql.ts";
import { searchedFilters } from "./delivery-filter-api.ts";
import { createListDeliveries } from "./delivery-pages-sql.ts";
import { ATTEMPTS_SHOWN_MAX, Delivery, DeliveryWithAttempts } from "./delivery-schema.ts";
import {
  answerOf,
  concernsSecret,
  type ExplanationContext,
  explainAttempt,
  explainDelivery,
  explainInParts,
} from "./explanation.ts";
import { findReplaysOf, type ReplayLimits, replayDelivery, toldOf } from "./replays-sql.ts";

const { read, write } = operationsOf("Deliveries");
const params = z.strictObject({ delivery_id: id });
const WebhookBody = z.union(sentEvents.map(({ body }) => body));
const listQuery = z.strictObject({ ...z.object(searchedFilters).partial().shape, ...pageQuery });
/** Where there are none, nobody asks for one. */
const listQueryWithoutWorkflows = listQuery.omit({ workflow_id: true }) as unknown as typeof listQuery;

/** What the log's operations depend on. */
export type LogDependencies = {
  readonly pool: Pool;
  /** For reading the delivery log; see readingLog. */
  readonly logPool: Pool;
  /** For lists of the log, from a standby where there is one. */
  readonly readLog: ReadLog;
  /** How long an analysis stays readable after it was published. */
  readonly analysisRetentionMs: number;
  /** As dispatchers name the installation in their requests. */
  readonly sentFromUrl: string | null;
  /** Whether they send receivers a challenge before the first webhook. */
  readonly challenges: boolean;
  /** Absent: nothing here has workflows. */
  readonly findWorkflowDeliveries?: FindWorkflowDeliveries;
  /** How many bulk replays an account may have running. */
  readonly replayLimits: ReplayLimits;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};

type Sending = Pick<LogDependencies, "sentFromUrl" | "challenges">;

/** The delivery log, and replaying a single delivery. */
export function deliveryOperations({
  pool,
  logPool,
  readLog,
  analysisRetentionMs,
  sentFromUrl,
  challenges,
  findWorkflowDeliveries,
  now,
}: LogDependencies): readonly Operation[] {
  const cursors = createCursors(id);
  const listDeliveries = createListDeliveries(readLog, () => performance.now(), findWorkflowDeliveries);
  return [
    read({
      key: "webhooks.deliveries.list",
      summary: "List deliveries",
      description:
        "The delivery log, newest first. A delivery must match all given filters. `status` and `reason` can be " +
        "repeated: what needs attention is `status=failed&status=abandoned`. `total` is exact up to 10,000; " +
        "with `Total-Capped: true` it is a lower bound: no more than 10,000 were counted, or scanned for " +
        "matches. Where matches are rare, a page may hold fewer items than `limit`, or none, and still have a " +
        "`next_cursor`; for a key that acts for a user, also where the user may read few of the deliveries.",
      path: "/v1/webhooks/deliveries",
      scope: "webhooks:read",
      query: findWorkflowDeliveries === undefined ? listQueryWithoutWorkflows : listQuery,
      response: jsonResponse(200, pageOf(Delivery), totalCappedHeader),
      handle: async ({ accountId, reader, query }) => {
        const { cursor, limit, ...asked } = query;
        const asWritten = { accountId, ...asked, ...single(asked.status) };
        const belowId = cursors.read(cursor, asWritten);
        const page = await listDeliveries(await reader(), asked, belowId, limit);
        const known = page.items.some(concernsSecret)
          ? { secretRotatedAtMs: await findLastRotation(logPool, accountId) }
          : {};
        const itemOf = (delivery: LoggedDelivery) => deliveryBody(delivery, analysisRetentionMs, known);
        return { body: cursors.pageBody(page, asWritten, itemOf), headers: totalHeaders(page) };
      },
    }),
    read({
      key: "webhooks.deliveries.get",
      summary: "Get a delivery",
      description:
        `A delivery with its newest ${ATTEMPTS_SHOWN_MAX} attempts: when, where to, the response, and an ` +
        "explanation.",
      path: "/v1/webhooks/deliveries/{delivery_id}",
      scope: "webhooks:read",
      params,
      response: jsonResponse(200, DeliveryWithAttempts),
      errors: ["not_found"],
      handle: async ({ reader, accountId, caller, params, problem }) => {
        const found = await findDelivery(logPool, await reader(), params.delivery_id);
        if (found === null) throw problem("not_found");
        const { id, run } = found.delivery;
        const replays = run === 1 ? [] : await findReplaysOf(logPool, accountId, id);
        const told = replays.map(({ ofUser, ...replay }) => ({
          ...replay,
          ...toldOf({ ...replay, ofUser }, caller),
        }));
        const body = deliveryWithAttemptsBody(found, analysisRetentionMs, { sentFromUrl, challenges });
        return { body: { ...body, replays: told } };
      },
    }),
    read({
      key: "webhooks.deliveries.body",
      summary: "Get a delivery's body",
      description:
        "The exact bytes that every attempt of the delivery sends, and that its signatures cover; a challenge " +
        "before them (`target_not_confirmed`) has others. Readable for as long as the analysis, or until that is " +
        "erased, then 410.",
      path: "/v1/webhooks/deliveries/{delivery_id}/body",
      scope: "analyses:read",
      params,
      response: bytesResponse({ mediaType: "application/json", documentedAs: WebhookBody }),
      errors: ["not_found", "analysis_expired", "analysis_erased"],
      handle: async ({ reader, params, problem }) => {
        const { delivery_id } = params;
        const found = await findBody(pool, await reader(), delivery_id);
        if (found === null) throw problem("not_found");
        const { event, text, isErased } = found;
        if (isErased) throw problem("analysis_erased");
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
      summary: "Replay a delivery",
      description:
        "Starts the next run of a `failed` or `abandoned` delivery: same id, same body, new signature, to the " +
        "target as configured now. If an attempt is in flight, the new run starts after it, and is dropped if " +
        `that attempt succeeds. A delivery has at most ${RUNS_PER_HOUR_MAX} runs within an hour, including ` +
        "those of bulk replays.",
      method: "POST",
      path: "/v1/webhooks/deliveries/{delivery_id}/replay",
      scope: "webhooks:replay",
      mode: "async",
      params,
      audit: ({ params }, { body: { run } }) => ({ delivery_id: params.delivery_id, run }),
      judgeRepeat: async ({ reader, params }, tx) =>
        (await findLoggedDelivery(tx, await reader(tx), params.delivery_id)) === null ? "gone" : "again",
      response: jsonResponse(202, Delivery),
      errors: [
        "not_found",
        "delivery_not_replayable",
        "replayed_too_often",
        "analysis_expired",
        "analysis_erased",
      ],
      handle: async ({ reader, params, problem }, tx) => {
        const who = await reader(tx);
        const outcome = await replayDelivery(tx, who, params.delivery_id, analysisRetentionMs);
        const refusal = REPLAY_REFUSALS[outcome];
        if (refusal !== null) throw problem(refusal);
        const delivery = (await findLoggedDelivery(tx, who, params.delivery_id))!;
        return { body: deliveryBody(delivery, analysisRetentionMs) };
      },
    }),
  ];
}

/** As the version before wrote a status into its cursors, which are still around during an upgrade. */
function single(status: readonly string[] | undefined): { readonly status?: string } {
  return status?.length === 1 ? { status: status[0]! } : {};
}

/** What is answered where no run was started; null: one was. */
const REPLAY_REFUSALS = {
  replayed: null,
  not_found: "not_found",
  not_replayable: "delivery_not_replayable",
  expired: "analysis_expired",
  erased: "analysis_erased",
  too_often: "replayed_too_often",
} as const satisfies Record<ReplayOutcome, DomainCode | "not_found" | null>;

/** Each is written out: spread, a page's rows take three times as long. */
function deliveryBody(
  delivery: LoggedDelivery,
  analysisRetentionMs: number,
  known: ExplanationContext = {},
): Delivery {
  return {
    id: delivery.id,
    event: delivery.event,
    analysis_id: delivery.analysis_id,
    created_at: delivery.created_at,
    status: delivery.status,
    reason: delivery.reason,
    run: delivery.run,
    replay_id: delivery.replay_id,
    attempts_count: delivery.attempts_count,
    next_attempt_at: delivery.next_attempt_at,
    in_flight: delivery.in_flight,
    held: delivery.held,
    target_url: delivery.target_url,
    target_source: delivery.target_source,
    last_error_code: delivery.last_error_code,
    last_status_code: delivery.last_status_code,
    explanation: explainDelivery(delivery, analysisRetentionMs, known),
  };
}

/** With its newest attempts, and all that is known of them. */
function deliveryWithAttemptsBody(
  found: FoundDelivery,
  analysisRetentionMs: number,
  sending: Sending,
): Omit<DeliveryWithAttempts, "replays"> {
  const { delivery, attempts, secrets } = found;
  const [current] = secrets;
  const secretRotatedAtMs = current === undefined || current.isFirst ? null : current.createdAtMs;
  const known = { secretRotatedAtMs, lastAttempt: attempts.at(-1) };
  const ownUrl = delivery.target_source === "request" ? delivery.target_url : null;
  return {
    ...deliveryBody(delivery, analysisRetentionMs, known),
    ...explainInParts(delivery, analysisRetentionMs, known),
    analysis_erased: found.body?.isErased ?? false,
    attempts: attempts.map((attempt) => ({
      ...attempt,
      target_url: attempt.target_url ?? (attempt.outcome === "interrupted" ? ownUrl : null),
      error_message: explainAttempt(attempt, known),
      answered_by: attempt.error_code === null ? null : answeredBy(answerOf(attempt)),
      request_headers: sentHeaders(found, attempt, sending),
    })),
  };
}

/**
 * The headers of an attempt's request, as they were sent, but for the signatures: `v1` is in their place, because a log
 * that shows them would let its readers post the webhook again. Whoever has the secret and the body can compute them.
 *
 * Nothing of it is stored: all but the signature's time is the same for every attempt, and that time is its start. What
 * an endpoint asks for beside that may be something else by now: it is not shown.
 * Null: nothing was sent, or when it was signed is not known (the dispatcher died).
 */
function sentHeaders(
  { delivery, body, secrets }: FoundDelivery,
  { started_at, target_url, outcome, error_code, status_code }: LoggedAttempt,
  { sentFromUrl: publicUrl, challenges }: Sending,
): Record<string, string> | null {
  if (target_url === null || outcome === "interrupted") return null;
  if (error_code !== null && endsBeforeSending(error_code)) return null;
  const startedAtMs = Date.parse(started_at);
  const signatures = Array.from({ length: signaturesAt(secrets, startedAtMs) }, () => "v1=…");
  const signature = [`t=${Math.floor(startedAtMs / 1_000)}`, ...signatures].join(",");
  const { id, event } = delivery;
  const frame = webhookBody({ id, event, createdAtMs: createdAtMs(id), analysisText: "" });
  // Of two whose lengths differ, which one a receiver was sent that gave no answer is not kept.
  const length =
    error_code === "target_not_confirmed"
      ? challengeBody(id).length
      : body === null || body.isErased || (challenges && status_code === null)
        ? null
        : frame.length + body.analysisBytes;
  return {
    host: new URL(target_url).host,
    connection: "keep-alive",
    ...webhookHeaders({ signature, traceparent: body?.traceparent ?? null, publicUrl }),
    ...(length === null ? {} : { "content-length": String(length) }),
  };
}

/** Two while a rotation's overlap lasts. */
function signaturesAt(secrets: readonly SecretLife[], atMs: number): number {
  const valid = secrets.filter(
    ({ createdAtMs, expiresAtMs }) => createdAtMs <= atMs && (expiresAtMs === null || expiresAtMs > atMs),
  );
  return Math.min(Math.max(valid.length, 1), 2);
}
