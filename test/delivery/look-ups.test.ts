import { expect, test } from "vitest";
import { LookUps } from "../../src/delivery/receiver-turns.ts";
import { patience } from "../support/time-limits.ts";

const now = () => performance.now();

/** How long a look-up waits in its place; else it comes again. */
async function waitsFor(lookUps: LookUps, accountId: string, hostname: string): Promise<number> {
  const startedAtMs = now();
  expect(await lookUps.begin(accountId, hostname)).toBe(0);
  return now() - startedAtMs;
}

test("of names of one domain that lead nowhere an account has ten looked up a second", async () => {
  const lookUps = new LookUps();
  const startedAtMs = now();
  for (let n = 0; n < 40; n++) lookUps.learn("a", `${n}.victim.example.com`, "nowhere");
  const first = await lookUps.begin("a", "x.victim.example.com");
  const second = await lookUps.begin("a", "y.example.com");
  expect(first).toBeGreaterThan(3_000 - (now() - startedAtMs));
  expect(first, "no pause is longer than three seconds").toBeLessThanOrEqual(3_100);
  expect(second - first, "one after the other").toBeGreaterThan(50 - (now() - startedAtMs));
  expect(await waitsFor(lookUps, "b", "z.example.com")).toBeLessThan(patience(50));
  const elsewhere = await waitsFor(lookUps, "a", "www.other.example");
  expect(elsewhere, "names of other domains wait for a tenth of it").toBeGreaterThan(350 - patience(50));
  expect(elsewhere).toBeLessThan(patience(600));
});

test("those that are put off come again at the pace of look-ups", async () => {
  const lookUps = new LookUps();
  /** The first that comes after so many look-ups, of which a part has led nowhere. */
  const everyMs = async (account: string, lookedUp: number, isCostly: (n: number) => boolean) => {
    for (let n = 0; n < lookedUp; n++)
      lookUps.learn(account, `${n}.example.com`, isCostly(n) ? "nowhere" : "on");
    const first = await lookUps.begin(account, "x.example.com");
    const nth = 100;
    for (let n = 0; n < nth; n++) await lookUps.begin(account, "x.example.com");
    return ((await lookUps.begin(account, "x.example.com")) - first) / (nth + 1);
  };
  expect(await everyMs("dead", 300, () => true)).toBeGreaterThan(95);
  expect(await everyMs("half", 300, (n) => n % 2 === 0)).toBeLessThan(60);
  expect(await everyMs("a few", 300, (n) => n < 10)).toBeLessThan(20);
});

test("a short pause is waited out", async () => {
  const lookUps = new LookUps();
  for (let n = 0; n < 3; n++) lookUps.learn("a", `${n}.victim.example.com`, "nowhere");
  // A timer may be a millisecond early.
  expect(await waitsFor(lookUps, "a", "x.victim.example.com")).toBeGreaterThan(280);
  expect(await waitsFor(lookUps, "a", "x.victim.example.com")).toBeLessThan(patience(50));
});

test("names whose receivers have to wait for their turns hold up none of other domains", async () => {
  const lookUps = new LookUps();
  for (let n = 0; n < 40; n++) lookUps.learn("a", `${n}.wild.example.com`, "to_wait");
  expect(await lookUps.begin("a", "x.wild.example.com")).toBeGreaterThan(2_900);
  expect(await waitsFor(lookUps, "a", "www.other.example")).toBeLessThan(patience(50));
});
