import type { ClientBase, Pool } from "pg";
import { inTransaction } from "../base/database/transaction.ts";
import { type FailingReason, type NoticeKind, TO_REPLAY_MAX } from "../base/model/notices.ts";
import { DAY_MS, isoTime } from "../base/model/time.ts";
import {
  countUndelivered,
  findEndpointHealth,
  findExpiringCertificates,
  forgetHealth,
  markFailing,
  markRecovered,
  type StoredHealth,
} from "../delivery/endpoint-health-sql.ts";
import { addNotice, findExpiringSecrets, type NewNotice } from "./notices-sql.ts";

const HOUR_MS = 3_600_000;

/** An endpoint is failing after so long without a success, if so many attempts failed meanwhile. */
const FAILING_AFTER_MS = HOUR_MS;
const FAILED_ATTEMPTS_MIN = 10;
/** After an endpoint was told to be failing, it is not told again sooner, however often it comes and goes. */
const TOLD_EVERY_MS = HOUR_MS;

export type EndpointHealth = Omit<StoredHealth, "accountId" | "errorCode" | "nowMs">;

export type EndpointVerdict =
  | { readonly kind: "tell_failing"; readonly reason: FailingReason }
  | { readonly kind: "tell_recovered"; readonly succeededAtMs: number }
  /** All is well, or it is no longer the account's endpoint: nothing of it need be known. */
  | { readonly kind: "forget" }
  | { readonly kind: "wait" };

/** Whether there is something to tell of an endpoint at this moment. */
export function judgeEndpoint(health: EndpointHealth, nowMs: number): EndpointVerdict {
  const { failingSinceMs, succeededAtMs, toldAtMs } = health;
  const isTheEndpoint =
    health.endpointUrl !== null && (health.url ?? health.endpointUrl) === health.endpointUrl;
  if (health.isFailing) {
    // A success that was before it was told of does not count: it was part of what was told.
    const hasRecovered = succeededAtMs !== null && (toldAtMs === null || succeededAtMs > toldAtMs);
    if (hasRecovered) return { kind: "tell_recovered", succeededAtMs };
    return health.endpointUrl === null ? { kind: "forget" } : { kind: "wait" };
  }
  if (!isTheEndpoint) return { kind: "forget" };
  if (toldAtMs !== null && nowMs - toldAtMs < TOLD_EVERY_MS) return { kind: "wait" };
  if (hasNoSuccess(health, nowMs)) return { kind: "tell_failing", reason: "no_success" };
  if (health.abandoned > 0) return { kind: "tell_failing", reason: "abandoned" };
  return failingSinceMs === null ? { kind: "forget" } : { kind: "wait" };
}

function hasNoSuccess({ failingSinceMs, failedAttempts }: EndpointHealth, nowMs: number): boolean {
  if (failingSinceMs === null || failedAttempts < FAILED_ATTEMPTS_MIN) return false;
  return nowMs - failingSinceMs >= FAILING_AFTER_MS;
}

/** A certificate that ends sooner is told of. One that has ended fails the attempts, which is told as that. */
export const CERTIFICATE_WARNING_MS = 14 * DAY_MS;

const ROWS_PER_STEP = 500;

export type NewsOptions = {
  readonly pool: Pool;
  /** How long an analysis can still be delivered. */
  readonly analysisRetentionMs: number;
  readonly onNotice: (kind: NoticeKind, accountId: string) => void;
};

/** Looks once at all that somebody may have to be told of, and writes the notices. */
export async function lookForNews(options: NewsOptions, signal: AbortSignal): Promise<void> {
  await lookAtEndpoints(options, signal);
  await lookAtSecrets(options);
  await lookAtCertificates(options);
}

async function lookAtEndpoints(options: NewsOptions, signal: AbortSignal): Promise<void> {
  let after: string | null = null;
  do {
    const page = await findEndpointHealth(options.pool, after, ROWS_PER_STEP);
    for (const health of page) await lookAtEndpoint(options, health);
    after = page.length === ROWS_PER_STEP ? (page.at(-1)?.accountId ?? null) : null;
  } while (after !== null && !signal.aborted);
}

async function lookAtEndpoint(options: NewsOptions, health: StoredHealth): Promise<void> {
  const verdict = judgeEndpoint(health, health.nowMs);
  switch (verdict.kind) {
    case "wait":
      return;
    case "forget":
      return await forgetHealth(options.pool, health);
    case "tell_failing":
      return await tellFailing(options, health, verdict.reason);
    case "tell_recovered":
      return await tellRecovered(options, health, verdict.succeededAtMs);
    default:
      throw new Error(`unknown verdict: ${JSON.stringify(verdict satisfies never)}`);
  }
}

async function tellFailing(options: NewsOptions, health: StoredHealth, reason: FailingReason): Promise<void> {
  const { pool, analysisRetentionMs } = options;
  const { accountId, endpointUrl, failingSinceMs } = health;
  if (endpointUrl === null) throw new Error(`account ${accountId} has no endpoint that could be failing`);
  // The log is the truth. What a dispatcher saw last may be lost with it, a success too.
  const undelivered = await countUndelivered(pool, accountId, analysisRetentionMs, 1);
  if (undelivered.failed + undelivered.abandoned === 0) return await forgetHealth(pool, health);
  const details = {
    url: endpointUrl,
    reason,
    since: failingSinceMs === null ? null : isoTime(failingSinceMs),
    failed_attempts: health.failedAttempts,
    abandoned: health.abandoned,
    error_code: health.errorCode,
  };
  const notice = { accountId, kind: "endpoint.failing", subject: String(health.nowMs), details } as const;
  await tell(options, notice, (client) => markFailing(client, accountId, health.abandoned));
}

async function tellRecovered(
  options: NewsOptions,
  { accountId, endpointUrl, url, nowMs }: StoredHealth,
  succeededAtMs: number,
): Promise<void> {
  const { pool, analysisRetentionMs } = options;
  const shownUrl = endpointUrl ?? url;
  if (shownUrl === null) {
    await inTransaction(pool, (client) => markRecovered(client, accountId));
    return;
  }
  const { abandoned } = await countUndelivered(pool, accountId, analysisRetentionMs, TO_REPLAY_MAX);
  const details = { url: shownUrl, succeeded_at: isoTime(succeededAtMs), to_replay: abandoned };
  const notice = { accountId, kind: "endpoint.recovered", subject: String(nowMs), details } as const;
  await tell(options, notice, (client) => markRecovered(client, accountId));
}

async function lookAtSecrets(options: NewsOptions): Promise<void> {
  for (const notice of await findExpiringSecrets(options.pool, ROWS_PER_STEP)) await tell(options, notice);
}

async function lookAtCertificates(options: NewsOptions): Promise<void> {
  for (const seen of await findExpiringCertificates(options.pool, CERTIFICATE_WARNING_MS, ROWS_PER_STEP)) {
    const { accountId, host, expiresAtMs, endpointUrl } = seen;
    if (new URL(endpointUrl).host !== host) continue;
    const details = { host, expires_at: isoTime(expiresAtMs) };
    const subject = `${host} ${expiresAtMs}`;
    await tell(options, { accountId, kind: "certificate.expiring", subject, details });
  }
}

/** @param mark notes it where it was found, and says whether it is still so */
async function tell(
  { pool, onNotice }: NewsOptions,
  notice: NewNotice,
  mark: (client: ClientBase) => Promise<boolean> = async () => true,
): Promise<void> {
  const isTold = await inTransaction(
    pool,
    async (client) => (await mark(client)) && (await addNotice(client, notice)),
  );
  if (isTold) onNotice(notice.kind, notice.accountId);
}
