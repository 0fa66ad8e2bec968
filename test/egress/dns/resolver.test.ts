import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createResolver } from "../../../src/egress/dns/resolver.ts";
import { ConnectError } from "../../../src/egress/egress.ts";
import { type NameServer, startNameServer } from "../../support/name-server.ts";
import { patience, watchLateness } from "../../support/time-limits.ts";

let nameServer: NameServer;
let nowMs: number;

beforeEach(async () => {
  nameServer = await startNameServer();
  nowMs = 1_000_000;
});
afterEach(() => nameServer.close());

function resolverFor(options: { timeoutMs?: number; servers?: string[] } = {}) {
  return createResolver({
    servers: options.servers ?? [nameServer.address],
    timeoutMs: options.timeoutMs ?? patience(5_000),
    now: () => nowMs,
  });
}

async function codeOf(asking: Promise<unknown>): Promise<string> {
  const error = await asking.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!(error instanceof ConnectError)) throw new Error("It did not fail as a target does.");
  return error.code;
}

describe("resolve", () => {
  it("gives all addresses of both families, IPv4 first", async () => {
    nameServer.script("two.example.com", [["2606:4700::1", "1.1.1.1", "1.0.0.1", "2606:4700::2"]]);
    expect(await resolverFor().resolve("two.example.com")).toEqual([
      { address: "1.1.1.1", family: 4 },
      { address: "1.0.0.1", family: 4 },
      { address: "2606:4700::1", family: 6 },
      { address: "2606:4700::2", family: 6 },
    ]);
  });

  it("gives private addresses too: the judgement is the connector's", async () => {
    nameServer.script("private.example.com", [["10.0.0.1", "::ffff:127.0.0.1"]]);
    expect(await resolverFor().resolve("private.example.com")).toEqual([
      { address: "10.0.0.1", family: 4 },
      { address: "::ffff:127.0.0.1", family: 6 },
    ]);
  });

  it("gives IPv4 first even when IPv6 is answered first", async () => {
    nameServer.script("slow4.example.com", [{ addresses: ["1.1.1.1"], onlyOverTcp: true }], ["A"]);
    nameServer.script("slow4.example.com", [["2606:4700::1"]], ["AAAA"]);
    const found = await resolverFor().resolve("slow4.example.com");
    expect(found.map(({ family }) => family)).toEqual([4, 6]);
  });

  it("is not failed by what another name server answers meanwhile", async () => {
    const names = Array.from({ length: 20 }, (_, n) => `name-${n}.example.com`);
    for (const name of names) nameServer.script(name, [["1.1.1.1"]]);
    nameServer.script("broken.example.org", ["unreadable"]);
    const resolver = resolverFor();
    const broken = codeOf(resolver.resolve("broken.example.org"));
    const found = await Promise.all(names.map((name) => resolver.resolve(name)));
    expect(found).toEqual(names.map(() => [{ address: "1.1.1.1", family: 4 }]));
    expect(await broken).toBe("dns_failed");
  });

  it("finds nothing behind an alias that leads nowhere", async () => {
    nameServer.script("dangling.example.com", [{ addresses: [], alias: "gone.example.net" }]);
    expect(await codeOf(resolverFor().resolve("dangling.example.com"))).toBe("dns_not_found");
  });

  it("follows an alias", async () => {
    nameServer.script("alias.example.com", [{ addresses: ["1.1.1.1"], alias: "cdn.example.net" }]);
    expect(await resolverFor().resolve("alias.example.com")).toEqual([{ address: "1.1.1.1", family: 4 }]);
  });

  it("asks again over TCP for an answer that is too long for a packet", async () => {
    const addresses = Array.from({ length: 300 }, (_, index) => `1.1.${index >> 8}.${index & 255}`);
    nameServer.script("long.example.com", [{ addresses, onlyOverTcp: true }]);
    const found = await resolverFor().resolve("long.example.com");
    expect(found.map(({ address }) => address)).toEqual(addresses);
  });

  it.each([
    "--1.sslip.io",
    "my_hook.example.com",
    "kubernetes.default",
    "a.b.c.d.e.f.example.com",
    "xn--bcher-kva.example",
  ])("asks for %s just as it is, without a search domain", async (name) => {
    nameServer.script(name, [["1.1.1.1"]]);
    expect(await resolverFor().resolve(name)).toEqual([{ address: "1.1.1.1", family: 4 }]);
    expect(new Set(nameServer.queries.map((query) => query.name))).toEqual(new Set([name]));
  });

  it("asks DNS even for localhost, and reads no hosts file", async () => {
    expect(await codeOf(resolverFor().resolve("localhost"))).toBe("dns_not_found");
  });

  it.each([
    ["dns_not_found", "the name does not exist", "nxdomain", "nxdomain"],
    ["dns_not_found", "there is no record of either family", [], []],
    ["dns_not_found", "one family says the name does not exist and the other fails", "nxdomain", "servfail"],
    ["dns_failed", "the name server fails", "servfail", "servfail"],
    ["dns_failed", "one family has no record and the other fails", [], "servfail"],
    ["dns_timeout", "nobody answers", "drop", "drop"],
    ["dns_timeout", "one family has no record and nobody answers for the other", [], "drop"],
  ] as const)("says %s when %s", async (code, _, ipv4, ipv6) => {
    nameServer.script("bad.example.com", [ipv4], ["A"]);
    nameServer.script("bad.example.com", [ipv6], ["AAAA"]);
    const latenessMs = watchLateness();
    const startedAt = performance.now();
    expect(await codeOf(resolverFor({ timeoutMs: patience(300) }).resolve("bad.example.com"))).toBe(code);
    expect(performance.now() - startedAt).toBeLessThan(patience(700) + latenessMs());
  });

  it("says dns_failed when no name server listens", async () => {
    const closed = await startNameServer();
    await closed.close();
    expect(await codeOf(resolverFor({ servers: [closed.address] }).resolve("any.example.com"))).toBe(
      "dns_failed",
    );
  });

  it.each(["drop", "servfail"] as const)(
    "does with one family when the other's queries meet %s",
    async (fate) => {
      nameServer.script("half.example.com", [["1.1.1.1"]], ["A"]);
      nameServer.script("half.example.com", [fate], ["AAAA"]);
      const startedAt = performance.now();
      expect(await resolverFor().resolve("half.example.com")).toEqual([{ address: "1.1.1.1", family: 4 }]);
      expect(performance.now() - startedAt).toBeLessThan(patience(1_500));
    },
  );

  it("asks again when a packet is lost", async () => {
    nameServer.script("lossy.example.com", ["drop", ["1.1.1.1"]]);
    expect(await resolverFor().resolve("lossy.example.com")).toEqual([{ address: "1.1.1.1", family: 4 }]);
  });

  it("asks the next name server when one is dead", async () => {
    const dead = await startNameServer();
    dead.script("name.example.com", ["drop"]);
    nameServer.script("name.example.com", [["1.1.1.1"]]);
    const resolver = resolverFor({ servers: [dead.address, nameServer.address] });
    expect(await resolver.resolve("name.example.com")).toEqual([{ address: "1.1.1.1", family: 4 }]);
    await dead.close();
  });

  it("lets 200 names that nobody answers for delay no other", async () => {
    const resolver = resolverFor({ timeoutMs: patience(1_500) });
    const dead = Array.from({ length: 200 }, (_, index) => `dead-${index}.example.com`);
    const failing: Promise<string>[] = [];
    for (const name of dead) {
      nameServer.script(name, ["drop"]);
      failing.push(codeOf(resolver.resolve(name)));
      // One after the other: a burst would overflow this process's own socket and lose the healthy ones' packets.
      await nameServer.waitForQueries(name, 1);
    }

    const delaysMs: number[] = [];
    const latenessMs = watchLateness();
    for (let index = 0; index < 20; index += 1) {
      nameServer.script(`alive-${index}.example.com`, [["1.1.1.1"]]);
      const startedAt = performance.now();
      await resolver.resolve(`alive-${index}.example.com`);
      delaysMs.push(performance.now() - startedAt);
    }
    expect(Math.max(...delaysMs)).toBeLessThan(patience(250) + latenessMs());
    expect(new Set(await Promise.all(failing))).toEqual(new Set(["dns_timeout"]));
  });
});

describe("the cache", () => {
  const first = [{ address: "1.1.1.1", family: 4 }];
  const second = [{ address: "1.0.0.1", family: 4 }];

  async function changesAfter(ttlSeconds: number, passedMs: number): Promise<boolean> {
    nameServer.script("name.example.com", [
      { addresses: ["1.1.1.1"], ttlSeconds },
      { addresses: ["1.0.0.1"], ttlSeconds },
    ]);
    const resolver = resolverFor();
    expect(await resolver.resolve("name.example.com")).toEqual(first);
    nowMs += passedMs;
    const found = await resolver.resolve("name.example.com");
    expect([first, second]).toContainEqual(found);
    return found[0]?.address === second[0]?.address;
  }

  it.each([
    { ttlSeconds: 3_600, passedMs: 29_999, changes: false },
    { ttlSeconds: 3_600, passedMs: 30_000, changes: true },
    { ttlSeconds: 10, passedMs: 9_999, changes: false },
    { ttlSeconds: 10, passedMs: 10_000, changes: true },
    { ttlSeconds: 0, passedMs: 999, changes: false },
    { ttlSeconds: 0, passedMs: 1_000, changes: true },
  ])(
    "asks again at 30 s or at the record's own end: $ttlSeconds s, after $passedMs ms: $changes",
    async (row) => {
      expect(await changesAfter(row.ttlSeconds, row.passedMs)).toBe(row.changes);
    },
  );

  it.each(["nxdomain", "servfail"] as const)("keeps %s for 5 s", async (answer) => {
    nameServer.script("late.example.com", [answer, ["1.1.1.1"]]);
    const resolver = resolverFor();
    await codeOf(resolver.resolve("late.example.com"));
    const asked = nameServer.count("late.example.com");
    nowMs += 4_999;
    await codeOf(resolver.resolve("late.example.com"));
    expect(nameServer.count("late.example.com")).toBe(asked);
    nowMs += 1;
    expect(await resolver.resolve("late.example.com")).toEqual(first);
  });

  it("keeps half an answer for 5 s only", async () => {
    nameServer.script("half.example.com", [["1.1.1.1"]], ["A"]);
    nameServer.script("half.example.com", ["drop"], ["AAAA"]);
    const resolver = resolverFor();
    await resolver.resolve("half.example.com");
    nowMs += 5_000;
    nameServer.script("half.example.com", [["2606:4700::1"]], ["AAAA"]);
    expect(await resolver.resolve("half.example.com")).toHaveLength(2);
  });

  it("asks once for everybody who wants the same name at the same time", async () => {
    nameServer.script("busy.example.com", [["1.1.1.1"]]);
    const resolver = resolverFor();
    const found = await Promise.all(Array.from({ length: 100 }, () => resolver.resolve("busy.example.com")));
    expect(found.every(([one]) => one?.address === "1.1.1.1")).toBe(true);
    expect(nameServer.count("busy.example.com", "A")).toBe(1);
    expect(nameServer.count("busy.example.com", "AAAA")).toBe(1);
  });

  it("does not keep a name with more addresses than any honest one has", async () => {
    const addresses = Array.from({ length: 33 }, (_, index) => `1.1.1.${index}`);
    nameServer.script("swarm.example.com", [{ addresses, onlyOverTcp: true }]);
    const resolver = resolverFor();
    await resolver.resolve("swarm.example.com");
    await resolver.resolve("swarm.example.com");
    expect(nameServer.count("swarm.example.com", "A")).toBe(2);
  });
});
