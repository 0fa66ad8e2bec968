import type { Logger } from "pino";
import { BoundedCache } from "../model/bounded-cache.ts";
import type { LeasedDelivery } from "../store/claim.ts";
import type { Delivered } from "./deliver.ts";
import type { DispatchObserver } from "./observer.ts";
import type { Recorded } from "./recorder.ts";

/** URLs whose hosts are cached: parsing a URL is an eighth of what a line costs. */
const HOSTS_MAX = 20_000;

/**
 * One wide line per attempt, and one per internal error. Never a body, a header, a signature or a secret: what the
 * receiver sent is in the delivery log, for those who may see it. A target is logged by its host only: customers put
 * tokens into paths.
 */
export function createAttemptLog(
  log: Logger,
  mustBeQuarantined: (deliveryId: string) => void,
): DispatchObserver {
  const hosts = new BoundedCache<string, string>(HOSTS_MAX);
  const hostOf = (targetUrl: string) => hosts.get(targetUrl, (url) => new URL(url).host);
  return {
    attemptRecorded: (delivery, delivered, recorded) => {
      // Making the line costs as much as signing, so it is made only when it is written.
      if (recorded !== "ours") {
        log.warn(
          attemptLine(delivery, delivered, recorded, hostOf),
          "attempt whose lease was gone when it ended",
        );
      } else if (log.isLevelEnabled("info")) {
        log.info(attemptLine(delivery, delivered, recorded, hostOf), "attempt");
      }
    },
    mustBeQuarantined: (deliveryId) => {
      log.warn({ delivery_id: deliveryId }, "interrupted twice in a row: it is posted alone");
      mustBeQuarantined(deliveryId);
    },
    letGo: (count) => log.debug({ count }, "let wake-ups go: their lanes remember enough"),
    claimed: () => undefined,
    failed: (work, err) => log.error({ work, err }, "our own fault, or the database's; trying again"),
  };
}

/** One literal, undefined where nothing happened: the logger leaves those out, and spreading costs more. */
function attemptLine(
  delivery: LeasedDelivery,
  { recording, result }: Delivered,
  recorded: Recorded,
  hostOf: (targetUrl: string) => string,
) {
  const { attempt, next } = recording;
  const timings = result?.timings;
  return {
    account_id: delivery.accountId,
    delivery_id: delivery.deliveryId,
    run: delivery.run,
    number: attempt?.number ?? null,
    host: attempt === null ? null : hostOf(attempt.targetUrl),
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
