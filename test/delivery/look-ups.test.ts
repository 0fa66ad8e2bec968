import { expect, test } from "vitest";
import { LookUps } from "../../src/delivery/look-ups.ts";
import { patience } from "../support/time-limits.ts";

type Outcome = "failed" | "waits" | "admitted";
const at = (hostname: string, port = 443) => ({ hostname, origin: `https://${hostname}:${port}` });
const within = { timeout: patience(5_000), interval: 20 };

/** How many of so many at one time begin; all with this outcome. */
function begin(
  lookUps: LookUps,
  of: string,
  count: number,
  outcome: Outcome | null,
  accountId = "a",
): number {
  const names = Array.from({ length: count }, (_, n) => lookUps.begin(accountId, at(`${n}.${of}`)));
  const begun = names.filter(({ mayCome }) => mayCome === null);
  for (const { end } of begun) end(outcome);
  return begun.length;
}

test.each(["failed", "waits"] as const)(
  "of names of one domain whose look-ups end as %s ten a second are looked up",
  async (outcome) => {
    const lookUps = new LookUps();
    const startedAtMs = performance.now();
    // Nothing is counted before one has cost something.
    expect(begin(lookUps, "victim.example.com", 95, outcome)).toBe(95);
    expect(begin(lookUps, "other.victim.example.com", 5, outcome)).toBe(5);
    const waiting = Array.from({ length: 5 }, (_, n) => lookUps.begin("a", at(`w${n}.example.com`)).mayCome!);
    let come = 0;
    const countCome = () => {
      while (come < 5 && waiting[come]!()) come++;
      return come;
    };
    await expect.poll(countCome, within).toBeGreaterThan(0);
    expect(begin(lookUps, "victim.example.com", 1, outcome), "behind those that wait").toBe(0);
    await expect.poll(countCome, within).toBe(5);
    expect(performance.now() - startedAtMs).toBeGreaterThan(390);
    expect(lookUps.begin("a", at("w0.example.com")).mayCome, "it was told that it may come").toBeNull();
    expect(begin(lookUps, "www.other.example", 20, outcome), "in another domain").toBe(20);
    expect(begin(lookUps, "example.com", 20, outcome, "b"), "another account's").toBe(20);
  },
);

test("an account's names that cannot be looked up are a hundred a second, wherever they are", () => {
  const lookUps = new LookUps();
  let begun = 0;
  for (let n = 0; n < 20; n++) begun += begin(lookUps, `domain${n}.example`, 60, "failed");
  expect(begun).toBeGreaterThanOrEqual(1_000);
  expect(begun).toBeLessThan(1_100);
});

test.each([
  ["are admitted", "admitted"],
  ["nobody was asked about", null],
] as const)("names that %s cost nothing, and bring those behind them forward", async (_, outcome) => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 100, "failed");
  let waiting = Array.from({ length: 300 }, (_, n) => `healthy${n}.example.com`).map((name) => ({
    name,
    mayCome: lookUps.begin("a", at(name)).mayCome!,
  }));
  const startedAtMs = performance.now();
  const comeAll = () => {
    const may = waiting.filter(({ mayCome }) => mayCome());
    waiting = waiting.filter((one) => !may.includes(one));
    for (const { name } of may) lookUps.begin("a", at(name)).end(outcome);
    return waiting.length;
  };
  await expect.poll(comeAll, { timeout: patience(10_000), interval: 100 }).toBe(0);
  // At the pace of dead ones it took 30.
  expect(performance.now() - startedAtMs).toBeLessThan(patience(5_000));
});

test("a name that was admitted waits for none of the others, until it is not", () => {
  const lookUps = new LookUps();
  const name = "known.wild.example.com";
  lookUps.begin("a", at(name)).end("admitted");
  begin(lookUps, "wild.example.com", 100, "failed");
  const known = lookUps.begin("a", at(name));
  expect(known.mayCome).toBeNull();
  known.end("waits");
  expect(lookUps.begin("a", at(name)).mayCome).not.toBeNull();
});

test("names that come again at once stand behind those that wait, in their domain and their account", async () => {
  const lookUps = new LookUps();
  const gone = Array.from({ length: 10 }, (_, n) => `gone${n}.example`);
  for (const of of gone) expect(begin(lookUps, of, 100, "failed")).toBe(100);
  const again: { name: string; mayCome: (() => boolean) | null }[] = [];
  for (const of of ["example.com", ...gone])
    for (let n = 0; n < 4; n++) again.push({ name: `back${n}.${of}`, mayCome: null });
  const comeAgain = () => {
    for (const one of again) {
      if (one.mayCome?.() === false) continue;
      const { mayCome, end } = lookUps.begin("a", at(one.name));
      one.mayCome = mayCome;
      end("failed");
    }
  };
  comeAgain();
  const healthy = ["example.com", "healthy.example"].flatMap((of) =>
    Array.from({ length: 20 }, (_, n) => ({ name: `h${n}.${of}`, ...lookUps.begin("a", at(`h${n}.${of}`)) })),
  );
  let left = healthy;
  const comeAll = () => {
    comeAgain();
    left = left.filter(({ name, mayCome }) => {
      if (mayCome?.() === false) return true;
      lookUps.begin("a", at(name)).end("admitted");
      return false;
    });
    return left.length;
  };
  await expect.poll(comeAll, { timeout: patience(15_000), interval: 100 }).toBe(0);
});

test("receivers at several ports of a name are called one by one", async () => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 100, "failed");
  const ports = Array.from({ length: 20 }, (_, n) => lookUps.begin("a", at("x.example.com", 1_024 + n)));
  const called = () => ports.filter(({ mayCome }) => mayCome!()).length;
  await expect.poll(called, within).toBeGreaterThan(0);
  expect(called()).toBeLessThan(20);
  await expect.poll(called, within).toBe(20);
});
