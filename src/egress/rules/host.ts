/** RFC 1035: what DNS can carry. */
const NAME_LENGTH_MAX = 253;
const LABEL_LENGTH_MAX = 63;

/**
 * Names that are never public, with everything under them. SQL refuses the same (`webhook_url_fault`); a test compares.
 * Top levels that are reserved (RFC 2606, 6761, 6762, 7686, 8375, 9476; ICANN's .internal and those it will not
 * delegate), or used inside offices and clusters; and clouds' metadata services that have names elsewhere.
 */
export const PRIVATE_NAMES: ReadonlySet<string> = new Set([
  "localhost",
  "localdomain",
  "local",
  "internal",
  "intranet",
  "home",
  "home.arpa",
  "lan",
  "corp",
  "mail",
  "private",
  "cluster.local",
  "svc",
  "consul",
  "test",
  "example",
  "invalid",
  "alt",
  "onion",
  "arpa",
  "metadata.goog",
  "metadata.tencentyun.com",
  "metadata.platformequinix.com",
  "metadata.packet.net",
  "api.metadata.cloud.ibm.com",
]);

export type NameFault = { kind: "malformed" | "not_public"; what: string };

/**
 * What is wrong with a host name as far as that is known without DNS, or null. Takes it as a parsed `URL` has it (lower
 * case, punycode). The form is judged first, then whether the name can be public.
 */
export function findNameFault(name: string): NameFault | null {
  return findFormFault(name) ?? findPrivateName(name);
}

/** The rules on form alone, which hold for unsafely allowed names too. */
export function findFormFault(name: string): NameFault | null {
  if (name.length > NAME_LENGTH_MAX) return malformed(`is longer than ${NAME_LENGTH_MAX} characters`);
  if (name.endsWith(".")) return malformed("ends in a dot");
  // The URL parser accepts `*`, `{`, `$` and more, which no public host has; some do have an underscore.
  if (!/^[a-z0-9._-]*$/.test(name))
    return malformed("contains characters other than letters, digits, - and _");
  for (const label of name.split(".")) {
    if (label.length === 0) return malformed("has an empty part between its dots");
    if (label.length > LABEL_LENGTH_MAX)
      return malformed(`has a part longer than ${LABEL_LENGTH_MAX} characters`);
  }
  return null;
}

function findPrivateName(name: string): NameFault | null {
  const labels = name.split(".");
  if (labels.length === 1)
    return { kind: "not_public", what: "has no domain, so it can only be a local name" };
  const endings = labels.map((_, first) => labels.slice(first).join("."));
  const ending = endings.find((each) => PRIVATE_NAMES.has(each));
  if (ending === undefined) return null;
  return { kind: "not_public", what: `belongs to "${ending}", which is not part of the public internet` };
}

function malformed(what: string): NameFault {
  return { kind: "malformed", what };
}

/** An address without the brackets that an IPv6 address has in a URL: certificates and sockets take it bare. */
export function bareHost(hostname: string): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

/**
 * Ports from 1024 up of databases, caches, queues, chat and machine control: a POST could be read as commands there,
 * and no webhook receiver listens on them. SQL refuses the same (`webhook_url_fault`).
 */
const REFUSED_PORTS: readonly number[] = [
  1433, 1521, 2049, 2181, 2375, 2376, 2377, 2378, 2379, 2380, 3306, 3389, 4369, 5432, 5671, 5672, 5900, 5984,
  6379, 6443, 6660, 6661, 6662, 6663, 6664, 6665, 6666, 6667, 6668, 6669, 6697, 8086, 8500, 9042, 9092, 9200,
  9300, 10250, 10255, 11211, 15672, 25672, 27017, 27018, 27019, 50000,
];

const HTTPS_PORT = 443;
const FIRST_UNPRIVILEGED_PORT = 1024;
const LAST_PORT = 65_535;

export function isPortAllowed(port: number): boolean {
  if (port === HTTPS_PORT) return true;
  if (!Number.isInteger(port) || port < FIRST_UNPRIVILEGED_PORT || port > LAST_PORT) return false;
  return !REFUSED_PORTS.includes(port);
}

/** The port of a parsed https URL, whose `port` is empty for the default one. */
export function portOf(url: URL): number {
  return url.port === "" ? HTTPS_PORT : Number(url.port);
}

/**
 * Targets that the rules for names, addresses and ports do not apply to, since tests, the demo and benchmarks need
 * receivers on loopback. HTTPS and a valid certificate are always required.
 */
export type UnsafeAllowedTargets = {
  /** `host:port` and `*.name:port`, in lower case. */
  readonly entries: readonly string[];
};

/** The safe default: deny. */
export const NO_UNSAFE_ALLOWED_TARGETS: UnsafeAllowedTargets = { entries: [] };

/**
 * Reads entries like `host:port` and `*.name:port`; IPv6 addresses stand in brackets. An entry must be spelled as the
 * URL parser spells it, so that what an operator reads is what counts.
 * @throws Error naming the entry that is malformed
 */
export function parseUnsafeAllowedTargets(texts: readonly string[]): UnsafeAllowedTargets {
  const entries = texts.map((text) => text.toLowerCase());
  const malformed = entries.find((entry) => !isEntry(entry));
  if (malformed === undefined) return { entries };
  throw new Error(`"${malformed}" is not of the form host:port or *.name:port.`);
}

/** Whether exactly this host and port are lifted. An IPv6 address may come with or without its brackets. */
export function allowsUnsafely({ entries }: UnsafeAllowedTargets, hostname: string, port: number): boolean {
  const host = hostname.includes(":") && !hostname.startsWith("[") ? `[${hostname}]` : hostname;
  const hostAndPort = `${host}:${port}`;
  return entries.some((entry) =>
    entry.startsWith("*.") ? isUnder(hostAndPort, entry.slice(1)) : hostAndPort === entry,
  );
}

function isUnder(hostAndPort: string, ending: string): boolean {
  return hostAndPort.length > ending.length && hostAndPort.endsWith(ending);
}

function isEntry(text: string): boolean {
  const [, wildcard, host, port] = /^(\*\.)?(\[[0-9a-f:.]+\]|[a-z0-9._-]+):([1-9]\d{0,4})$/.exec(text) ?? [];
  if (host === undefined || Number(port) > LAST_PORT) return false;
  // Under an address there are no names.
  if (wildcard !== undefined && /^(?:\[|[\d.]+$)/.test(host)) return false;
  return URL.parse(`https://${host}/`)?.hostname === host;
}
