import { NODATA } from "node:dns";
import type { TargetErrorCode } from "../connect/target-error.ts";

export type ResolvedAddress = { readonly address: string; readonly family: 4 | 6 };

export type DnsFailureCode = Extract<TargetErrorCode, `dns_${string}`>;

/** What DNS said about one name: addresses, IPv4 first, or why there are none; and for how long to cache it. */
export type Resolution =
  | { readonly addresses: readonly ResolvedAddress[]; readonly lifetimeMs: number }
  | { readonly failure: DnsFailureCode; readonly cause: unknown; readonly lifetimeMs: number };

/** The result of one query, for A or for AAAA. */
export type FamilyAnswer =
  | { readonly addresses: readonly ResolvedAddress[]; readonly lifetimeMs: number }
  | { readonly error: unknown };

const POSITIVE_LIFETIME_MAX_MS = 30_000;
// A TTL of 0 would cost a query per connection. Caching is safe: addresses are judged at every use.
const POSITIVE_LIFETIME_MIN_MS = 1_000;
const NEGATIVE_LIFETIME_MS = 5_000;

/**
 * The records of one query as node:dns has them; `ttl` is in seconds, and c-ares omits it beyond 256 records. There are
 * none, and no error, where an alias leads to a name without addresses of this family.
 */
export function answerOf(records: readonly { address: string; ttl?: number }[], family: 4 | 6): FamilyAnswer {
  if (records.length === 0) {
    return { error: Object.assign(new Error("the alias leads to no address"), { code: NODATA }) };
  }
  const lifetimesMs = records.map((record) => (record.ttl ?? 0) * 1_000);
  return {
    addresses: records.map((record) => ({ address: record.address, family })),
    lifetimeMs: Math.max(POSITIVE_LIFETIME_MIN_MS, Math.min(POSITIVE_LIFETIME_MAX_MS, ...lifetimesMs)),
  };
}

/** Combines the answers that came in time: two, one or none. */
export function conclude(answers: readonly FamilyAnswer[]): Resolution {
  const found = answers.filter((answer) => "addresses" in answer);
  const errors = answers.filter((answer) => "error" in answer).map((answer) => answer.error);
  const isComplete = answers.length === 2;
  if (found.length === 0) return { ...failureOf(errors, isComplete), lifetimeMs: NEGATIVE_LIFETIME_MS };

  const addresses = found
    .flatMap((answer) => answer.addresses)
    .sort((one, other) => one.family - other.family);
  // While one family is unknown the other is good enough to connect to, but both are asked again soon.
  const isWhole = isComplete && errors.every(saysNoSuchRecord);
  const lifetimeMaxMs = isWhole ? POSITIVE_LIFETIME_MAX_MS : NEGATIVE_LIFETIME_MS;
  return { addresses, lifetimeMs: Math.min(lifetimeMaxMs, ...found.map((answer) => answer.lifetimeMs)) };
}

function failureOf(
  errors: readonly unknown[],
  isComplete: boolean,
): { failure: DnsFailureCode; cause: unknown } {
  const noSuchName = errors.find((error) => codeOf(error) === "ENOTFOUND");
  if (noSuchName !== undefined) return { failure: "dns_not_found", cause: noSuchName };
  const failed = errors.find((error) => !saysNoSuchRecord(error) && !isTimeout(error));
  if (failed !== undefined) return { failure: "dns_failed", cause: failed };
  const timedOut = errors.find(isTimeout);
  if (timedOut !== undefined || !isComplete) return { failure: "dns_timeout", cause: timedOut };
  return { failure: "dns_not_found", cause: errors[0] };
}

/** A name server answered that there is nothing: NXDOMAIN, or no record of this family. */
function saysNoSuchRecord(error: unknown): boolean {
  return codeOf(error) === "ENOTFOUND" || codeOf(error) === "ENODATA";
}

function isTimeout(error: unknown): boolean {
  return codeOf(error) === "ETIMEOUT";
}

export function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
