import type { Logger } from "pino";
import type { LeasedDelivery } from "../store/claim.ts";
import type { Delivered } from "./deliver.ts";
import type { DispatchObserver } from "./dispatcher.ts";
import type { PostResult } from "./post-result.ts";
import type { Recorded } from "./recorder.ts";

/**
 * One wide line per attempt, and one per failure of our own. Never a body, a header, a signature or a secret: what the
 * receiver sent stands in the delivery log, for those who may see it. A target is logged by its host only, since
 * customers put tokens into paths.
 */
export function createAttemptLog(log: Logger, mustGoAlone: (deliveryId: string) => void): DispatchObserver {
  return {
    attemptRecorded: (delivery, delivered, recorded) => {
      // Making the line costs as much as signing; nobody pays for one that is not written.
      if (recorded !== "ours") {
        log.warn(attemptLine(delivery, delivered, recorded), "attempt whose lease was gone when it ended");
      } else if (log.isLevelEnabled("info")) {
        log.info(attemptLine(delivery, delivered, recorded), "attempt");
      }
    },
    mustGoAlone: (deliveryId) => {
      log.warn({ delivery_id: deliveryId }, "interrupted twice in a row: it is posted alone");
      mustGoAlone(deliveryId);
    },
    letGo: (count) => log.debug({ count }, "let wake-ups go: their lanes remember enough"),
    claimed: () => undefined,
    failed: (work, err) => log.error({ work, err }, "our own fault, or the database's; trying again"),
  };
}

function attemptLine(
  delivery: LeasedDelivery,
  { recording, result }: Delivered,
  recorded: Recorded,
): Record<string, unknown> {
  const { attempt, next } = recording;
  return {
    account_id: delivery.accountId,
    delivery_id: delivery.deliveryId,
    run: delivery.run,
    number: attempt?.number ?? null,
    host: attempt === null ? null : new URL(attempt.targetUrl).host,
    outcome: attempt?.outcome ?? null,
    error_code: attempt?.errorCode ?? null,
    status_code: attempt?.statusCode ?? null,
    ...(result === null ? {} : timesOf(result)),
    next: next.status,
    ...("reason" in next ? { reason: next.reason } : {}),
    ...("dueAtMs" in next ? { due_at: new Date(next.dueAtMs).toISOString() } : {}),
    traceparent: delivery.traceparent,
    recorded,
  };
}

/** Steps that did not take place, because a kept connection was used, are left out. */
function timesOf({ durationMs, timings }: PostResult) {
  return {
    duration_ms: Math.round(durationMs),
    dns_ms: rounded(timings.dnsMs),
    connect_ms: rounded(timings.connectMs),
    tls_ms: rounded(timings.tlsMs),
    first_byte_ms: rounded(timings.firstByteMs),
  };
}

function rounded(ms: number | null): number | undefined {
  return ms === null ? undefined : Math.round(ms * 10) / 10;
}
