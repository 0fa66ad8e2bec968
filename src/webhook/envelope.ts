import { type EventName, STATUS_OF_EVENT } from "../model/events.ts";
import type { StatusOfEvent } from "../signing/event.ts";

/** What a webhook's body says of its event. */
export type Envelope = {
  /** The delivery's id. */
  readonly id: string;
  readonly event: EventName;
  /** Milliseconds since the epoch. */
  readonly createdAtMs: number;
  /** The analysis's text, as it is stored. */
  readonly analysisText: string;
};

/**
 * The exact bytes that are signed and sent: `{"id","event","created_at","data"}`. The analysis's text is put in as it
 * is: nothing is parsed and serialized again, so numbers past 2^53, duplicate keys and \u0000 stay as published.
 */
export function webhookBody({ id, event, createdAtMs, analysisText }: Envelope): Buffer {
  const createdAt = new Date(createdAtMs).toISOString();
  return Buffer.from(`{"id":"${id}","event":"${event}","created_at":"${createdAt}","data":${analysisText}}`);
}

/** The receiver library is published by itself and has its own list of events: this compiles only while both agree. */
const statusOfEvent: StatusOfEvent = STATUS_OF_EVENT;

/**
 * The text of an analysis that nobody asked for, marked as such.
 * @param more members besides, as they are to be written: `"pages": 3`
 */
export function exampleAnalysis(event: EventName, id: string, more = '"pages":3'): string {
  return `{"id":"${id}","status":"${statusOfEvent[event]}","example":true,${more}}`;
}
