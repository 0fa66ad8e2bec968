/** The header's one form (W3C Trace Context): version, trace id, parent id, flags; ids of zeros say nothing. */
const FORM = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** The caller's trace. Null for none, and for one that is malformed: a trace must not be what makes a request fail. */
export function readTraceparent(header: string | readonly string[] | undefined): string | null {
  return typeof header === "string" && FORM.test(header) ? header : null;
}
