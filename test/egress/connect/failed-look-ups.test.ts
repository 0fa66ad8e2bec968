import { afterAll, beforeAll, expect, test } from "vitest";
import { createDirectConnector } from "../../../src/egress/connect/direct-connector.ts";
import { createResolver } from "../../../src/egress/dns/resolver.ts";
import { ConnectError } from "../../../src/egress/egress.ts";
import { parseUnsafeAllowedTargets } from "../../../src/egress/rules/host.ts";
import { type NameServer, startNameServer } from "../../support/name-server.ts";
import { patience } from "../../support/time-limits.ts";

let nameServer: NameServer;
beforeAll(async () => {
  nameServer = await startNameServer();
});
afterAll(() => nameServer.close());

const connectorWithin = (connectTimeoutMs: number) =>
  createDirectConnector({
    resolver: createResolver({
      servers: [nameServer.address],
      timeoutMs: patience(10_000),
      now: () => performance.now(),
    }),
    unsafeAllowedTargets: parseUnsafeAllowedTargets([]),
    connectTimeoutMs,
  });

test("names that do not exist are looked up ten a second for an account, if they have proven nothing", async () => {
  const now = () => performance.now();
  const connectTo = connectorWithin(patience(5_000));
  const startedAtMs = now();
  const tookMs = () => now() - startedAtMs;
  let names = 0;
  const lookUp = async (payer: string, admit?: () => Promise<void>) => {
    const target = { hostname: `${names++}.victim.example.com`, port: 443, payer, admit };
    await expect(connectTo(target, new AbortController().signal)).rejects.toThrow("knows no address");
  };
  const unproven = async () => undefined;
  await Promise.all(Array.from({ length: 40 }, () => lookUp("a", unproven)));
  const second = lookUp("a", unproven).then(tookMs);
  await lookUp("b", unproven);
  await lookUp("a");
  expect(await Promise.race([second, "it still waits"])).toBe("it still waits");
  // A timer may be a millisecond early.
  expect(await second).toBeGreaterThan(2_990);
  await lookUp("a", unproven);
  expect(tookMs()).toBeGreaterThan(3_080);
  expect(tookMs(), "nobody waits for longer than three seconds").toBeLessThan(patience(3_800));
});

test("whoever waited for its look-up has time left for it, however little an attempt has", async () => {
  const connectTo = connectorWithin(patience(500));
  const target = { hostname: "none.victim.example.com", port: 443, payer: "a", admit: async () => undefined };
  for (let n = 0; n < 3; n++) {
    const connecting = Array.from({ length: 20 }, () => connectTo(target, new AbortController().signal));
    for (const { reason } of (await Promise.allSettled(connecting)) as PromiseRejectedResult[])
      expect(reason.message).toMatch("knows no address");
  }
});

test("so are names that all lead to one place, whose receivers have to wait for their turn", async () => {
  const now = () => performance.now();
  for (let n = 0; n < 40; n++) nameServer.script(`${n}.wild.example.com`, [["93.184.216.34"]]);
  const connectTo = connectorWithin(patience(5_000));
  for (let n = 0; n < 40; n++) nameServer.script(`www.${n}.example`, [["93.184.216.34"]]);
  const tookMs = async (payer: string, names: number, isUndecided = false, of = "N.wild.example.com") => {
    const startedAtMs = now();
    const admit = async () => {
      throw new ConnectError("not_proven", "It is not its turn.", { isUndecided });
    };
    for (let n = 0; n < names; n++) {
      const target = { hostname: of.replace("N", String(n % 40)), port: 443, payer, admit };
      await expect(connectTo(target, new AbortController().signal)).rejects.toThrow("not its turn");
    }
    return now() - startedAtMs;
  };
  expect(await tookMs("wild", 4)).toBeGreaterThan(290);
  const elsewhere = await tookMs("wild", 40, false, "www.N.example");
  expect(elsewhere, "but names of other domains wait for none of that").toBeLessThan(patience(3_000));
  const unasked = await tookMs("busy", 40, true);
  expect(unasked, "but not where nobody was asked whose turn it is").toBeLessThan(patience(3_000));
});

test("a turn that is had too late is no failure", async () => {
  nameServer.script("late.example.com", [["93.184.216.34"]]);
  const admit = () => new Promise<void>((resolve) => setTimeout(resolve, patience(600)));
  const target = { hostname: "late.example.com", port: 443, payer: "late", admit };
  const connecting = connectorWithin(patience(300))(target, new AbortController().signal);
  await expect(connecting).rejects.toMatchObject({ code: "not_proven" });
});
