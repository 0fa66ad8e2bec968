import { WebhookVerificationError } from "./verification-error.ts";

/** The analysis as `GET /v1/analyses/{id}` returns it. `example` is true in test events only. */
export interface Analysis<Status extends string> {
  readonly id: string;
  readonly status: Status;
  readonly [member: string]: unknown;
}

interface AnalysisEvent<Name extends string, Status extends string> {
  /** The delivery's id, the same for every attempt and replay: use it to handle an event once. */
  readonly id: string;
  readonly event: Name;
  /** ISO 8601, UTC, with milliseconds. */
  readonly created_at: string;
  readonly data: Analysis<Status>;
}

export type AnalysisSucceeded = AnalysisEvent<"analysis.succeeded", "succeeded">;
export type AnalysisFailed = AnalysisEvent<"analysis.failed", "failed">;
export type WebhookEvent = AnalysisSucceeded | AnalysisFailed;

/** Maps each event to the status of its analysis. */
export type StatusOfEvent = { [Each in WebhookEvent as Each["event"]]: Each["data"]["status"] };

const STATUS_OF_EVENT = new Map<unknown, string>(
  Object.entries({
    "analysis.succeeded": "succeeded",
    "analysis.failed": "failed",
  } satisfies StatusOfEvent),
);

/** The longest that is looked at; a challenge has some 90 bytes. */
const CHALLENGE_BYTES_MAX = 1_024;

/** The text to answer; null: the body is no challenge. */
export function parseChallenge(body: Uint8Array): string | null {
  if (body.length > CHALLENGE_BYTES_MAX) return null;
  const [, text = null] = CHALLENGE.exec(new TextDecoder("utf-8", { ignoreBOM: true }).decode(body)) ?? [];
  return text;
}

/** Its exact form, so that a receiver without a JSON parser recognizes it as surely. */
const CHALLENGE = /^\{"type":"webhook\.challenge","challenge":"([0-9A-Za-z-]{1,128})"\}$/;

/** Numbers beyond 2^53 lose digits that the raw body has. @throws WebhookVerificationError `body_not_an_event` */
export function parseEvent(body: Uint8Array): WebhookEvent {
  if (parseChallenge(body) !== null) {
    throw new WebhookVerificationError(
      "body_not_an_event",
      "The signature is valid, but the body is a challenge, which asks whether this receiver wants webhooks. Pass " +
        "the same input to readChallenge first, and answer 200 with the text that it returns.",
    );
  }
  const event = parseJson(body);
  if (!isObject(event)) throw notAnEvent("it is not a JSON object");
  for (const member of ["id", "created_at"]) {
    if (!isText(event[member])) throw notAnEvent(`${member} is not a non-empty string`);
  }
  const status = STATUS_OF_EVENT.get(event.event);
  if (status === undefined) {
    throw notAnEvent("event is neither analysis.succeeded nor analysis.failed");
  }
  const data = event.data;
  if (!isObject(data) || !isText(data.id)) throw notAnEvent("data is not an analysis with an id");
  if (data.status !== status) throw notAnEvent(`data.status is not "${status}", which its event requires`);
  return event as unknown as WebhookEvent;
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
  } catch {
    // No `cause`: it would quote the body, and customer data does not belong in logs.
    throw notAnEvent("it is not UTF-8 JSON");
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

function notAnEvent(finding: string): WebhookVerificationError {
  return new WebhookVerificationError(
    "body_not_an_event",
    `The signature is valid, but the body is not an event known to this version of the library: ${finding}. ` +
      "Update the library, or use verifySignature to check the bytes alone.",
  );
}
