import type { EndReason } from "../../base/model/statuses.ts";
import { nextDueAtMs, type RetryPolicy, windowEndsAtMs } from "./retry-schedule.ts";

/**
 * Every decision about a delivery's status, its count of attempts and its next due time, in one place and pure. The
 * dispatcher calls these functions and nothing else decides; the simulation drives the same ones.
 *
 * Times are milliseconds since the Unix epoch in the database's time.
 */

/** What a claim found, as far as going on depends on it. */
export type ClaimedState = {
  /** Counted attempts of this run that have ended, a cut one just written down included. */
  readonly attemptsInRun: number;
  /** Start of the run's first attempt: this claim's own time when this is the first. */
  readonly runStartedAtMs: number;
  /** The attempt that was just recorded as interrupted had been posted from quarantine. */
  readonly wasInterruptedInQuarantine: boolean;
  readonly isErased: boolean;
  /** The analysis is readable (and its body sent) until then. */
  readonly expiresAtMs: number;
  /** Null: neither a webhook_url nor an endpoint. Refused: by the text of the URL. */
  readonly target: "allowed" | "refused" | "refused_by_receiver" | null;
};

export type BeforeAttempt = { readonly kind: "post" } | { readonly kind: "end"; readonly reason: EndReason };

/** Whether a claimed delivery is posted now, or ends without another attempt. */
export function decideBeforeAttempt(state: ClaimedState, policy: RetryPolicy, nowMs: number): BeforeAttempt {
  if (state.isErased) return { kind: "end", reason: "analysis_erased" };
  if (state.wasInterruptedInQuarantine) return { kind: "end", reason: "interrupted" };
  if (state.attemptsInRun >= policy.attempts) return { kind: "end", reason: "attempts_exhausted" };
  if (nowMs >= state.expiresAtMs) return { kind: "end", reason: "analysis_expired" };
  if (state.target === null) return { kind: "end", reason: "no_target" };
  if (state.target === "refused_by_receiver") return { kind: "end", reason: "refused_by_receiver" };
  if (state.target === "refused") return { kind: "end", reason: "target_refused" };
  // After what one can do something about: of a target that is gone, nobody knows how long it was waited for.
  if (nowMs >= windowEndsAtMs(policy, state.runStartedAtMs)) return { kind: "end", reason: "window_ended" };
  return { kind: "post" };
}

/**
 * How long an attempt that starts now has waited for its receiver's turn, from when it was due until the receiver was
 * proven: the run's window is longer by as much. Nothing else that makes attempts late is counted.
 */
export function waitedMs(
  { dueAtMs, runStartedAtMs }: { readonly dueAtMs: number; readonly runStartedAtMs: number },
  untilMs: number,
): number {
  return Math.max(0, untilMs - Math.max(dueAtMs, runStartedAtMs));
}

/** What became of one attempt, as far as the future depends on it. */
export type EndedAttempt = Omit<Parameters<typeof nextDueAtMs>[0], "policy" | "random"> & {
  readonly hasSucceeded: boolean;
};

type AfterAttempt =
  | { readonly status: "succeeded" }
  | { readonly status: "failed"; readonly dueAtMs: number }
  | { readonly status: "abandoned"; readonly reason: "attempts_exhausted" };

/** Where a counted attempt leaves its delivery. `random` is uniform in [0, 1). */
export function decideAfterAttempt(attempt: EndedAttempt, policy: RetryPolicy, random: number): AfterAttempt {
  if (attempt.hasSucceeded) return { status: "succeeded" };
  if (attempt.number >= policy.attempts) return { status: "abandoned", reason: "attempts_exhausted" };
  return { status: "failed", dueAtMs: nextDueAtMs({ policy, random, ...attempt }) };
}

/** A release waits as in a run of this many attempts, however few the run really has. */
const RELEASE_ATTEMPTS = 8;

/** When one is due whose attempt was cut before its first byte: as after the first of eight; none was used up. */
export function dueAfterRelease(
  policy: RetryPolicy,
  nowMs: number,
  isOurOwnStop: boolean,
  random: number,
): number {
  if (isOurOwnStop) return nowMs;
  return nextDueAtMs({
    policy: { ...policy, attempts: RELEASE_ATTEMPTS },
    number: 1,
    runStartedAtMs: nowMs,
    endedAtMs: nowMs,
    retryAfterMs: null,
    random,
  });
}

/** Interrupted this often in a row, a delivery goes into quarantine, so that a poisonous one harms no other. */
export const INTERRUPTIONS_BEFORE_QUARANTINE = 2;
