import { type EventName, STATUS_OF_EVENT } from "../base/model/events.ts";
import type { PostResult } from "../egress/post/result.ts";
import type { StatusOfEvent } from "../signing/event.ts";
import {
  importSigningKey,
  importStandardKey,
  SIGNATURE_HEADER,
  type SigningKey,
  signatureHeader,
  standardSignatureHeaders,
} from "../signing/index.ts";

/** The signature of exactly these bytes, one per key. `nowMs` is milliseconds since the epoch. */
export function webhookSignature(body: Uint8Array, keys: readonly SigningKey[], nowMs: number): string {
  return signatureHeader({ timestampSeconds: Math.floor(nowMs / 1_000), body, keys });
}

/** A signing secret as the key of either scheme. */
export type WebhookKey = { readonly own: SigningKey; readonly standard: SigningKey | null };

export function importWebhookKey(secret: string): WebhookKey {
  return { own: importSigningKey(secret), standard: importStandardKey(secret) };
}

/** Every header that signs exactly these bytes. `id`: of the message, for Standard Webhooks; null: without them. */
export function signedHeaders(
  body: Uint8Array,
  keys: readonly WebhookKey[],
  nowMs: number,
  id: string | null,
): Pick<WebhookHeaders, "signature" | "standard"> {
  const own = keys.map((key) => key.own);
  const signature = webhookSignature(body, own, nowMs);
  // Every secret that is made here can be a key of both.
  const standard = keys.flatMap((key) => key.standard ?? []);
  if (id === null || standard.length === 0) return { signature };
  const timestampSeconds = Math.floor(nowMs / 1_000);
  return { signature, standard: standardSignatureHeaders({ id, timestampSeconds, body, keys: standard }) };
}

export type WebhookHeaders = {
  /** Null: send none (only probes do). */
  readonly signature: string | null;
  /** Those of Standard Webhooks; absent: without them. */
  readonly standard?: Readonly<Record<string, string>> | undefined;
  /** The endpoint's own. */
  readonly added?: Readonly<Record<string, string>> | undefined;
  /** The trace in which the event was published; null if there is none. */
  readonly traceparent: string | null;
  /** Where the installation says what it is; absent: nowhere. */
  readonly publicUrl?: string | null | undefined;
  /** Marks a probe, so that the receiver's owner can tell it from deliveries in the logs. */
  readonly isProbe?: boolean;
};

/** The page for whoever gets webhooks without having asked for them. */
export const ABOUT_PATH = "/about-webhooks";

/** All headers of a webhook except those HTTP itself adds. */
export function webhookHeaders({
  signature,
  standard,
  added,
  traceparent,
  publicUrl,
  isProbe = false,
}: WebhookHeaders): Record<string, string> {
  const about = publicUrl ? ` (+${publicUrl}${ABOUT_PATH})` : "";
  const headers: Record<string, string> = {
    ...added,
    ...standard,
    "content-type": "application/json",
    "user-agent": `Sealpost/1${about}`,
  };
  if (signature !== null) headers[SIGNATURE_HEADER] = signature;
  if (traceparent !== null) headers.traceparent = traceparent;
  if (isProbe) headers["sealpost-probe"] = "1";
  return headers;
}

/** The contents of a webhook's body. */
export type Envelope = {
  /** The delivery's id. */
  readonly id: string;
  readonly event: EventName;
  /** Milliseconds since the epoch. */
  readonly createdAtMs: number;
  /** The analysis exactly as stored. */
  readonly analysisText: string;
};

/**
 * The exact bytes that are signed and sent: `{"id","event","created_at","data"}`. The analysis is inserted verbatim,
 * never parsed and reserialized, so numbers past 2^53, duplicate keys and \u0000 stay as published.
 */
export function webhookBody({ id, event, createdAtMs, analysisText }: Envelope): Buffer {
  const createdAt = new Date(createdAtMs).toISOString();
  return Buffer.from(`{"id":"${id}","event":"${event}","created_at":"${createdAt}","data":${analysisText}}`);
}

/** The id of a body that webhookBody has made. */
export function webhookId(body: Buffer): string {
  return JSON.parse(body.toString("latin1", 6, 44));
}

/** What asks a receiver whether it wants webhooks. Receivers' recipes know it by exactly this form. */
export function challengeBody(text: string): Buffer {
  return Buffer.from(`{"type":"webhook.challenge","challenge":"${text}"}`);
}

/** In place of an endpoint's secret values, where a receiver sends them back. */
export const HIDDEN = "[secret]";

/**
 * Whether a receiver's answer confirms the challenge: a 2xx whose body is the text, or a JSON object with it. One with
 * a `type` is an echo of what was sent, by a host that has understood nothing; so may be one where a word was hidden.
 */
export function confirmsChallenge(text: string, answer: Pick<PostResult, "statusCode" | "responseExcerpt">) {
  const { statusCode, responseExcerpt } = answer;
  if (statusCode === null || statusCode < 200 || statusCode > 299) return false;
  const answered = responseExcerpt?.trim() ?? "";
  if (answered === text) return true;
  try {
    const { challenge, type } = JSON.parse(answered) ?? {};
    return challenge === text && type === undefined && !answered.includes(HIDDEN);
  } catch {
    return false;
  }
}

/** The receiver library is a package of its own with its own list of events; this compiles only while both agree. */
const statusOfEvent: StatusOfEvent = STATUS_OF_EVENT;

/** An example analysis, marked with `"example":true`. `more`: additional members as JSON text. */
export function exampleAnalysis(event: EventName, id: string, more = '"pages":3'): string {
  return `{"id":"${id}","status":"${statusOfEvent[event]}","example":true,${more}}`;
}
