import { STATUS_CODES } from "node:http";
import type { Logger } from "pino";
import type { Faults } from "../base/metrics/database-metrics.ts";
import type { DispatchMetrics } from "../base/metrics/dispatch-metrics.ts";
import { type ErrorCode, NAMED_ERROR_CODES, outcomeOfErrorCode } from "../base/model/error-codes.ts";
import { statusErrorCode } from "../base/model/http-status-errors.ts";
import { END_REASONS } from "../base/model/statuses.ts";
import type { LeasedDelivery } from "./claim-sql.ts";
import type { Delivered } from "./deliver.ts";
import type { AttemptRow } from "./record-sql.ts";
import type { Recorded } from "./recorder.ts";

/** Told of everything that happens, for logs, metrics and tests. Must not throw. */
export type DispatchObserver = {
  readonly attemptRecorded: (delivery: LeasedDelivery, delivered: Delivered, recorded: Recorded) => void;
  /** Interrupted twice in a row: it may be posted only where nothing else is in flight. */
  readonly mustBeQuarantined: (deliveryId: string) => void;
  readonly overflowed: (count: number) => void;
  readonly failed: (work: "claim" | "deliver" | "record" | "lanes", error: unknown) => void;
};

/** Tells each of them, in order, what it wants to know. */
export function tellAll(observers: readonly Partial<DispatchObserver>[]): DispatchObserver {
  const tell = (one: (observer: Partial<DispatchObserver>) => void) => observers.forEach(one);
  return {
    attemptRecorded: (...told) => tell((one) => one.attemptRecorded?.(...told)),
    mustBeQuarantined: (...told) => tell((one) => one.mustBeQuarantined?.(...told)),
    overflowed: (...told) => tell((one) => one.overflowed?.(...told)),
    failed: (...told) => tell((one) => one.failed?.(...told)),
  };
}

/**
 * One wide line per attempt, at debug as the delivery log has them all, and one per internal error. Never a body, a
 * header, a signature or a secret: what the receiver sent is in the delivery log, for those who may see it. A target is
 * logged by its host only: customers put tokens into paths.
 */
export function createAttemptLog(
  log: Logger,
  mustBeQuarantined: (deliveryId: string) => void,
): Partial<DispatchObserver> {
  return {
    attemptRecorded: (delivery, delivered, recorded) => {
      if (delivered.recording.next.status === "waits") return;
      const isOurs = recorded === "ours";
      // Making the line costs as much as signing, so it is made only when it is written.
      if (isOurs && !log.isLevelEnabled("debug")) return;
      const { attempt } = delivered.recording;
      // The URL is in its normal form, and to parse it would cost an eighth of the line.
      const host = attempt?.targetUrl.split("/", 3)[2] ?? null;
      const line = attemptLine(delivery, delivered, recorded, host);
      if (isOurs) log.debug(line, "attempt");
      else log.warn(line, "attempt that had lost its lease when it ended");
    },
    mustBeQuarantined: (deliveryId) => {
      log.warn({ delivery_id: deliveryId }, "interrupted twice in a row: it is posted alone");
      mustBeQuarantined(deliveryId);
    },
    overflowed: (count) => log.debug({ count }, "dropped wake-ups: their lanes have enough in memory"),
    failed: (work, err) => log.error({ work, err }, "an internal or database error; trying again"),
  };
}

/** One literal, undefined where nothing happened: the logger leaves those out, and spreading costs more. */
function attemptLine(
  delivery: LeasedDelivery,
  { recording, result }: Delivered,
  recorded: Recorded,
  host: string | null,
) {
  const { attempt, next } = recording;
  const timings = result?.timings;
  return {
    account_id: delivery.accountId,
    delivery_id: delivery.deliveryId,
    run: delivery.run,
    number: attempt?.number ?? null,
    host,
    outcome: attempt?.outcome ?? null,
    error_code: attempt?.errorCode ?? null,
    status_code: attempt?.statusCode ?? null,
    duration_ms: result === null ? undefined : Math.round(result.durationMs),
    // Undefined for the steps that a kept connection did without.
    dns_ms: rounded(timings?.dnsMs),
    connect_ms: rounded(timings?.connectMs),
    tls_ms: rounded(timings?.tlsMs),
    first_byte_ms: rounded(timings?.firstByteMs),
    next: next.status,
    reason: "reason" in next ? next.reason : undefined,
    due_at: "dueAtMs" in next ? new Date(next.dueAtMs).toISOString() : undefined,
    traceparent: delivery.traceparent,
    recorded,
  };
}

function rounded(ms: number | null | undefined): number | undefined {
  return ms === null || ms === undefined ? undefined : Math.round(ms * 10) / 10;
}

/** Counts what a dispatcher does. All of it together costs about a microsecond an attempt. */
export function createAttemptMetrics(
  metrics: DispatchMetrics,
  faults: Faults,
): Omit<DispatchObserver, "overflowed"> {
  beginAtZero(metrics);
  const succeeded = metrics.attempts.of({ outcome: "succeeded", error_code: "none" });
  const interrupted = metrics.attempts.of({ outcome: "interrupted", error_code: "interrupted" });
  const deliveriesSucceeded = metrics.deliveriesEnded.of({ status: "succeeded", reason: "none" });
  const attemptSeconds = metrics.attemptSeconds.of({});
  const firstAttemptWait = metrics.firstAttemptWait.of({});
  const steps = [
    ["dnsMs", metrics.stepSeconds.of({ step: "dns" })],
    ["connectMs", metrics.stepSeconds.of({ step: "connect" })],
    ["tlsMs", metrics.stepSeconds.of({ step: "tls" })],
    ["firstByteMs", metrics.stepSeconds.of({ step: "first_byte" })],
  ] as const;

  function countAttempt(delivery: LeasedDelivery, attempt: AttemptRow): void {
    if (attempt.errorCode === null) succeeded.add();
    else metrics.attempts.of({ outcome: attempt.outcome, error_code: codeLabel(attempt.errorCode) }).add();
    attemptSeconds.observe((attempt.endedAtMs - attempt.startedAtMs) / 1_000);
    for (const [name, seconds] of steps) {
      const ms = attempt[name];
      if (ms !== null) seconds.observe(ms / 1_000);
    }
    if (isFirst(delivery, attempt))
      firstAttemptWait.observe(secondsBetween(delivery.createdAtMs, attempt.startedAtMs));
  }

  return {
    attemptRecorded: (delivery, { recording, result }, recorded) => {
      if (delivery.wasInterrupted) {
        metrics.leasesRecovered.of({}).add();
        interrupted.add();
      }
      // The lease was lost before the attempt ended: only what the log says is counted.
      if (recorded !== "ours") return metrics.unrecorded.of({ how: recorded }).add();
      const { attempt, next } = recording;
      if (attempt !== null) countAttempt(delivery, attempt);
      if (next.status === "waits") metrics.leasesReturned.of({ why: "not_proven" }).add();
      if (next.status === "released") {
        metrics.leasesReturned.of({ why: result?.errorCode ?? "not_posted" }).add();
      }
      if (next.status === "abandoned") {
        metrics.deliveriesEnded.of({ status: "abandoned", reason: next.reason }).add();
      }
      if (next.status === "succeeded" && attempt !== null) {
        deliveriesSucceeded.add();
        const when = delivery.run > 1 ? "replay" : isFirst(delivery, attempt) ? "first" : "retry";
        const seconds = secondsBetween(delivery.createdAtMs, attempt.endedAtMs);
        metrics.deliverySeconds.of({ attempt: when }).observe(seconds);
      }
    },
    mustBeQuarantined: () => metrics.sentAlone.of({}).add(),
    failed: (work) => faults.of({ work }).add(),
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

function isFirst(delivery: LeasedDelivery, attempt: AttemptRow): boolean {
  return delivery.run === 1 && attempt.number === 1;
}

/** The clock follows the database's to a millisecond or so: anything shorter may come out below 0. */
function secondsBetween(fromMs: number, toMs: number): number {
  return Math.max(0, toMs - fromMs) / 1_000;
}
