import { STATUS_CODES } from "node:http";
import type { DispatchMetrics } from "../metrics/dispatch-metrics.ts";
import type { Distribution } from "../metrics/registry.ts";
import { END_REASONS } from "../model/end-reasons.ts";
import { type ErrorCode, NAMED_ERROR_CODES, outcomeOfErrorCode } from "../model/error-codes.ts";
import { statusErrorCode } from "../model/http-status-errors.ts";
import type { LeasedDelivery } from "../store/claim.ts";
import type { AttemptRow } from "../store/record.ts";
import type { DispatchObserver } from "./observer.ts";

/** Counts what a dispatcher does. All of it together costs about a microsecond an attempt. */
export function createAttemptMetrics(metrics: DispatchMetrics): DispatchObserver {
  beginAtZero(metrics);
  const succeeded = metrics.attempts.of({ outcome: "succeeded", error_code: "none" });
  const interrupted = metrics.attempts.of({ outcome: "interrupted", error_code: "interrupted" });
  const deliveriesSucceeded = metrics.deliveriesEnded.of({ status: "succeeded", reason: "none" });
  const unrecorded = {
    taken_over: metrics.unrecorded.of({ how: "taken_over" }),
    given_up: metrics.unrecorded.of({ how: "given_up" }),
  };
  const attemptSeconds = metrics.attemptSeconds.of({});
  const firstAttemptWait = metrics.firstAttemptWait.of({});
  const leasesRecovered = metrics.leasesRecovered.of({});
  const sentAlone = metrics.sentAlone.of({});
  const wakeupsLetGo = metrics.wakeupsLetGo.of({});
  const claimRows = metrics.batchRows.of({ batch: "claim" });
  const claimSeconds = metrics.batchSeconds.of({ batch: "claim" });
  const steps = {
    dnsMs: metrics.stepSeconds.of({ step: "dns" }),
    connectMs: metrics.stepSeconds.of({ step: "connect" }),
    tlsMs: metrics.stepSeconds.of({ step: "tls" }),
    firstByteMs: metrics.stepSeconds.of({ step: "first_byte" }),
  };
  const deliverySeconds = {
    first: metrics.deliverySeconds.of({ attempt: "first" }),
    retry: metrics.deliverySeconds.of({ attempt: "retry" }),
    replay: metrics.deliverySeconds.of({ attempt: "replay" }),
  };

  function countAttempt(delivery: LeasedDelivery, attempt: AttemptRow): void {
    if (attempt.errorCode === null) succeeded.add();
    else metrics.attempts.of({ outcome: attempt.outcome, error_code: codeLabel(attempt.errorCode) }).add();
    attemptSeconds.observe((attempt.endedAtMs - attempt.startedAtMs) / 1_000);
    observeStep(steps.dnsMs, attempt.dnsMs);
    observeStep(steps.connectMs, attempt.connectMs);
    observeStep(steps.tlsMs, attempt.tlsMs);
    observeStep(steps.firstByteMs, attempt.firstByteMs);
    if (isFirst(delivery, attempt))
      firstAttemptWait.observe(secondsBetween(delivery.createdAtMs, attempt.startedAtMs));
  }

  return {
    attemptRecorded: (delivery, { recording, result }, recorded) => {
      if (delivery.wasInterrupted) {
        leasesRecovered.add();
        interrupted.add();
      }
      // The lease was lost before the attempt ended: only what the log says is counted.
      if (recorded !== "ours") return unrecorded[recorded].add();
      const { attempt, next } = recording;
      if (attempt !== null) countAttempt(delivery, attempt);
      if (next.status === "released") {
        metrics.leasesReturned.of({ why: result?.errorCode ?? "not_posted" }).add();
      }
      if (next.status === "abandoned") {
        metrics.deliveriesEnded.of({ status: "abandoned", reason: next.reason }).add();
      }
      if (next.status === "succeeded" && attempt !== null) {
        deliveriesSucceeded.add();
        const when = delivery.run > 1 ? "replay" : isFirst(delivery, attempt) ? "first" : "retry";
        deliverySeconds[when].observe(secondsBetween(delivery.createdAtMs, attempt.endedAtMs));
      }
    },
    mustBeQuarantined: () => sentAlone.add(),
    letGo: (count) => wakeupsLetGo.add(count),
    claimed: (asked, _leased, tookMs) => {
      claimRows.observe(asked);
      claimSeconds.observe(tookMs / 1_000);
    },
    failed: (work) => metrics.faults.of({ work }).add(),
  };
}

/** A series that starts at 1 shows no increase to rate(): the first failure of its kind would be missed. */
function beginAtZero(metrics: DispatchMetrics): void {
  const statuses = Object.keys(STATUS_CODES)
    .map(Number)
    .filter((status) => status >= 300);
  const codes: readonly ErrorCode[] = [...NAMED_ERROR_CODES, ...statuses.map(statusErrorCode)];
  for (const code of codes) {
    const outcome = outcomeOfErrorCode(code);
    if (outcome !== null) metrics.attempts.of({ outcome, error_code: code });
  }
  for (const reason of END_REASONS) metrics.deliveriesEnded.of({ status: "abandoned", reason });
}

/** A closed set except for statuses, which receivers choose: those that HTTP knows, and one label for the rest. */
function codeLabel(errorCode: string): string {
  const status = /^status_(\d+)$/.exec(errorCode)?.[1];
  return status === undefined || status in STATUS_CODES ? errorCode : "status_other";
}

function observeStep(step: Distribution, ms: number | null): void {
  if (ms !== null) step.observe(ms / 1_000);
}

function isFirst(delivery: LeasedDelivery, attempt: AttemptRow): boolean {
  return delivery.run === 1 && attempt.number === 1;
}

/** The clock follows the database's to a millisecond or so: anything shorter may come out below 0. */
function secondsBetween(fromMs: number, toMs: number): number {
  return Math.max(0, toMs - fromMs) / 1_000;
}
