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
  if (!/^[a-z0-9._-]*$/.test(name)) return malformed("holds characters other than letters, digits, - and _");
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
