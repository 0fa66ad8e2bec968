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
  const [head = "", tail] = address.split("::");
  const groups = head === "" ? [] : head.split(":");
  if (tail !== undefined) {
    const after = tail === "" ? [] : tail.split(":");
    // A dotted quad at the end stands for two groups.
    const length = groups.length + after.length + (tail.includes(".") ? 1 : 0);
    groups.push(...new Array<string>(8 - length).fill("0"), ...after);
  }
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":");
}
