import type { Config } from "../base/config/config.ts";
import { unseal } from "../base/database/sealing.ts";
import { BoundedCache } from "../base/model/caches.ts";
import { isOurFailure } from "../base/model/error-codes.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { type Admit, ConnectError, type Egress } from "../egress/egress.ts";
import { createPoster } from "../egress/post/post.ts";
import type { PostResult } from "../egress/post/result.ts";
import { allowsUnsafely, portOf, type UnsafeAllowedTargets } from "../egress/rules/host.ts";
import { judgeTargetUrl, type TargetUrlVerdict } from "../egress/rules/target-url.ts";
import { importSigningKey, type SigningKey } from "../signing/index.ts";
import type { LeasedDelivery } from "./claim-sql.ts";
import type { TurnTaken } from "./lane.ts";
import { RECEIVER_EVERY_MS, type ReceiverTurns } from "./receivers-sql.ts";
import type { AttemptRow, Recording } from "./record-sql.ts";
import { decideAfterAttempt, decideBeforeAttempt, dueAfterRelease, waitedMs } from "./schedule/life.ts";
import { ATTEMPTS_MAX, parseRetryAfterMs, type RetryPolicy } from "./schedule/retry-schedule.ts";
import { webhookBody, webhookHeaders, webhookSignature } from "./webhook.ts";

const CACHED_VERDICTS_MAX = 20_000;

/** The per-request webhook_url, else the account's endpoint as it is now, judged by its text; null: neither. */
function createFindTarget(unsafeAllowedTargets: UnsafeAllowedTargets) {
  const verdicts = new BoundedCache<string, TargetUrlVerdict>(CACHED_VERDICTS_MAX);
  return ({ webhookUrl, endpointUrl }: LeasedDelivery): TargetUrlVerdict | null => {
    const text = webhookUrl ?? endpointUrl;
    if (text === null) return null;
    return verdicts.get(text, () => judgeTargetUrl(text, { unsafeAllowedTargets }));
  };
}

/**
 * The database's time without asking it: its last answer plus the monotonic clock since then. Schedules, signatures and
 * the log follow it, so that a dispatcher whose wall clock is an hour off signs and schedules like all others.
 */
export function createDatabaseClock(monotonicMs: () => number) {
  let offsetMs: number | null = null;
  return {
    /** Corrects the clock by an answer given at some moment between the two monotonic ones. */
    observe(databaseNowMs: number, askedAtMs: number, answeredAtMs: number): void {
      offsetMs = databaseNowMs - (askedAtMs + answeredAtMs) / 2;
    },
    /** Milliseconds since the epoch. Throws before the first observation: there is nothing to guess from. */
    nowMs(): number {
      if (offsetMs === null) throw new Error("the database's clock was read before the database was asked");
      return offsetMs + monotonicMs();
    },
  };
}

const CACHED_KEYS_MAX = 20_000;

/**
 * The keys that sign a delivery: the account's current secret first and, while its overlap lasts, the one before it.
 * Unsealing a secret and importing its key costs more than signing, so imported keys are cached, each under its
 * secret's id and sealed text. The keys' finder throws, as an internal error, when the account has no valid secret or
 * one does not open.
 */
function createFindKeys(secretsKey: SecretsKey) {
  const ready = new BoundedCache<string, SigningKey>(CACHED_KEYS_MAX);
  return ({ accountId, sealedSecrets }: LeasedDelivery): readonly SigningKey[] => {
    if (sealedSecrets.length === 0) throw new Error(`account ${accountId} has no valid signing secret`);
    return sealedSecrets.map((entry) =>
      ready.get(entry, () => {
        const [id = "", sealed = ""] = entry.split(":");
        return importSigningKey(unseal(Buffer.from(sealed, "base64"), secretsKey, { accountId, id }));
      }),
    );
  };
}

/** A lease outlasts the attempt's deadline by this much: room for the claim's answer and for recording. */
const LEASE_MARGIN_MS = 5_000;

export type Delivering = ReturnType<typeof createDelivering>;

export type DeliveringOptions = {
  readonly config: Config;
  readonly egress: Egress;
  /** What signing secrets are sealed with. */
  readonly secretsKey: SecretsKey;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

const VERDICTS = { allow: "allowed", refuse: "refused" } as const;

/** A proof counts for 30 days; a newer one is noted after this. */
const PROOF_AGE_MS = 86_400_000;

/** All that one delivery's attempt needs, made from the configuration. */
export function createDelivering(options: DeliveringOptions & { readonly turns: ReceiverTurns }) {
  const { config, egress } = options;
  const now = () => performance.now();
  return {
    findTarget: createFindTarget(egress.unsafeAllowedTargets),
    findKeys: createFindKeys(options.secretsKey),
    turns: options.turns,
    publicUrl: config.publicUrl,
    /** Whether a receiver there has to prove that it wants webhooks: those of tests on loopback are nobody else's. */
    mustProve: (url: URL) =>
      config.targetConsent !== null ||
      !allowsUnsafely(egress.unsafeAllowedTargets, url.hostname, portOf(url)),
    poster: createPoster({ egress, now }),
    clock: createDatabaseClock(now),
    random: options.random,
    policy: { windowMs: config.retryWindowSeconds * 1000, attempts: ATTEMPTS_MAX } satisfies RetryPolicy,
    deadlineMs: config.attemptDeadlineMs,
    leaseMs: config.attemptDeadlineMs + LEASE_MARGIN_MS,
    analysisRetentionMs: config.analysisRetentionSeconds * 1000,
  };
}

const REFUSED: Recording["next"] = { status: "abandoned", reason: "refused_by_receiver" };

/** What became of a leased delivery: what to record, and the result of its POST (null: there was none). */
export type Delivered = {
  readonly recording: Recording;
  readonly result: PostResult | null;
  /** Null: its receiver is proven, or need not be. */
  readonly turn: TurnTaken | null;
};

/**
 * One attempt, from the lease to what has to be recorded. `mayStart` says whether the claim is young enough for the
 * POST to end before the lease does. A throw is an internal error, never the receiver's failure.
 */
export async function deliver(
  delivery: LeasedDelivery,
  on: Delivering,
  mayStart: () => boolean,
): Promise<Delivered> {
  const target = on.findTarget(delivery);
  const url = urlToProve(target, on);
  const waited = waitedFor(delivery, url, on);
  const runStartedAtMs = delivery.runStartedAtMs + waited;
  const verdict = decideBeforeAttempt(
    {
      attemptsInRun: (delivery.number ?? on.policy.attempts + 1) - 1,
      runStartedAtMs,
      wasInterruptedInQuarantine: delivery.wasInterruptedInQuarantine,
      expiresAtMs: delivery.analysisText === null ? 0 : delivery.createdAtMs + on.analysisRetentionMs,
      target: target === null ? null : delivery.isRefused ? "refused_by_receiver" : VERDICTS[target.verdict],
    },
    on.policy,
    on.clock.nowMs(),
  );
  if (verdict.kind === "end") {
    const errorCode =
      target?.verdict === "refuse" && verdict.reason === "target_refused" ? target.code : null;
    return ended(delivery, { status: "abandoned", reason: verdict.reason, errorCode });
  }
  if (target?.verdict !== "allow" || delivery.number === null || delivery.analysisText === null) {
    throw new Error(`delivery ${delivery.deliveryId} was to be posted without a target, a number or a body`);
  }

  const body = webhookBody({ ...delivery, id: delivery.deliveryId, analysisText: delivery.analysisText });
  // Signed anew for every attempt, at the database's time. The signature's time is read off the attempt's start (see
  // src/log/deliveries-api.ts), so it is one time, in whole milliseconds.
  const startedAtMs = Math.floor(on.clock.nowMs());
  const signature = webhookSignature(body, on.findKeys(delivery), startedAtMs);
  const headers = webhookHeaders({ signature, traceparent: delivery.traceparent, publicUrl: on.publicUrl });
  if (!mayStart()) return ended(delivery, released(on, true), null, null, { waitedMs: waited, turn: null });

  const turn = url !== null && delivery.provenAtMs === null ? createTurn(delivery, url.origin, on) : null;
  const result = await on.poster.post({
    url: target.url,
    headers,
    body,
    payer: delivery.accountId,
    admit: turn?.admit,
    deadlineMs: on.deadlineMs,
  });
  const hasSucceeded = result.outcome === "succeeded";
  const more = { waitedMs: waited, turn: (await turn?.end(hasSucceeded)) ?? null };
  if (result.errorCode === "not_proven")
    return ended(delivery, { status: "waits" }, null, result, { ...more, waitedMs: 0 });
  if (!usesUpAnAttempt(result)) return ended(delivery, released(on, false), null, result, more);
  // If one of these fails, the next POST says the same.
  if (hasSucceeded && url !== null && startedAtMs - (delivery.provenAtMs ?? startedAtMs) > PROOF_AGE_MS)
    await on.turns.end(delivery.accountId, url.origin, true).catch(() => undefined);
  if (result.isRefusal)
    await on.turns
      .refuse(delivery.accountId, delivery.webhookUrl ?? delivery.endpointUrl!)
      .catch(() => undefined);

  const endedAtMs = startedAtMs + result.durationMs;
  const next = result.isRefusal
    ? REFUSED
    : decideAfterAttempt(
        {
          hasSucceeded,
          number: delivery.number,
          runStartedAtMs,
          endedAtMs,
          retryAfterMs: parseRetryAfterMs(result.retryAfter, endedAtMs),
        },
        on.policy,
        on.random(),
      );
  const { outcome, errorCode, statusCode, remoteAddress, responseHeaders, responseExcerpt } = result;
  const attempt: AttemptRow = {
    number: delivery.number,
    startedAtMs,
    endedAtMs,
    ...result.timings,
    statusCode,
    outcome,
    errorCode,
    targetUrl: target.href,
    remoteAddress,
    responseHeaders: responseHeaders === null ? null : JSON.stringify(responseHeaders),
    responseExcerpt,
  };
  return ended(delivery, next, attempt, result, more);
}

/** One attempt at a receiver that has proven nothing. */
function createTurn({ accountId, number, run }: LeasedDelivery, origin: string, on: Delivering) {
  let isTaken = false;
  let waitMs: number | null = null;
  let isProven = false;
  let fault: Error | null = null;
  const admit: Admit = async (address) => {
    fault = new Error("the database did not say in time whose turn it is");
    const asked = { accountId, origin, address, leaseMs: on.leaseMs, isFirst: run === 1 && number === 1 };
    const turn = await on.turns.take({ ...asked, isFurther: isTaken }).catch((error: Error) => {
      fault = error;
      throw error;
    });
    fault = null;
    ({ isProven, waitMs } = turn);
    if (waitMs !== null) throw new ConnectError("not_proven", `${origin} has not proven itself yet.`);
    isTaken ||= !isProven;
  };
  /** Throws a fault of ours before anything was sent. */
  const end = async (hasSucceeded: boolean): Promise<TurnTaken> => {
    if (fault !== null) throw fault;
    // If that fails, the turn ends by itself, and the next POST proves the same.
    if (isTaken) await on.turns.end(accountId, origin, hasSucceeded).catch(() => undefined);
    return { origin, restMs: isProven || hasSucceeded ? null : (waitMs ?? RECEIVER_EVERY_MS) };
  };
  return { admit, end };
}

/** The target's URL, if its receiver has to be proven; null: it need not, or there is no target. */
function urlToProve(target: TargetUrlVerdict | null, on: Delivering): URL | null {
  return target?.verdict === "allow" && on.mustProve(target.url) ? target.url : null;
}

function waitedFor(delivery: LeasedDelivery, url: URL | null, on: Delivering): number {
  if (url === null) return 0;
  return waitedMs(delivery, delivery.provenAtMs === null ? on.clock.nowMs() : (delivery.provenSinceMs ?? 0));
}

/** After an internal error (a secret that does not open, a bug): it uses up no attempt, only time of the window. */
export function releaseAfterFault(delivery: LeasedDelivery, on: Delivering): Delivered {
  const waited = waitedFor(delivery, urlToProve(on.findTarget(delivery), on), on);
  return ended(delivery, released(on, false), null, null, { waitedMs: waited });
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

function ended(
  { deliveryId, leaseToken, run }: LeasedDelivery,
  next: Recording["next"],
  attempt: AttemptRow | null = null,
  result: PostResult | null = null,
  { waitedMs = 0, turn = null }: { waitedMs?: number; turn?: TurnTaken | null } = {},
): Delivered {
  return { recording: { deliveryId, leaseToken, run, attempt, next, waitedMs }, result, turn };
}
