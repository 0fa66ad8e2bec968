import { z } from "zod";
import { analysisId, event, id, time, timeTextOrNull } from "../api/fields.ts";
import { createdAtMs } from "../base/database/partitions.ts";
import { endsBeforeSending } from "../base/model/error-codes.ts";
import { DELIVERY_STATUSES, END_REASONS, meaningOfStatus, OUTCOMES } from "../base/model/statuses.ts";
import { isoTime } from "../base/model/time.ts";
import { webhookBody, webhookHeaders } from "../delivery/webhook.ts";
import {
  ATTEMPTS_SHOWN_MAX,
  type FoundDelivery,
  type LoggedAttempt,
  type LoggedDelivery,
  type SecretLife,
} from "./deliveries-sql.ts";
import { errorCode } from "./error-codes-api.ts";
import { explainAttempt, explainDelivery, type KnownBeside } from "./explanation.ts";

/**
 * The headers of an attempt's request, as they were sent, but for the signatures: `v1` is in their place, because a log
 * that shows them would let its readers post the webhook again. Whoever has the secret and the body can compute them.
 *
 * Nothing of it is stored: all but the signature's time is the same for every attempt, and that time is its start.
 * Null: nothing was sent, or when it was signed is not known (the dispatcher died).
 */
function sentHeaders(
  { delivery, body, secrets }: Pick<FoundDelivery, "delivery" | "body" | "secrets">,
  { startedAtMs, targetUrl, outcome, errorCode }: LoggedAttempt,
): Record<string, string> | null {
  if (targetUrl === null || outcome === "interrupted") return null;
  if (errorCode !== null && endsBeforeSending(errorCode)) return null;
  const signatures = Array.from({ length: signaturesAt(secrets, startedAtMs) }, () => "v1=…");
  const signature = [`t=${Math.floor(startedAtMs / 1_000)}`, ...signatures].join(",");
  const { id, event } = delivery;
  const frame = webhookBody({ id, event, createdAtMs: createdAtMs(id), analysisText: "" });
  return {
    host: new URL(targetUrl).host,
    connection: "keep-alive",
    ...webhookHeaders({ signature, traceparent: body?.traceparent ?? null }),
    ...(body === null ? {} : { "content-length": String(frame.length + body.analysisBytes) }),
  };
}

/** Two while a rotation's overlap lasts. */
function signaturesAt(secrets: readonly SecretLife[], atMs: number): number {
  const valid = secrets.filter(
    ({ createdAtMs, expiresAtMs }) => createdAtMs <= atMs && (expiresAtMs === null || expiresAtMs > atMs),
  );
  return Math.min(Math.max(valid.length, 1), 2);
}

export const Delivery = z
  .object({
    id: id.describe("Also the `id` of the webhook's body, the same for every attempt and replay."),
    event,
    analysis_id: analysisId,
    created_at: time,
    status: z
      .enum(DELIVERY_STATUSES)
      .describe(
        `${DELIVERY_STATUSES.map((status) => `\`${status}\`: ${meaningOfStatus(status)}`).join("; ")}.`,
      ),
    reason: z.enum(END_REASONS).nullable().describe("Why it was abandoned; null for any other status."),
    run: z.int().describe("1 at first; every replay starts the next run."),
    replay_id: id.nullable().describe("The bulk replay that started the current run; null if none did."),
    attempts_count: z.int().describe("Attempts that have ended, in all runs."),
    next_attempt_at: time
      .nullable()
      .describe("Null while an attempt is in flight or the delivery is held, and when no more follow."),
    in_flight: z.boolean().describe("Whether an attempt is in flight."),
    held: z
      .boolean()
      .describe(
        "Whether it waits because the endpoint is paused, or was until just now; the run's clock stands still.",
      ),
    target_url: z
      .string()
      .nullable()
      .describe("The webhook_url of the request, else the endpoint that the last attempt went to."),
    target_source: z.enum(["request", "endpoint"]).nullable(),
    last_error_code: errorCode.nullable(),
    last_status_code: z.int().nullable(),
    explanation: z.string().describe("What happened, what happens next and when, and what you can do."),
  })
  .meta({ id: "Delivery", description: "One event for one account, as in the delivery log." });

const milliseconds = z.number().nullable();

const Attempt = z
  .object({
    run: z.int(),
    number: z.int().describe("Its position in the run, from 1."),
    started_at: time,
    ended_at: time,
    duration_ms: z.int().nullable().describe("Null where it is not known: the attempt was interrupted."),
    timings: z
      .object({ dns: milliseconds, connect: milliseconds, tls: milliseconds, first_byte: milliseconds })
      .describe(
        "Milliseconds; null for steps that did not happen, such as connecting when a connection was reused.",
      ),
    target_url: z.string().nullable(),
    remote_address: z.string().nullable(),
    outcome: z.enum(OUTCOMES),
    error_code: errorCode.nullable().describe("Null where the outcome is `succeeded`."),
    error_message: z
      .string()
      .nullable()
      .describe("What the error means and what to do about it. Null if there is none."),
    status_code: z.int().nullable(),
    request_headers: z
      .record(z.string(), z.string())
      .nullable()
      .describe(
        "The headers as they were sent, with `v1=…` for each signature: it is the HMAC of the text `t.body`, and " +
          "is not kept. Null where nothing was sent, or nobody knows when (`interrupted`). Once the analysis has " +
          "expired, without `content-length` and `traceparent`.",
      ),
    response_headers: z.record(z.string(), z.string()).nullable(),
    response_excerpt: z.string().nullable().describe("The start of the response body, at most 1 KiB."),
  })
  .meta({ id: "Attempt", description: "One POST to the receiver." });

export const DeliveryWithAttempts = Delivery.extend({
  attempts: z
    .array(Attempt)
    .describe(
      `The newest ${ATTEMPTS_SHOWN_MAX} attempts that have ended, oldest first, with those of the current run always ` +
        "among them. Older ones are left out: there are as many as `attempts_count` is larger.",
    ),
}).meta({ id: "DeliveryWithAttempts", description: "A delivery with its newest attempts." });

export function deliveryBody(
  delivery: LoggedDelivery,
  analysisRetentionMs: number,
  known: KnownBeside = {},
): z.output<typeof Delivery> {
  const { webhookUrl, endpointUrl } = delivery;
  return {
    id: delivery.id,
    event: delivery.event,
    analysis_id: delivery.analysisId,
    created_at: isoTime(createdAtMs(delivery.id)),
    status: delivery.status,
    reason: delivery.reason,
    run: delivery.run,
    replay_id: delivery.replayId,
    attempts_count: delivery.attemptsCount,
    next_attempt_at: timeTextOrNull(delivery.nextAttemptAtMs),
    in_flight: delivery.isInFlight,
    held: delivery.isHeld,
    target_url: webhookUrl ?? endpointUrl,
    target_source: webhookUrl !== null ? "request" : endpointUrl !== null ? "endpoint" : null,
    last_error_code: delivery.lastErrorCode,
    last_status_code: delivery.lastStatusCode,
    explanation: explainDelivery(delivery, analysisRetentionMs, known),
  };
}

/** With its newest attempts, and all that is known of them. */
export function deliveryWithAttemptsBody(
  found: FoundDelivery,
  analysisRetentionMs: number,
): z.output<typeof DeliveryWithAttempts> {
  const { delivery, attempts, secrets } = found;
  const [current] = secrets;
  const secretRotatedAtMs = current === undefined || current.isFirst ? null : current.createdAtMs;
  const known = { secretRotatedAtMs, lastAttempt: attempts.at(-1) };
  return {
    ...deliveryBody(delivery, analysisRetentionMs, known),
    attempts: attempts.map((attempt) => attemptBody(found, attempt, known)),
  };
}

function attemptBody(
  found: FoundDelivery,
  attempt: LoggedAttempt,
  known: KnownBeside,
): z.output<typeof Attempt> {
  const wasInterrupted = attempt.outcome === "interrupted";
  return {
    run: attempt.run,
    number: attempt.number,
    started_at: isoTime(attempt.startedAtMs),
    ended_at: isoTime(attempt.endedAtMs),
    // Its end is when its lease was over.
    duration_ms: wasInterrupted ? null : Math.round(attempt.endedAtMs - attempt.startedAtMs),
    timings: {
      dns: attempt.dnsMs,
      connect: attempt.connectMs,
      tls: attempt.tlsMs,
      first_byte: attempt.firstByteMs,
    },
    target_url: attempt.targetUrl ?? (wasInterrupted ? found.delivery.webhookUrl : null),
    remote_address: attempt.remoteAddress,
    outcome: attempt.outcome,
    error_code: attempt.errorCode,
    error_message: explainAttempt(attempt, known),
    status_code: attempt.statusCode,
    request_headers: sentHeaders(found, attempt),
    response_headers: attempt.responseHeaders,
    response_excerpt: attempt.responseExcerpt,
  };
}
