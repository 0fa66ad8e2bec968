/** The two events that there are. */
export type EventName = "analysis.succeeded" | "analysis.failed";

/**
 * The text of an analysis that nobody asked for, marked as such.
 * @param more members besides, as they are to be written: `"pages": 3`
 */
export function exampleAnalysis(event: EventName, id: string, more = '"pages":3'): string {
  const status = event === "analysis.succeeded" ? "succeeded" : "failed";
  return `{"id":"${id}","status":"${status}","example":true,${more}}`;
}

/** The bytes of a webhook as the dispatcher sends them, with the analysis's text put in as it is. */
export function eventBody(event: {
  readonly id: string;
  readonly event: EventName;
  /** Milliseconds since the epoch. */
  readonly createdAtMs: number;
  readonly analysis: string;
}): Buffer {
  const createdAt = new Date(event.createdAtMs).toISOString();
  return Buffer.from(
    `{"id":"${event.id}","event":"${event.event}","created_at":"${createdAt}","data":${event.analysis}}`,
  );
}
