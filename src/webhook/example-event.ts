import type { EventName } from "../model/events.ts";

/**
 * The text of an analysis that nobody asked for, marked as such.
 * @param more members besides, as they are to be written: `"pages": 3`
 */
export function exampleAnalysis(event: EventName, id: string, more = '"pages":3'): string {
  const status = event === "analysis.succeeded" ? "succeeded" : "failed";
  return `{"id":"${id}","status":"${status}","example":true,${more}}`;
}
