/** The head of a proxy's response to CONNECT, as far as its meaning depends on it. */
export type ConnectAnswer = {
  readonly status: number;
  /** By name in lower case; of repeated fields, the last. */
  readonly fields: ReadonlyMap<string, string>;
};

/**
 * - `tunnel`: the proxy is connected to the target
 * - `target_refused`: the proxy's rules forbid the target
 * - `target_unreachable`: the proxy could not resolve the target's name or connect to it
 * - `proxy_failed`: the proxy does not serve us now, whatever the target
 */
export type ConnectMeaning = "tunnel" | "target_refused" | "target_unreachable" | "proxy_failed";

type Row = {
  readonly status: number;
  /** The row is for answers with this field only. */
  readonly field?: { readonly name: string; readonly value?: RegExp };
  readonly meaning: ConnectMeaning;
};

/**
 * What Squid, smokescreen and Envoy answer; docs/operating.md has the same by proxy. The first row that fits counts.
 * Of the fields, only those that a specification or the proxy's own documentation defines, and one that tells a bug of
 * versions that no longer change.
 */
const ROWS: readonly Row[] = [
  { status: 403, meaning: "target_refused" },
  // RFC 9110 requires this field of a proxy that wants credentials. smokescreen refuses targets without it.
  { status: 407, field: { name: "proxy-authenticate" }, meaning: "proxy_failed" },
  { status: 407, meaning: "target_refused" },
  // Squid's bug 5294: before 6.3, that is how it reports a name that cannot be resolved.
  {
    status: 500,
    field: { name: "x-squid-error", value: /^ERR_CANNOT_FORWARD\b/ },
    meaning: "target_unreachable",
  },
  { status: 502, meaning: "target_unreachable" },
  // By RFC 9110, when the proxy itself will be available again.
  { status: 503, field: { name: "retry-after" }, meaning: "proxy_failed" },
  // Envoy's circuit breaker for all targets together.
  { status: 503, field: { name: "x-envoy-overloaded" }, meaning: "proxy_failed" },
  { status: 503, meaning: "target_unreachable" },
  { status: 504, meaning: "target_unreachable" },
];

/** What no row fits is the proxy's failure: it costs the receiver no attempt, and somebody is told. */
export function meaningOf(answer: ConnectAnswer): ConnectMeaning {
  if (answer.status >= 200 && answer.status < 300) return "tunnel";
  return ROWS.find((row) => fits(row, answer))?.meaning ?? "proxy_failed";
}

function fits({ status, field }: Row, answer: ConnectAnswer): boolean {
  if (status !== answer.status) return false;
  if (field === undefined) return true;
  const value = answer.fields.get(field.name);
  return value !== undefined && (field.value?.test(value) ?? true);
}

/** The answer in `head`, which ends before the empty line; null if it is not HTTP/1. */
export function parseConnectAnswer(head: string): ConnectAnswer | null {
  const [statusLine = "", ...fieldLines] = head.split("\r\n");
  const status = /^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(statusLine)?.[1];
  if (status === undefined) return null;
  const fields = new Map<string, string>();
  for (const line of fieldLines) {
    const [, name, value] = /^([^\s:]+):(.*)$/.exec(line) ?? [];
    if (name !== undefined && value !== undefined) fields.set(name.toLowerCase(), value.trim());
  }
  return { status: Number(status), fields };
}
