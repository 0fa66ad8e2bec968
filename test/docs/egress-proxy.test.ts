import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  createAddressSet,
  REFUSED_IPV4_RANGES,
  REFUSED_IPV6_RANGES,
} from "../../src/egress/rules/address.ts";

/** The ranges that a file in docs/egress-proxy refuses, in its own notation. */
function rangesIn(file: string, pattern: RegExp): readonly string[] {
  const text = readFileSync(new URL(`../../docs/egress-proxy/${file}`, import.meta.url), "utf8");
  return [...text.matchAll(pattern)].flatMap(([, address = "", bits]) =>
    bits === undefined ? address.split(" ") : [`${address}/${bits}`],
  );
}

const FILES = [
  ["squid.conf", rangesIn("squid.conf", /^acl not_public dst (.+)$/gm)],
  ["smokescreen.yaml", rangesIn("smokescreen.yaml", /^ {2}- "(.+)"$/gm)],
  ["envoy.yaml", rangesIn("envoy.yaml", /address_prefix: "(.+)", prefix_len: (\d+) /g)],
] as const;

describe.each(FILES)("the egress proxy's configuration in %s", (_file, ranges) => {
  test("refuses what Sealpost refuses without a proxy", () => {
    const refused = [...REFUSED_IPV4_RANGES, ...REFUSED_IPV6_RANGES].map(({ cidr }) => cidr);
    expect(ranges).toEqual(expect.arrayContaining(refused));
  });

  test("refuses IPv6 beyond the public space, and no public address", () => {
    const isRefused = createAddressSet(ranges);
    const beyond = [
      "::",
      "::1",
      "::7f00:1",
      "64:ff9b::1",
      "100::1",
      "1fff::1",
      "4000::1",
      "fc00::1",
      "fe80::1",
      "ff02::1",
    ];
    expect(beyond.filter((address) => !isRefused(address))).toEqual([]);
    expect(["2000::1", "2606:4700::1", "3ffd::1", "1.1.1.1", "223.255.255.255"].filter(isRefused)).toEqual(
      [],
    );
  });
});

test("Squid is given no range that would contain all of IPv4 as Squid sees it", () => {
  const isRefused = createAddressSet(FILES[0][1].filter((range) => range.includes(":")));
  expect(isRefused("::ffff:1.1.1.1")).toBe(false);
});
