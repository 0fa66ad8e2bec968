import { REQUEST_ID_CHARS_MAX } from "./limits.ts";

const ACCEPTED = new RegExp(`^[\\x20-\\x7e]{1,${REQUEST_ID_CHARS_MAX}}$`);

/** The id that a request is known by: the caller's where it is acceptable, else a fresh one. */
export function requestIdOf(header: string | undefined, newRequestId: () => string): string {
  return header !== undefined && ACCEPTED.test(header) ? header : newRequestId();
}

/** Whether the caller sent an id that was not taken over. An empty header counts as absent. */
export function isRefusedRequestId(header: string | undefined): boolean {
  return header !== undefined && header !== "" && !ACCEPTED.test(header);
}
