import type { EventName } from "../model/events.ts";

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
