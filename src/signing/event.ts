import { WebhookVerificationError } from "./verification-error.ts";

/** The analysis as `GET /v1/analyses/{id}` answers it. `example` is true in a test event, and only there. */
export interface Analysis<Status extends string> {
  readonly id: string;
  readonly status: Status;
  readonly [member: string]: unknown;
}

interface AnalysisEvent<Name extends string, Status extends string> {
  /** The delivery's id: the same for each attempt and each replay, so the key to handle an event once. */
  readonly id: string;
  readonly event: Name;
  /** ISO 8601, UTC, with milliseconds. */
  readonly created_at: string;
  readonly data: Analysis<Status>;
}

export type AnalysisSucceeded = AnalysisEvent<"analysis.succeeded", "succeeded">;
export type AnalysisFailed = AnalysisEvent<"analysis.failed", "failed">;
export type WebhookEvent = AnalysisSucceeded | AnalysisFailed;

/** Each event with the status of its analysis. */
export type StatusOfEvent = { [Each in WebhookEvent as Each["event"]]: Each["data"]["status"] };

const STATUS_OF_EVENT = new Map<unknown, string>(
  Object.entries({
    "analysis.succeeded": "succeeded",
    "analysis.failed": "failed",
  } satisfies StatusOfEvent),
);

/**
 * The event that a verified body holds. Numbers are JavaScript's: beyond 2^53 they lose digits, in the raw body
 * they do not.
 *
 * @throws WebhookVerificationError `body_not_an_event`
 */
export function parseEvent(body: Uint8Array): WebhookEvent {
  const event = parseJson(body);
  if (!isObject(event)) throw notAnEvent("it is JSON but not an object");
  for (const member of ["id", "created_at"]) {
    if (!isText(event[member])) throw notAnEvent(`its member ${member} is not a text`);
  }
  const status = STATUS_OF_EVENT.get(event.event);
  if (status === undefined) {
    throw notAnEvent("its member event is neither analysis.succeeded nor analysis.failed");
  }
  const data = event.data;
  if (!isObject(data) || !isText(data.id)) throw notAnEvent("its member data is not an analysis with an id");
  if (data.status !== status)
    throw notAnEvent(`its member data.status is not "${status}", as its event says`);
  return event as unknown as WebhookEvent;
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
  } catch {
    // The cause would quote the body, which is the customer's and has no place in a log.
    throw notAnEvent("it is not JSON in UTF-8");
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
    `The body is rightly signed but holds no event that this version of the library knows: ${finding}. ` +
      "Update the library, or use verifySignature where the bytes alone matter.",
  );
}
