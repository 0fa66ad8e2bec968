import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  createAddressSet,
  isSameAddress,
  judgeAddress,
  PUBLIC_IPV6_RANGE,
  REFUSED_IPV4_RANGES,
  REFUSED_IPV6_RANGES,
} from "../../../src/egress/rules/address.ts";

// The test's own arithmetic, on whole numbers, so that it shares nothing with what it tests.
const bitsOf = (family: 4 | 6) => (family === 4 ? 32n : 128n);

function toNumber(address: string): bigint {
  if (!address.includes(":")) return address.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n);
  const [head = "", tail] = address.split("::");
  const groups = (text: string) => (text === "" ? [] : text.split(":"));
  const before = groups(head);
  const after = tail === undefined ? [] : groups(tail);
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => "0");
  return [...before, ...zeros, ...after].reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n);
}

function toAddress(number: bigint, family: 4 | 6): string {
  const size = family === 4 ? 8n : 16n;
  const parts: string[] = [];
  for (let shift = bitsOf(family) - size; shift >= 0n; shift -= size) {
    parts.push(((number >> shift) & ((1n << size) - 1n)).toString(family === 4 ? 10 : 16));
  }
  return parts.join(family === 4 ? "." : ":");
}

function edgesOf(cidr: string): { family: 4 | 6; first: bigint; last: bigint } {
  const [network = "", prefix] = cidr.split("/");
  const family = network.includes(":") ? 6 : 4;
  const first = toNumber(network);
  return { family, first, last: first + (1n << (bitsOf(family) - BigInt(prefix ?? 0))) - 1n };
}

const ranges = [...REFUSED_IPV4_RANGES, ...REFUSED_IPV6_RANGES].map((range) => range.cidr);

const edges = ranges.map(edgesOf);

function isInARange(number: bigint, family: 4 | 6): boolean {
  return edges.some((range) => range.family === family && range.first <= number && number <= range.last);
}

const verdictOf = (address: string) => judgeAddress(address).verdict;

describe("judgeAddress", () => {
  it.each(ranges)("refuses both ends of %s and names the reason", (cidr) => {
    const { family, first, last } = edgesOf(cidr);
    for (const number of [first, last]) {
      expect(judgeAddress(toAddress(number, family))).toEqual({
        verdict: "refuse",
        reason: expect.stringMatching(/\w{6}/),
      });
    }
  });

  // Neighbours that lie in another refused range, or outside the public IPv6 space, are no neighbours.
  const publicSpace = edgesOf(PUBLIC_IPV6_RANGE);
  const neighbours = ranges.flatMap((cidr) => {
    const { family, first, last } = edgesOf(cidr);
    return [first - 1n, last + 1n]
      .filter((number) => number >= 0n && number < 1n << bitsOf(family) && !isInARange(number, family))
      .filter((number) => family === 4 || (number >= publicSpace.first && number <= publicSpace.last))
      .map((number) => ({ cidr, address: toAddress(number, family) }));
  });
  it.each(neighbours)("allows $address, the neighbour of $cidr", ({ address }) => {
    expect(judgeAddress(address)).toEqual({ verdict: "allow" });
  });
  it("knows the neighbours of nearly every range", () => {
    expect(neighbours.length).toBeGreaterThan(40);
  });

  it("allows the last public IPv6 address and refuses the ones around the public space", () => {
    expect(verdictOf(toAddress(publicSpace.last, 6))).toBe("allow");
    expect(verdictOf(toAddress(publicSpace.last + 1n, 6))).toBe("refuse");
    expect(verdictOf(toAddress(publicSpace.first, 6))).toBe("allow");
    expect(verdictOf(toAddress(publicSpace.first - 1n, 6))).toBe("refuse");
  });

  it.each([
    ["mapped loopback", "::ffff:127.0.0.1"],
    ["mapped public address", "::ffff:8.8.8.8"],
    ["IPv4-compatible loopback", "::7f00:1"],
    ["IPv4-translated", "::ffff:0:7f00:1"],
    ["NAT64", "64:ff9b::808:808"],
    ["local NAT64", "64:ff9b:1::808:808"],
    ["6to4", "2002:808:808::1"],
    ["Teredo", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    ["SRv6", "5f00::1"],
    ["unique local", "fd00::1"],
    ["link-local", "fe80::1"],
    ["site-local", "fec0::1"],
    ["multicast", "ff02::1"],
    ["loopback", "::1"],
    ["unspecified", "::"],
  ])("refuses IPv6 in the form of %s", (_, address) => {
    expect(verdictOf(address)).toBe("refuse");
  });

  it.each(["fe80::1%eth0", "2606:4700:4700::1111%eth0", "::%1"])("refuses the zone of %s", (address) => {
    expect(judgeAddress(address)).toEqual({ verdict: "refuse", reason: expect.stringMatching(/ zone/) });
  });

  it("says which space a refused IPv6 address is outside of", () => {
    expect(judgeAddress("fd00::1")).toMatchObject({ reason: expect.stringContaining("2000::/3") });
  });

  it.each([
    "",
    "127.1",
    "0x7f.0.0.1",
    "1.1.1.1 ",
    "1.1.1.1\n",
    "01.1.1.1",
    "[2606:4700::1]",
    "example.com",
    "1.1.1",
  ])("refuses %j, which is no address in its usual spelling", (text) => {
    expect(judgeAddress(text)).toEqual({ verdict: "refuse", reason: "not an IP address" });
  });

  it("agrees with whole-number arithmetic on any IPv4 address", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: (1n << 32n) - 1n }), (number) => {
        expect(verdictOf(toAddress(number, 4))).toBe(isInARange(number, 4) ? "refuse" : "allow");
      }),
      { numRuns: 2_000 },
    );
  });

  it("agrees with whole-number arithmetic on any IPv6 address, listed ones and their surroundings above all", () => {
    const anywhere = fc.bigInt({ min: 0n, max: (1n << 128n) - 1n });
    const nearARange = fc
      .tuple(
        fc.constantFrom(...ranges.filter((cidr) => cidr.includes(":"))),
        fc.bigInt({ min: -3n, max: 3n }),
        fc.boolean(),
      )
      .map(([cidr, distance, atEnd]) => edgesOf(cidr)[atEnd ? "last" : "first"] + distance);
    fc.assert(
      fc.property(fc.oneof(anywhere, nearARange), (number) => {
        const isPublic = publicSpace.first <= number && number <= publicSpace.last && !isInARange(number, 6);
        expect(verdictOf(toAddress(number, 6))).toBe(isPublic ? "allow" : "refuse");
      }),
      { numRuns: 2_000 },
    );
  });

  it("refuses whatever is not an address, without throwing", () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        fc.pre(!/^[\d.]+$|:/.test(text));
        expect(verdictOf(text)).toBe("refuse");
      }),
    );
  });
});

describe("createAddressSet", () => {
  const isOurs = createAddressSet(["8.8.8.0/24", "9.9.9.9", "2606:4700::/32", "2a00::1"]);

  it.each(["8.8.8.0", "8.8.8.255", "9.9.9.9", "2606:4700:0::7", "2606:4700:FFFF::", "2a00:0:0::1"])(
    "holds %s",
    (address) => {
      expect(isOurs(address)).toBe(true);
    },
  );
  it.each(["8.8.7.255", "8.8.9.0", "9.9.9.8", "2606:4701::", "2a00::2", "", "8.8.8"])(
    "does not hold %j",
    (address) => {
      expect(isOurs(address)).toBe(false);
    },
  );
  it("keeps the families apart even for a range that covers the mapped addresses", () => {
    expect(createAddressSet(["::/0"])("1.1.1.1")).toBe(false);
  });
  it.each(["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8/8", "2001:db8::/129", "fe80::1%lo", "host"])(
    "does not take %j for an entry",
    (entry) => {
      expect(() => createAddressSet([entry])).toThrow(/neither an IP address nor a range/);
    },
  );
});

describe("isSameAddress", () => {
  it.each([
    ["1.1.1.1", "1.1.1.1", true],
    ["2606:4700::1", "2606:4700:0:0:0:0:0:1", true],
    ["2606:4700::a", "2606:4700::A", true],
    ["1.1.1.1", "1.1.1.2", false],
    ["1.1.1.1", "::ffff:1.1.1.1", false],
    ["nobody", "nobody", false],
    ["fe80::1%lo", "fe80::1%lo", false],
  ])("of %s and %s is %s", (one, other, same) => {
    expect(isSameAddress(one, other)).toBe(same);
    expect(isSameAddress(other, one)).toBe(same);
  });
});
