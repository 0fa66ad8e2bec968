import { describe, expect, it } from "vitest";
import { allowsUnsafely, parseUnsafeAllowedTargets } from "../../../src/egress/rules/host.ts";

describe("parseUnsafeAllowedTargets", () => {
  it("lifts nothing for no entries", () => {
    const targets = parseUnsafeAllowedTargets([]);
    expect(targets.entries).toEqual([]);
    expect(allowsUnsafely(targets, "localhost", 443)).toBe(false);
    expect(allowsUnsafely(targets, "", 0)).toBe(false);
  });

  it("keeps the entries, in lower case", () => {
    expect(parseUnsafeAllowedTargets(["Localhost:8443", "*.Test.example:1"]).entries).toEqual([
      "localhost:8443",
      "*.test.example:1",
    ]);
  });

  it.each([
    "",
    " ",
    " localhost:443",
    "localhost:443\n",
    "localhost",
    "localhost:",
    ":443",
    "localhost:0",
    "localhost:0443",
    "localhost:65536",
    "localhost:x",
    "localhost:443/",
    "https://localhost:443",
    "*:443",
    "*.:443",
    "*",
    "*.*.example.com:443",
    "a.*.example.com:443",
    "*.127.0.0.1:443",
    "*.0x7f.1:443",
    "*.[::1]:443",
    "127.1:443",
    "0x7f000001:443",
    "::1:443",
    "[0:0::1]:443",
    "user@localhost:443",
    "bücher.example:443",
    "local host:443",
    "localhost:443,",
    ",",
    "localhost:443;other:443",
  ])("does not take %j", (text) => {
    expect(() => parseUnsafeAllowedTargets([text])).toThrow(/is not of the form host:port/);
  });

  it("names the entry that is wrong", () => {
    expect(() => parseUnsafeAllowedTargets(["localhost:443", "nonsense"])).toThrow('"nonsense"');
  });
});

describe("allowsUnsafely", () => {
  const targets = parseUnsafeAllowedTargets(["localhost:8443", "*.demo.example:9443", "[::1]:8443"]);

  it.each([
    ["localhost", 8443, true],
    ["localhost", 9443, false],
    ["vocalhost", 8443, false],
    ["a.localhost", 8443, false],
    ["a.demo.example", 9443, true],
    ["a.b.demo.example", 9443, true],
    ["demo.example", 9443, false],
    ["ademo.example", 9443, false],
    [".demo.example", 9443, false],
    ["a.demo.example", 19443, false],
    ["a.demo.example", 943, false],
    ["::1", 8443, true],
    ["[::1]", 8443, true],
    ["::2", 8443, false],
  ])("of %s and %i is %s", (hostname, port, allowed) => {
    expect(allowsUnsafely(targets, hostname, port)).toBe(allowed);
  });
});
