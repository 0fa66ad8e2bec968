import type { FailingReason } from "../model/notices.ts";
import { DAY_MS } from "../model/time.ts";

const HOUR_MS = 3_600_000;

/** An endpoint is failing after so long without a success, if so many attempts failed meanwhile. */
const FAILING_AFTER_MS = HOUR_MS;
const FAILED_ATTEMPTS_MIN = 10;
/** After an endpoint was told to be failing, it is not told again sooner, however often it comes and goes. */
const TOLD_EVERY_MS = HOUR_MS;

/** What is known of an endpoint that does not take everything. Times are milliseconds since the epoch. */
export type EndpointHealth = {
  /** Where the failing attempts went; null: deliveries were abandoned without any. */
  readonly url: string | null;
  /** The account's endpoint now; null: it has none. */
  readonly endpointUrl: string | null;
  /** The first failed attempt since the last success; null: the last attempt succeeded. */
  readonly failingSinceMs: number | null;
  readonly failedAttempts: number;
  /** Deliveries abandoned that nobody was told of yet. */
  readonly abandoned: number;
  readonly succeededAtMs: number | null;
  /** Somebody was told that it is failing, and nobody yet that it has recovered. */
  readonly isFailing: boolean;
  readonly toldAtMs: number | null;
};

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

export function isCertificateExpiring(endsAtMs: number, nowMs: number): boolean {
  return endsAtMs > nowMs && endsAtMs - nowMs <= CERTIFICATE_WARNING_MS;
}

/** The end of a rotation's overlap is told a day before, and of a short overlap when half of it is over. */
export const SECRET_WARNING_MS = DAY_MS;

/** @param rotatedAtMs when the overlap began */
export function isSecretExpiring(rotatedAtMs: number, expiresAtMs: number, nowMs: number): boolean {
  const warningMs = Math.min(SECRET_WARNING_MS, (expiresAtMs - rotatedAtMs) / 2);
  return expiresAtMs > nowMs && expiresAtMs - nowMs <= warningMs;
}
