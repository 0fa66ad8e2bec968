import type { Config } from "../config/config.ts";
import type { Egress } from "../egress/egress.ts";
import { createPoster, type Poster, type PostResult } from "../egress/post/post.ts";
import { isOurFailure } from "../model/error-codes.ts";
import {
  type AfterAttempt,
  decideAfterAttempt,
  decideBeforeAttempt,
  dueAfterRelease,
} from "../schedule/life.ts";
import { parseRetryAfterMs } from "../schedule/retry-after.ts";
import type { RetryPolicy } from "../schedule/retry-schedule.ts";
import type { LeasedDelivery } from "../store/claim.ts";
import type { AttemptRow, Recording } from "../store/record.ts";
import { webhookBody } from "../webhook/envelope.ts";
import { webhookHeaders, webhookSignature } from "../webhook/headers.ts";
import { DatabaseClock } from "./database-clock.ts";
import { DeliveryTargets } from "./delivery-target.ts";
import { SigningKeys } from "./signing-keys.ts";

export type Delivering = {
  readonly targets: DeliveryTargets;
  readonly keys: SigningKeys;
  readonly poster: Poster;
  readonly clock: DatabaseClock;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  readonly policy: RetryPolicy;
  readonly deadlineMs: number;
  readonly analysisRetentionMs: number;
};

export type DeliveringOptions = {
  readonly config: Config;
  readonly egress: Egress;
  /** 32 bytes: what signing secrets are sealed with. */
  readonly secretsKey: Uint8Array;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

/** All that one delivery's attempt needs, made from the configuration. */
export function createDelivering(options: DeliveringOptions): Delivering {
  const { config, egress } = options;
  const now = () => performance.now();
  return {
    targets: new DeliveryTargets(egress.unsafeAllowedTargets),
    keys: new SigningKeys(options.secretsKey),
    poster: createPoster({ egress, now }),
    clock: new DatabaseClock(now),
    random: options.random,
    policy: { windowMs: config.retryWindowSeconds * 1000, attempts: config.retryAttempts },
    deadlineMs: config.attemptDeadlineMs,
    analysisRetentionMs: config.analysisRetentionSeconds * 1000,
  };
}

/** What became of a leased delivery: what to record, and the result of its POST (null: there was none). */
export type Delivered = { readonly recording: Recording; readonly result: PostResult | null };

/**
 * One attempt, from the lease to what has to be recorded. `mayStart` says whether the claim is young enough for the
 * POST to end before the lease does. A throw is an internal error, never the receiver's failure.
 */
export async function deliver(
  delivery: LeasedDelivery,
  on: Delivering,
  mayStart: () => boolean,
): Promise<Delivered> {
  const target = on.targets.find(delivery);
  const verdict = decideBeforeAttempt(
    {
      attemptsInRun: (delivery.number ?? on.policy.attempts + 1) - 1,
      runStartedAtMs: delivery.runStartedAtMs,
      wasInterruptedInQuarantine: delivery.wasInterruptedInQuarantine,
      expiresAtMs: delivery.analysisText === null ? 0 : delivery.createdAtMs + on.analysisRetentionMs,
      target: target === null ? null : target.verdict === "allow" ? "allowed" : "refused",
    },
    on.policy,
    on.clock.nowMs(),
  );
  if (verdict.kind === "end") {
    const errorCode =
      target?.verdict === "refuse" && verdict.reason === "target_refused" ? target.code : null;
    return withoutPost(delivery, { status: "abandoned", reason: verdict.reason, errorCode });
  }
  if (target?.verdict !== "allow" || delivery.number === null || delivery.analysisText === null) {
    throw new Error(`delivery ${delivery.deliveryId} was to be posted without a target, a number or a body`);
  }

  const body = webhookBody({ ...delivery, id: delivery.deliveryId, analysisText: delivery.analysisText });
  // Signed anew for every attempt, at the database's time. The signature's time is read off the attempt's start (see
  // src/deliveries/sent-request.ts), so it is one time, in whole milliseconds.
  const startedAtMs = Math.floor(on.clock.nowMs());
  const signature = webhookSignature(body, on.keys.of(delivery), startedAtMs);
  const headers = webhookHeaders({ signature, traceparent: delivery.traceparent });
  if (!mayStart()) return withoutPost(delivery, released(on, true));

  const result = await on.poster.post({ url: target.url, headers, body, deadlineMs: on.deadlineMs });
  if (!usesUpAnAttempt(result)) return { ...withoutPost(delivery, released(on, false)), result };

  const endedAtMs = startedAtMs + result.durationMs;
  const attempt = attemptRow(delivery.number, startedAtMs, endedAtMs, target.href, result);
  const next: AfterAttempt = decideAfterAttempt(
    {
      hasSucceeded: result.outcome === "succeeded",
      number: delivery.number,
      runStartedAtMs: delivery.runStartedAtMs,
      endedAtMs,
      retryAfterMs: parseRetryAfterMs(result.retryAfter, endedAtMs),
    },
    on.policy,
    on.random(),
  );
  return { recording: recording(delivery, attempt, toNext(next, result)), result };
}

/**
 * Gives the lease back after an internal error (a secret that does not open, a bug): it uses up no attempt, and the
 * window bounds how often this is tried.
 */
export function releaseAfterFault(delivery: LeasedDelivery, on: Delivering): Delivered {
  return withoutPost(delivery, released(on, false));
}

/**
 * A receiver's failure always uses up an attempt, whether or not a byte was written. Only our own failure before the
 * first byte does not: a shutdown, an egress proxy that is down, no file descriptor left.
 */
function usesUpAnAttempt(result: PostResult): boolean {
  return result.mayHaveWritten || result.errorCode === null || !isOurFailure(result.errorCode);
}

function released(on: Delivering, isOurOwnStop: boolean): Recording["next"] {
  const dueAtMs = dueAfterRelease(on.policy, on.clock.nowMs(), isOurOwnStop, on.random());
  return { status: "released", dueAtMs };
}

function toNext(next: AfterAttempt, result: PostResult): Recording["next"] {
  return next.status === "abandoned" ? { ...next, errorCode: result.errorCode } : next;
}

function withoutPost(delivery: LeasedDelivery, next: Recording["next"]): Delivered {
  return { recording: recording(delivery, null, next), result: null };
}

function recording(delivery: LeasedDelivery, attempt: AttemptRow | null, next: Recording["next"]): Recording {
  const { deliveryId, leaseToken, run } = delivery;
  return { deliveryId, leaseToken, run, attempt, next };
}

function attemptRow(
  number: number,
  startedAtMs: number,
  endedAtMs: number,
  targetUrl: string,
  result: PostResult,
): AttemptRow {
  return {
    number,
    startedAtMs,
    endedAtMs,
    ...result.timings,
    statusCode: result.statusCode,
    outcome: result.outcome,
    errorCode: result.errorCode,
    targetUrl,
    remoteAddress: result.remoteAddress,
    responseHeaders: result.responseHeaders === null ? null : JSON.stringify(result.responseHeaders),
    responseExcerpt: result.responseExcerpt,
  };
}
