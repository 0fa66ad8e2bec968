import { type EventName, STATUS_OF_EVENT } from "../model/events.ts";
import type { StatusOfEvent } from "../signing/event.ts";

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

/** The receiver library is a package of its own with its own list of events; this compiles only while both agree. */
const statusOfEvent: StatusOfEvent = STATUS_OF_EVENT;

/**
 * An example analysis, marked with `"example":true`.
 * @param more additional members as JSON text: `"pages":3`
 */
export function exampleAnalysis(event: EventName, id: string, more = '"pages":3'): string {
  return `{"id":"${id}","status":"${statusOfEvent[event]}","example":true,${more}}`;
}
