/** Analyses are numbered from 1; 0 stands for one that nobody times. */
export const SEQUENCE_DIGITS = 7;

/** What is around the analysis in a delivery's body: id, event, created_at, data. */
const ENVELOPE_BYTES = 122;
const BODY_BYTES = 1_024;

/**
 * The text of an analysis whose delivery has a body of 1,024 bytes. The sequence number stands last and has a fixed
 * width, so that a receiver finds it without parsing.
 * @param id unique within its account, ASCII
 */
export function analysisText(id: string, sequence: number): string {
  const head = `{"id":"${id}","status":"succeeded","text":"`;
  const tail = `","sequence":1${String(sequence).padStart(SEQUENCE_DIGITS, "0")}}`;
  return head + "m".repeat(BODY_BYTES - ENVELOPE_BYTES - head.length - tail.length) + tail;
}
