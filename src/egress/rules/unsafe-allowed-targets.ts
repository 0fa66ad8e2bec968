/**
 * Targets that the rules for names, addresses and ports do not apply to, since tests, the demo and benchmarks need
 * receivers on loopback. HTTPS and a valid certificate are always required.
 */
export type UnsafeAllowedTargets = {
  /** The entries in lower case. */
  readonly entries: readonly string[];
  readonly exact: ReadonlySet<string>;
  /** `.name:port` for each `*.name:port`. */
  readonly underNames: readonly string[];
};

/** The safe default: deny. */
export const NO_UNSAFE_ALLOWED_TARGETS: UnsafeAllowedTargets = parseUnsafeAllowedTargets([]);

/**
 * Reads entries like `host:port` and `*.name:port`; IPv6 addresses stand in brackets. An entry must be spelled as the
 * URL parser spells it, so that what an operator reads is what counts.
 * @throws Error naming the entry that is malformed
 */
export function parseUnsafeAllowedTargets(texts: readonly string[]): UnsafeAllowedTargets {
  const entries = texts.map((text) => text.toLowerCase());
  const exact = new Set<string>();
  const underNames: string[] = [];
  for (const entry of entries) {
    const isWildcard = entry.startsWith("*.");
    const hostAndPort = isWildcard ? entry.slice(2) : entry;
    if (!isHostAndPort(hostAndPort) || (isWildcard && !isNameAndPort(hostAndPort))) {
      throw new Error(`"${entry}" is not of the form host:port or *.name:port.`);
    }
    if (isWildcard) underNames.push(`.${hostAndPort}`);
    else exact.add(hostAndPort);
  }
  return { entries, exact, underNames };
}

/** Whether exactly this host and port are lifted. An IPv6 address may come with or without its brackets. */
export function allowsUnsafely(targets: UnsafeAllowedTargets, hostname: string, port: number): boolean {
  const host = hostname.includes(":") && !hostname.startsWith("[") ? `[${hostname}]` : hostname;
  const hostAndPort = `${host}:${port}`;
  return targets.exact.has(hostAndPort) || targets.underNames.some((ending) => isUnder(hostAndPort, ending));
}

function isUnder(hostAndPort: string, ending: string): boolean {
  return hostAndPort.length > ending.length && hostAndPort.endsWith(ending);
}

function isHostAndPort(text: string): boolean {
  const [, host, port] = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+):([1-9]\d{0,4})$/.exec(text) ?? [];
  if (host === undefined || Number(port) > 65_535) return false;
  const url = URL.parse(`https://${host}/`);
  return url !== null && url.hostname === host;
}

function isNameAndPort(text: string): boolean {
  return !text.startsWith("[") && !/^[\d.]+:/.test(text);
}
