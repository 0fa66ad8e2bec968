import { randomUUID } from "node:crypto";
import type { Config } from "../base/config/config.ts";
import { unseal } from "../base/database/sealing.ts";
import { BoundedCache } from "../base/model/caches.ts";
import { isOurFailure } from "../base/model/error-codes.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import type { Egress } from "../egress/egress.ts";
import { createPoster, type PostRequest } from "../egress/post/post.ts";
import type { PostResult } from "../egress/post/result.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/host.ts";
import { judgeTargetUrl, type TargetUrlVerdict } from "../egress/rules/target-url.ts";
import type { ClaimedDelivery, LeasedDelivery } from "./claim-sql.ts";
import { hidingSecrets, sentHeaders, unsealHeaders } from "./endpoint-headers.ts";
import type { TurnTaken } from "./lane.ts";
import { createTurn, mustProve, type ReceiverTurn, type ReceiverTurns } from "./receiver-turns.ts";
import { type Meant, requestForm } from "./receivers-sql.ts";
import type { AttemptRow, Recording } from "./record-sql.ts";
import { decideAfterAttempt, decideBeforeAttempt, dueAfterRelease, waitedMs } from "./schedule/life.ts";
import { ATTEMPTS_MAX, parseRetryAfterMs, type RetryPolicy } from "./schedule/retry-schedule.ts";
import {
  challengeBody,
  confirmsChallenge,
  importWebhookKey,
  signedHeaders,
  type WebhookKey,
  webhookBody,
  webhookHeaders,
} from "./webhook.ts";

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
  const ready = new BoundedCache<string, WebhookKey>(CACHED_KEYS_MAX);
  return ({ accountId, sealedSecrets }: LeasedDelivery): readonly WebhookKey[] => {
    if (sealedSecrets.length === 0) throw new Error(`account ${accountId} has no valid signing secret`);
    return sealedSecrets.map((entry) =>
      ready.get(entry, () => {
        const [id = "", sealed = ""] = entry.split(":");
        return importWebhookKey(unseal(Buffer.from(sealed, "base64"), secretsKey, { accountId, id }));
      }),
    );
  };
}

/** The endpoint's own headers, and what hides them. Throws, as an internal error, when they do not open. */
function createFindHeaders(secretsKey: SecretsKey) {
  // Not cached: it takes microseconds, few endpoints have any, and 20,000 of them could take all memory.
  return ({ accountId, endpointUrl, sealedHeaders: sealed }: LeasedDelivery) => {
    if (sealed === null || endpointUrl === null) return {};
    const headers = unsealHeaders(Buffer.from(sealed, "base64"), endpointUrl, accountId, secretsKey);
    return { added: sentHeaders(headers), hide: hidingSecrets(headers) };
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
    findHeaders: createFindHeaders(options.secretsKey),
    turns: options.turns,
    publicUrl: config.publicUrl,
    /** Before its first webhook, a receiver has to answer a challenge. */
    challenges: config.targetConsent === "challenge",
    mustProve: (url: URL) => mustProve(config, egress.unsafeAllowedTargets, url),
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
  const { accountId, isRefused } = delivery;
  const spelled = spelledUrl(delivery);
  const runStartedAtMs = delivery.runStartedAtMs + waited;
  const verdict = decideBeforeAttempt(
    {
      attemptsInRun: (delivery.number ?? on.policy.attempts + 1) - 1,
      runStartedAtMs,
      wasInterruptedInQuarantine: delivery.wasInterruptedInQuarantine,
      isErased: delivery.analysisText === "null",
      expiresAtMs: delivery.analysisText === null ? 0 : delivery.createdAtMs + on.analysisRetentionMs,
      target: target === null ? null : isRefused ? "refused_by_receiver" : VERDICTS[target.verdict],
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

  const { run, number } = delivery;
  const asked = { accountId, isFirst: run === 1 && number === 1 };
  const turn =
    url !== null && delivery.provenAtMs === null ? createTurn(asked, spelled, on.turns, on.leaseMs) : null;
  const keys = on.findKeys(delivery);
  const { added, hide } = on.findHeaders(delivery);
  if (!mayStart()) return ended(delivery, released(on, true), null, null, { waitedMs: waited, turn: null });
  const rest = turn?.begin() ?? null;
  if (rest !== null) return ended(delivery, { status: "waits" }, null, null, { turn: rest });

  const body = webhookBody({ ...delivery, id: delivery.deliveryId, analysisText: delivery.analysisText });
  // Signed anew for every attempt, at the database's time. The signature's time is read off the attempt's start (see
  // src/log/deliveries-api.ts), so it is one time, in whole milliseconds.
  const startedAtMs = Math.floor(on.clock.nowMs());
  const message = (body: Buffer, id: string) => {
    const { traceparent, signsStandard } = delivery;
    const signed = signedHeaders(body, keys, startedAtMs, signsStandard ? id : null);
    return { body, headers: webhookHeaders({ ...signed, added, traceparent, publicUrl: on.publicUrl }) };
  };
  const payload = message(body, delivery.deliveryId);
  const request = { url: target.url, payer: accountId, admit: turn?.admit, deadlineMs: on.deadlineMs, hide };
  const { result, isConfirmed = false } =
    turn === null || !on.challenges
      ? { result: await on.poster.post({ ...request, ...payload }) }
      : await postChallenge(request, turn, message, payload, on);
  const hasSucceeded = result.outcome === "succeeded";
  const isOurs = !usesUpAnAttempt(result);
  const more = {
    waitedMs: waited,
    turn: (await turn?.end(hasSucceeded, isOurs)) ?? null,
  };
  // Confirmed, it is given back like one whose turn it was not: claimed again, at once, it goes to a proven receiver.
  if (result.errorCode === "not_proven" || isConfirmed)
    return ended(delivery, { status: "waits" }, null, result, { ...more, waitedMs: 0 });
  if (isOurs) return ended(delivery, released(on, false), null, result, more);
  // If one of these fails, the next POST says the same.
  if (hasSucceeded && url !== null && startedAtMs - (delivery.provenAtMs ?? startedAtMs) > PROOF_AGE_MS)
    await on.turns.end(delivery.accountId, spelled, true).catch(() => undefined);
  if (result.isRefusal) await on.turns.refuse(delivery.accountId, target.href).catch(() => undefined);

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

type Message = Pick<PostRequest, "headers" | "body">;

/**
 * In an unproven receiver's turn: asks it whether it wants webhooks. No answer but the one that is asked for is a yes.
 * If it has been proven since the claim, the payload is posted.
 */
async function postChallenge(
  request: Omit<PostRequest, keyof Message>,
  turn: ReceiverTurn,
  message: (body: Buffer, id: string) => Message,
  payload: Message,
  { poster }: Pick<Delivering, "poster">,
): Promise<{ readonly result: PostResult; readonly isConfirmed?: boolean }> {
  const text = randomUUID();
  const asking = {
    ...request,
    // Its id is another: who sends back what is in headers has not read the challenge.
    ...message(challengeBody(text), randomUUID()),
    admit: async (address: string) => {
      await turn.admit(address);
      if (turn.isProven()) Object.assign(asking, payload);
    },
  };
  const result = await poster.post(asking);
  if (turn.isProven() || result.statusCode === null) return { result };
  if (confirmsChallenge(text, result)) return { result, isConfirmed: true };
  return { result: { ...result, outcome: "rejected", errorCode: "target_not_confirmed" } };
}

/** The target's URL, if its receiver has to be proven; null: it need not, or there is no target. */
function urlToProve(target: TargetUrlVerdict | null, on: Delivering): URL | null {
  return target?.verdict === "allow" && on.mustProve(target.url) ? target.url : null;
}

const spelledUrl = ({ webhookUrl, endpointUrl }: LeasedDelivery) => webhookUrl ?? endpointUrl ?? "";

/**
 * A claim goes by the text of URLs. Where that is not what the URL means, in its one form, the receiver is looked up by
 * that: for all of a claim at once, as every attempt of an account may be spelled so.
 */
export async function asMeant(
  claimed: readonly ClaimedDelivery[],
  on: Pick<Delivering, "findTarget" | "turns">,
): Promise<readonly ClaimedDelivery[]> {
  const meant = new Map<ClaimedDelivery, Meant>();
  for (const one of claimed) {
    const target = one.kind === "leased" ? on.findTarget(one) : null;
    if (one.kind !== "leased" || target?.verdict !== "allow") continue;
    const url = requestForm(target.href);
    if (url !== spelledUrl(one)) meant.set(one, { accountId: one.accountId, origin: target.url.origin, url });
  }
  if (meant.size === 0) return claimed;
  const found = await on.turns.findReceivers([...meant.values()]);
  const of = new Map([...meant.keys()].map((one, n) => [one, found[n]!]));
  return claimed.map((one) => {
    const receiver = of.get(one);
    if (receiver === undefined || one.kind !== "leased") return one;
    const { provenAtMs, provenSinceMs } = one.provenAtMs === null ? receiver : one;
    return { ...one, provenAtMs, provenSinceMs, isRefused: one.isRefused || receiver.isRefused };
  });
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
