import type { Pool } from "pg";
import { type NoticeKind, TO_REPLAY_MAX } from "../model/notices.ts";
import { findExpiringCertificates } from "../store/endpoint-certificates.ts";
import {
  countUndelivered,
  findEndpointHealth,
  forgetHealth,
  markFailing,
  markRecovered,
  type StoredHealth,
} from "../store/endpoint-health.ts";
import { addNotice, findExpiringSecrets } from "../store/notices.ts";
import { inTransaction } from "../store/transaction.ts";
import {
  CERTIFICATE_WARNING_MS,
  isCertificateExpiring,
  isSecretExpiring,
  judgeEndpoint,
  SECRET_WARNING_MS,
} from "./endpoint-verdict.ts";

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

async function tellFailing(
  options: NewsOptions,
  health: StoredHealth,
  reason: "no_success" | "abandoned",
): Promise<void> {
  const { pool, analysisRetentionMs, onNotice } = options;
  const { accountId, endpointUrl } = health;
  if (endpointUrl === null) throw new Error(`account ${accountId} has no endpoint that could be failing`);
  // The log is the truth. What a dispatcher saw last may be lost with it, a success too.
  const undelivered = await countUndelivered(pool, accountId, analysisRetentionMs, 1);
  if (undelivered.failed + undelivered.abandoned === 0) return await forgetHealth(pool, health);
  const details = {
    url: endpointUrl,
    reason,
    sinceMs: health.failingSinceMs,
    failedAttempts: health.failedAttempts,
    abandoned: health.abandoned,
    errorCode: health.errorCode,
  };
  const isTold = await inTransaction(pool, async (client) => {
    if (!(await markFailing(client, accountId, health.abandoned))) return false;
    return await addNotice(client, {
      accountId,
      kind: "endpoint.failing",
      subject: String(health.nowMs),
      details,
    });
  });
  if (isTold) onNotice("endpoint.failing", accountId);
}

async function tellRecovered(
  { pool, analysisRetentionMs, onNotice }: NewsOptions,
  { accountId, endpointUrl, url, nowMs }: StoredHealth,
  succeededAtMs: number,
): Promise<void> {
  const { abandoned } = await countUndelivered(pool, accountId, analysisRetentionMs, TO_REPLAY_MAX);
  const shownUrl = endpointUrl ?? url;
  const isTold = await inTransaction(pool, async (client) => {
    if (!(await markRecovered(client, accountId)) || shownUrl === null) return false;
    const details = { url: shownUrl, succeededAtMs, toReplay: abandoned };
    return await addNotice(client, {
      accountId,
      kind: "endpoint.recovered",
      subject: String(nowMs),
      details,
    });
  });
  if (isTold) onNotice("endpoint.recovered", accountId);
}

async function lookAtSecrets({ pool, onNotice }: NewsOptions): Promise<void> {
  for (const secret of await findExpiringSecrets(pool, SECRET_WARNING_MS, ROWS_PER_STEP)) {
    const { accountId, secretId, rotatedAtMs, expiresAtMs, nowMs } = secret;
    if (!isSecretExpiring(rotatedAtMs, expiresAtMs, nowMs)) continue;
    const details = { rotatedAtMs, expiresAtMs };
    const isTold = await addNotice(pool, { accountId, kind: "secret.expiring", subject: secretId, details });
    if (isTold) onNotice("secret.expiring", accountId);
  }
}

async function lookAtCertificates({ pool, onNotice }: NewsOptions): Promise<void> {
  for (const seen of await findExpiringCertificates(pool, CERTIFICATE_WARNING_MS, ROWS_PER_STEP)) {
    const { accountId, host, expiresAtMs, endpointUrl, nowMs } = seen;
    if (new URL(endpointUrl).host !== host || !isCertificateExpiring(expiresAtMs, nowMs)) continue;
    const isTold = await addNotice(pool, {
      accountId,
      kind: "certificate.expiring",
      subject: `${host} ${expiresAtMs}`,
      details: { host, expiresAtMs },
    });
    if (isTold) onNotice("certificate.expiring", accountId);
  }
}
