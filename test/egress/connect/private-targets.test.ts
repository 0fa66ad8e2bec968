import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  createDirectConnector,
  type DirectConnectorOptions,
} from "../../../src/egress/connect/direct-connector.ts";
import { createCheckedAddresses, createResolver } from "../../../src/egress/dns/resolver.ts";
import { NO_UNSAFE_ALLOWED_TARGETS, parseUnsafeAllowedTargets } from "../../../src/egress/rules/host.ts";
import { judgeTargetUrl } from "../../../src/egress/rules/target-url.ts";
import { type NameServer, startNameServer } from "../../support/name-server.ts";
import { patience } from "../../support/time-limits.ts";
import { failureOf } from "../failure.ts";
import { TARGET_URL_CASES } from "../rules/target-url-cases.ts";
import { startTcpServer, type TestServer } from "../server.ts";

// The server that must see nothing. It listens where every one of these targets leads.
let inside: TestServer;
let nameServer: NameServer;
let nowMs: number;
const never = new AbortController().signal;

beforeEach(async () => {
  inside = await startTcpServer();
  nameServer = await startNameServer();
  nowMs = 0;
});
afterEach(async () => {
  await nameServer.close();
  await inside.close();
});

function optionsWith(options: Partial<DirectConnectorOptions> = {}): DirectConnectorOptions {
  return {
    resolver: createResolver({ servers: [nameServer.address], timeoutMs: patience(2_000), now: () => nowMs }),
    unsafeAllowedTargets: NO_UNSAFE_ALLOWED_TARGETS,
    connectTimeoutMs: patience(2_000),
    ...options,
  };
}

async function expectRefused(hostname: string, options: Partial<DirectConnectorOptions> = {}): Promise<void> {
  const connect = createDirectConnector(optionsWith(options));
  const error = await failureOf(connect({ hostname, port: inside.port }, never));
  expect(error.code).toBe("target_not_public");
  expect(error.progress?.remoteAddress).toBeNull();
  expect(inside.sockets).toHaveLength(0);
}

describe("a connection to the inside", () => {
  it.each([
    "127.0.0.1",
    "[::1]",
    "::1",
    "[::ffff:127.0.0.1]",
    "::ffff:7f00:1",
    "0.0.0.0",
    "[::]",
    "::127.0.0.1",
  ])("is refused for the address %s", (hostname) => expectRefused(hostname));

  it.each([
    ["a private address", ["127.0.0.1"]],
    ["a private IPv6 address", ["::1"]],
    ["a mapped address", ["::ffff:127.0.0.1"]],
    ["a public address and then a private one", ["1.1.1.1", "127.0.0.1"]],
    ["a private address and then a public one", ["127.0.0.1", "1.1.1.1"]],
    ["a public IPv4 and a private IPv6 address", ["1.1.1.1", "fd00::1"]],
    ["a private IPv4 and a public IPv6 address", ["10.0.0.1", "2606:4700::1"]],
    [
      "one private address among hundreds",
      [...Array.from({ length: 20 }, (_, i) => `1.1.1.${i}`), "127.0.0.1"],
    ],
  ])("is refused for a name that gives %s", async (_, addresses) => {
    nameServer.script("inside.example.com", [addresses]);
    await expectRefused("inside.example.com");
  });

  it("is refused for a name that leads there by an alias", async () => {
    nameServer.script("cname.example.com", [{ addresses: ["127.0.0.1"], alias: "localhost" }]);
    await expectRefused("cname.example.com");
  });

  it.each(["localhost", "a.localhost"])(
    "is refused for %s when DNS gives it a private address",
    async (name) => {
      nameServer.script(name, [["127.0.0.1"]]);
      await expectRefused(name);
    },
  );

  it("is refused for the installation's own public addresses, however spelled", async () => {
    nameServer.script("self.example.com", [["2606:4700::1", "1.1.1.1"]]);
    await expectRefused("self.example.com", { ownAddresses: ["2606:4700:0:0::1"] });
    await expectRefused("self.example.com", { ownAddresses: ["1.1.1.0/24"] });
    await expectRefused("1.1.1.1", { ownAddresses: ["1.1.1.1"] });
    expect(() => createDirectConnector(optionsWith({ ownAddresses: ["self"] }))).toThrow(
      /neither an IP address/,
    );
  });

  it("does not tell where the name leads, but to the log", async () => {
    nameServer.script("inside.example.com", [["10.1.2.3"]]);
    const connect = createDirectConnector(optionsWith());
    const error = await failureOf(connect({ hostname: "inside.example.com", port: 443 }, never));
    expect(error.message).not.toContain("10.1.2.3");
    expect(String(error.cause)).toContain("10.1.2.3");
  });

  it("is made, and seen by this test, when the target is allowed unsafely", async () => {
    nameServer.script("inside.example.com", [["127.0.0.1"]]);
    const unsafeAllowedTargets = parseUnsafeAllowedTargets([`inside.example.com:${inside.port}`]);
    const connect = createDirectConnector(
      optionsWith({ unsafeAllowedTargets, connectTimeoutMs: patience(300) }),
    );
    const error = await failureOf(connect({ hostname: "inside.example.com", port: inside.port }, never));
    expect(error.code).toBe("tls_timeout");
    expect(inside.sockets).toHaveLength(1);
  });

  it("stays refused for every other port and name than the one allowed unsafely", async () => {
    nameServer.script("inside.example.com", [["127.0.0.1"]]);
    nameServer.script("other.example.com", [["127.0.0.1"]]);
    const lifted = [
      `inside.example.com:${inside.port + 1}`,
      `x.other.example.com:${inside.port}`,
      `127.0.0.2:${inside.port}`,
    ];
    const unsafeAllowedTargets = parseUnsafeAllowedTargets(lifted);
    for (const hostname of ["inside.example.com", "other.example.com", "127.0.0.1"]) {
      await expectRefused(hostname, { unsafeAllowedTargets });
    }
  });
});

describe("a name whose answer changes", () => {
  const target = "rebind.example.com";

  it("is refused from the first private answer on, though it was public before", async () => {
    nameServer.script(target, [
      { addresses: ["1.1.1.1"], ttlSeconds: 0 },
      { addresses: ["127.0.0.1"], ttlSeconds: 0 },
    ]);
    const options = optionsWith();
    const findAddresses = createCheckedAddresses(options);
    expect(await findAddresses(target, inside.port)).toEqual([{ address: "1.1.1.1", family: 4 }]);
    nowMs += 1_000;
    expect(
      (await failureOf(createDirectConnector(options)({ hostname: target, port: inside.port }, never))).code,
    ).toBe("target_not_public");
    expect(inside.sockets).toHaveLength(0);
  });

  it("is judged at each use of a remembered answer", async () => {
    nameServer.script(target, [["127.0.0.1"]]);
    const { resolver } = optionsWith();
    await resolver.resolve(target);
    await expectRefused(target, { resolver });
    await expectRefused(target, { resolver });
    expect(nameServer.count(target)).toBe(1);
  });

  it("is connected to by the very answer that was judged: nobody looks the name up again", async () => {
    const other = await startTcpServer({ host: "127.0.0.2", port: inside.port });
    nameServer.script(target, [
      { addresses: ["127.0.0.2"], ttlSeconds: 0 },
      { addresses: ["127.0.0.1"], ttlSeconds: 0 },
    ]);
    const unsafeAllowedTargets = parseUnsafeAllowedTargets([`${target}:${inside.port}`]);
    const connect = createDirectConnector(
      optionsWith({ unsafeAllowedTargets, connectTimeoutMs: patience(300) }),
    );
    const error = await failureOf(connect({ hostname: target, port: inside.port }, never));
    expect(error.progress?.remoteAddress).toBe("127.0.0.2");
    expect(other.sockets).toHaveLength(1);
    expect(inside.sockets).toHaveLength(0);
    expect(nameServer.count(target)).toBe(1);
    await other.close();
  });
});

describe("the list of URLs with DNS answers", () => {
  const rows = TARGET_URL_CASES.filter((row) => row.dns_answers !== undefined);

  it("is whole", () => {
    expect(rows).toHaveLength(22);
    expect(rows.every((row) => row.verdict === "refuse")).toBe(true);
  });

  it.each(rows)(
    "$url is refused at its last answer ($reason)",
    async ({ url: text, dns_answers: answers = [] }) => {
      const judged = judgeTargetUrl(text);
      if (judged.verdict === "refuse") throw new Error("Its text is in order.");
      const { hostname } = judged.url;
      nameServer.script(
        hostname,
        answers.map((addresses) => ({ addresses, ttlSeconds: 0 })),
      );
      const options = optionsWith();
      for (const addresses of answers.slice(0, -1)) {
        const found = await createCheckedAddresses(options)(hostname, inside.port);
        expect(found.map(({ address }) => address)).toEqual(addresses);
        nowMs += 1_000;
      }
      await expectRefused(hostname, options);
    },
  );
});
