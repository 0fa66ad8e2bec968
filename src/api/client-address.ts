import { isIPv6 } from "node:net";

/**
 * The bucket that a client without a key is counted in: its IPv4 address, or the /64 that its IPv6 address is of,
 * because one subscriber has at least that many addresses at will.
 */
export function addressBucket(address: string): string {
  const unzoned = address.split("%", 1)[0] ?? address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(unzoned);
  if (mapped) return `address:${mapped[1]}`;
  return `address:${isIPv6(unzoned) ? `${firstFourGroups(unzoned)}::/64` : unzoned}`;
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
