import { SIGNATURE_HEADER, type SigningKey, signatureHeader } from "../signing/index.ts";

/** The signature over exactly these bytes, by each key. `nowMs` is milliseconds since the epoch. */
export function webhookSignature(body: Uint8Array, keys: readonly SigningKey[], nowMs: number): string {
  return signatureHeader({ timestampSeconds: Math.floor(nowMs / 1_000), body, keys });
}

export type WebhookHeaders = {
  /** Null: none is sent, which only a probe does. */
  readonly signature: string | null;
  /** The trace that published the event; null: none is known. */
  readonly traceparent: string | null;
  /** A probe and not a delivery, marked so that a receiver's owner can tell it in the logs. */
  readonly isProbe?: boolean;
};

/** Every header of a webhook but those of HTTP itself. */
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
