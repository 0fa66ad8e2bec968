import { isIPv6 } from "node:net";

/** An IPv4 address, or the /64 of an IPv6 address, because a subscriber controls at least that many. */
export function networkOf(address: string): string {
  const plain = plainAddress(address);
  return isIPv6(plain) ? `${firstFourGroups(plain)}::/64` : plain;
}

/** Without an IPv6 zone; an IPv4 address that a socket of both families shows as `::ffff:192.0.2.1`, as IPv4. */
export function plainAddress(address: string): string {
  const unzoned = address.split("%", 1)[0] ?? address;
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(unzoned)?.[1] ?? unzoned;
}

function firstFourGroups(address: string): string {
  // In its canonical form: without leading zeros, or a dotted quad at the end.
  const [head = "", tail = ""] = new URL(`http://[${address}]`).hostname.slice(1, -1).split("::");
  const before = head.split(":").filter(Boolean);
  const after = tail.split(":").filter(Boolean);
  const zeros = new Array<string>(8 - before.length - after.length).fill("0");
  return [...before, ...zeros, ...after].slice(0, 4).join(":");
}
