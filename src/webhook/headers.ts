import { SIGNATURE_HEADER, type SigningKey, signatureHeader } from "../signing/index.ts";

/** The signature of exactly these bytes, one per key. `nowMs` is milliseconds since the epoch. */
export function webhookSignature(body: Uint8Array, keys: readonly SigningKey[], nowMs: number): string {
  return signatureHeader({ timestampSeconds: Math.floor(nowMs / 1_000), body, keys });
}

export type WebhookHeaders = {
  /** Null: send none (only probes do). */
  readonly signature: string | null;
  /** The trace in which the event was published; null if there is none. */
  readonly traceparent: string | null;
  /** Marks a probe, so that the receiver's owner can tell it from deliveries in the logs. */
  readonly isProbe?: boolean;
};

/** All headers of a webhook except those HTTP itself adds. */
export function webhookHeaders({
  signature,
  traceparent,
  isProbe = false,
}: WebhookHeaders): Record<string, string> {
  const headers: Record<string, string> = { "content-type": "application/json", "user-agent": "Sealpost/1" };
  if (signature !== null) headers[SIGNATURE_HEADER] = signature;
  if (traceparent !== null) headers.traceparent = traceparent;
  if (isProbe) headers["sealpost-probe"] = "1";
  return headers;
}
