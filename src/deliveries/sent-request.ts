import { endsBeforeSending } from "../model/error-codes.ts";
import { createdAtMs } from "../store/day.ts";
import type { FoundDelivery, LoggedAttempt, SecretLife } from "../store/deliveries.ts";
import { webhookBody } from "../webhook/envelope.ts";
import { webhookHeaders } from "../webhook/headers.ts";

/**
 * The headers of an attempt's request, as they were sent, but for the signatures: `v1` is in their place, because a log
 * that shows them would let its readers post the webhook again. Whoever has the secret and the body can compute them.
 *
 * Nothing of it is stored: all but the signature's time is the same for every attempt, and that time is its start.
 * Null: nothing was sent, or when it was signed is not known (the dispatcher died).
 */
export function sentHeaders(
  { delivery, body, secrets }: Pick<FoundDelivery, "delivery" | "body" | "secrets">,
  { startedAtMs, targetUrl, outcome, errorCode }: LoggedAttempt,
): Record<string, string> | null {
  if (targetUrl === null || outcome === "interrupted") return null;
  if (errorCode !== null && endsBeforeSending(errorCode)) return null;
  const signatures = Array.from({ length: signaturesAt(secrets, startedAtMs) }, () => "v1=…");
  const signature = [`t=${Math.floor(startedAtMs / 1_000)}`, ...signatures].join(",");
  const { id, event } = delivery;
  const frame = webhookBody({ id, event, createdAtMs: createdAtMs(id), analysisText: "" });
  return {
    host: new URL(targetUrl).host,
    connection: "keep-alive",
    ...webhookHeaders({ signature, traceparent: body?.traceparent ?? null }),
    ...(body === null ? {} : { "content-length": String(frame.length + body.analysisBytes) }),
  };
}

/** Two while a rotation's overlap lasts. */
function signaturesAt(secrets: readonly SecretLife[], atMs: number): number {
  const valid = secrets.filter(
    ({ createdAtMs, expiresAtMs }) => createdAtMs <= atMs && (expiresAtMs === null || expiresAtMs > atMs),
  );
  return Math.min(Math.max(valid.length, 1), 2);
}
