import { BlockList, isIP } from "node:net";

export type AddressVerdict = { verdict: "allow" } | { verdict: "refuse"; reason: string };

type Range = { readonly cidr: string; readonly reason: string };

/**
 * IPv4 space without public servers: the IANA special-purpose registry as of 2026-07, multicast, class E, and the
 * anycast sinks that the registry calls reachable but that never host a webhook receiver.
 */
export const REFUSED_IPV4_RANGES: readonly Range[] = [
  { cidr: "0.0.0.0/8", reason: "this network" },
  { cidr: "10.0.0.0/8", reason: "private network" },
  { cidr: "100.64.0.0/10", reason: "carrier-grade NAT" },
  { cidr: "127.0.0.0/8", reason: "loopback" },
  { cidr: "169.254.0.0/16", reason: "link-local, where clouds keep their metadata service" },
  { cidr: "172.16.0.0/12", reason: "private network" },
  { cidr: "192.0.0.0/24", reason: "IETF protocol assignments" },
  { cidr: "192.0.2.0/24", reason: "documentation" },
  { cidr: "192.31.196.0/24", reason: "AS112 anycast sink" },
  { cidr: "192.52.193.0/24", reason: "AMT relay anycast" },
  { cidr: "192.88.99.0/24", reason: "6to4 relay anycast" },
  { cidr: "192.168.0.0/16", reason: "private network" },
  { cidr: "192.175.48.0/24", reason: "AS112 anycast sink" },
  { cidr: "198.18.0.0/15", reason: "benchmarking" },
  { cidr: "198.51.100.0/24", reason: "documentation" },
  { cidr: "203.0.113.0/24", reason: "documentation" },
  { cidr: "224.0.0.0/4", reason: "multicast" },
  { cidr: "240.0.0.0/4", reason: "reserved" },
  { cidr: "168.63.129.16/32", reason: "a cloud's internal service" },
];

/** The only IPv6 space allocated to public networks; everything outside it is refused (deny by default). */
export const PUBLIC_IPV6_RANGE = "2000::/3";

/** What is in {@link PUBLIC_IPV6_RANGE} and yet not public. */
export const REFUSED_IPV6_RANGES: readonly Range[] = [
  { cidr: "2001::/23", reason: "IETF protocol assignments, Teredo among them" },
  { cidr: "2001:db8::/32", reason: "documentation" },
  { cidr: "2002::/16", reason: "6to4, which carries an IPv4 address" },
  { cidr: "2620:4f:8000::/48", reason: "AS112 anycast sink" },
  { cidr: "3fff::/20", reason: "documentation" },
  { cidr: "3ffe::/16", reason: "6bone, returned" },
];

const isRefusedIpv4 = createAddressSet(REFUSED_IPV4_RANGES.map((range) => range.cidr));
const isInPublicIpv6 = createAddressSet([PUBLIC_IPV6_RANGE]);
const isRefusedIpv6 = createAddressSet(REFUSED_IPV6_RANGES.map((range) => range.cidr));

/**
 * Says whether an address is on the public internet. Takes the usual spelling only (`192.0.2.1`, `2001:db8::1`; no
 * brackets, no zone); anything else is refused, not thrown.
 */
export function judgeAddress(address: string): AddressVerdict {
  switch (isIP(address)) {
    case 4:
      return isRefusedIpv4(address) ? refuse(reasonIn(REFUSED_IPV4_RANGES, address)) : { verdict: "allow" };
    case 6:
      if (address.includes("%")) return refuse("an IPv6 zone, which has a meaning on one machine only");
      if (!isInPublicIpv6(address)) return refuse(`outside ${PUBLIC_IPV6_RANGE}, the public IPv6 space`);
      return isRefusedIpv6(address) ? refuse(reasonIn(REFUSED_IPV6_RANGES, address)) : { verdict: "allow" };
    default:
      return refuse("not an IP address");
  }
}

/**
 * A membership test for a list of addresses and CIDR ranges of both families. What is no address is no member.
 *
 * net.BlockList does the arithmetic but fails open: an address with the wrong family is simply "not listed", and an
 * IPv6 range that covers ::ffff:0:0/96 holds every IPv4 address. So each family has its own list, and isIP decides
 * which.
 * @throws Error for an entry that is neither address nor range
 */
export function createAddressSet(entries: readonly string[]): (address: string) => boolean {
  const ipv4 = rangeList(entries.filter((entry) => !entry.includes(":")));
  const ipv6 = rangeList(entries.filter((entry) => entry.includes(":")));
  return (address) => {
    const family = isIP(address);
    if (family === 4) return ipv4.check(address, "ipv4");
    return family === 6 && ipv6.check(address, "ipv6");
  };
}

/** Whether two spellings name the same address: the kernel and DNS may shorten an IPv6 address differently. */
export function isSameAddress(one: string, other: string): boolean {
  if (isIP(one) === 0 || one.includes("%")) return false;
  return one === other || createAddressSet([one])(other);
}

function rangeList(entries: readonly string[]): BlockList {
  const list = new BlockList();
  for (const entry of entries) {
    const [network, prefix, ...rest] = entry.split("/") as [string, ...string[]];
    const family = isIP(network);
    const bitsMax = family === 4 ? 32 : 128;
    const bits = prefix === undefined ? bitsMax : /^\d{1,3}$/.test(prefix) ? Number(prefix) : Number.NaN;
    if (family === 0 || network.includes("%") || rest.length > 0 || !(bits <= bitsMax)) {
      throw new Error(`"${entry}" is neither an IP address nor a range like 192.0.2.0/24 or 2001:db8::/32.`);
    }
    list.addSubnet(network, bits, family === 4 ? "ipv4" : "ipv6");
  }
  return list;
}

/** Only a refusal needs to know which range it was. */
function reasonIn(ranges: readonly Range[], address: string): string {
  return ranges.find((range) => createAddressSet([range.cidr])(address))!.reason;
}

function refuse(reason: string): AddressVerdict {
  return { verdict: "refuse", reason };
}
