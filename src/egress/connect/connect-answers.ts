/** The head of a proxy's response to CONNECT, as far as its meaning depends on it. */
export type ConnectAnswer = {
  readonly status: number;
  /** In lower case. */
  readonly fieldNames: ReadonlySet<string>;
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
  readonly meaning: ConnectMeaning;
  /** A status that has two meanings: with one of these fields it has the other. */
  readonly unless?: readonly string[];
};

/**
 * What Squid 5 to 7, smokescreen and Envoy answer; docs/operating.md has the same by proxy. Only fields that a
 * specification or the proxy's own documentation defines: texts and bodies are anybody's to change.
 */
const ROWS: readonly Row[] = [
  { status: 403, meaning: "target_refused" },
  // RFC 9110 requires Proxy-Authenticate of a proxy that wants credentials. smokescreen refuses targets without it.
  { status: 407, meaning: "target_refused", unless: ["proxy-authenticate"] },
  { status: 502, meaning: "target_unreachable" },
  // Retry-After (RFC 9110) and x-envoy-overloaded (Envoy's circuit breaker) say that the proxy itself is overloaded.
  { status: 503, meaning: "target_unreachable", unless: ["retry-after", "x-envoy-overloaded"] },
  { status: 504, meaning: "target_unreachable" },
];

/** What is not in the table is the proxy's failure: it costs the receiver no attempt, and somebody is told. */
export function meaningOf({ status, fieldNames }: ConnectAnswer): ConnectMeaning {
  if (status >= 200 && status < 300) return "tunnel";
  const row = ROWS.find((one) => one.status === status);
  if (row === undefined || row.unless?.some((name) => fieldNames.has(name))) return "proxy_failed";
  return row.meaning;
}

/** The answer in `head`, which ends before the empty line; null if it is not HTTP/1. */
export function parseConnectAnswer(head: string): ConnectAnswer | null {
  const [statusLine = "", ...fieldLines] = head.split("\r\n");
  const status = /^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(statusLine)?.[1];
  if (status === undefined) return null;
  const names = fieldLines.flatMap((line) => /^([^\s:]+):/.exec(line)?.[1]?.toLowerCase() ?? []);
  return { status: Number(status), fieldNames: new Set(names) };
}
