import { expect, test } from "vitest";
import { LookUps } from "../../src/delivery/receiver-turns.ts";
import { patience } from "../support/time-limits.ts";

const now = () => performance.now();
const startedAtMs = now();

/** Look-ups at one time, of names that have led there. */
async function lookedUp(lookUps: LookUps, of: string, led: readonly ("nowhere" | "to_wait" | "on")[]) {
  const begun = await Promise.all(led.map((_, n) => lookUps.begin("a", `${n}.${of}`)));
  for (const [n, { restMs, end }] of begun.entries()) {
    expect(restMs).toBe(0);
    end(led[n]!);
  }
}

/** How long a look-up waits in its place; else it comes again. */
async function waitsFor(lookUps: LookUps, accountId: string, hostname: string): Promise<number> {
  const begunAtMs = now();
  expect(await lookUps.begin(accountId, hostname)).toMatchObject({ restMs: 0 });
  return now() - begunAtMs;
}

test("of names of one domain that lead nowhere an account has ten looked up a second", async () => {
  const lookUps = new LookUps();
  await lookedUp(lookUps, "victim.example.com", Array(25).fill("nowhere"));
  const { restMs } = await lookUps.begin("a", "x.victim.example.com");
  expect(restMs).toBeGreaterThan(2_500 - patience(50));
  expect(restMs).toBeLessThan(2_600);
  expect(await waitsFor(lookUps, "b", "z.example.com")).toBeLessThan(patience(50));
  const elsewhere = await waitsFor(lookUps, "a", "www.other.example");
  expect(elsewhere, "names of other domains wait for a tenth of it").toBeGreaterThan(250 - patience(50));
  expect(elsewhere).toBeLessThan(patience(400));
  await lookedUp(new LookUps(), "victim.example.com", Array(60).fill("nowhere"));
  await lookedUp(lookUps, "others.example.org", Array(60).fill("nowhere"));
  const longest = (await lookUps.begin("a", "x.others.example.org")).restMs;
  expect(longest, "no pause is longer than three seconds").toBeLessThan(3_200);
});

test("those that are put off come again at the pace of look-ups, one after the other", async () => {
  const everyMs = async (led: readonly ("nowhere" | "on")[]) => {
    const lookUps = new LookUps();
    await lookedUp(lookUps, "example.com", led);
    const putOff: number[] = [];
    for (let n = 0; n < 100; n++) {
      const { restMs } = await lookUps.begin("a", "x.example.com");
      putOff.push(restMs + now() - startedAtMs);
    }
    expect(putOff).toEqual(putOff.toSorted((a, b) => a - b));
    return (putOff.at(-1)! - putOff[0]!) / (putOff.length - 1);
  };
  const dead = Array(300).fill("nowhere");
  expect(await everyMs(dead)).toBeGreaterThan(105);
  expect(await everyMs(dead.flatMap((led) => ["on", led]))).toBeLessThan(70);
  expect(await everyMs([...dead.slice(10), ...Array(100).fill("on"), ...dead.slice(0, 10)])).toBeLessThan(50);
});

test("those that come together begin one after the other, and what costs nothing gives back its time", async () => {
  const lookUps = new LookUps();
  await lookedUp(lookUps, "wild.example.com", Array(200).fill("to_wait"));
  const restMs = async () => (await lookUps.begin("a", "x.wild.example.com")).restMs;
  await expect.poll(restMs, { timeout: patience(4_000) }).toBe(0);
  const begunAtMs = now();
  const three = [1, 2, 3].map(async (n) => {
    const { end } = await lookUps.begin("a", `${n}.wild.example.com`);
    return { end, atMs: now() - begunAtMs };
  });
  const begun = await Promise.all(three);
  expect(begun[2]!.atMs - begun[0]!.atMs).toBeGreaterThan(190);
  for (const { end } of begun) end("on");
  expect(await waitsFor(lookUps, "a", "y.wild.example.com")).toBeLessThan(patience(50));
});

test("names whose receivers have to wait for their turns hold up none of other domains", async () => {
  const lookUps = new LookUps();
  await lookedUp(lookUps, "wild.example.com", Array(40).fill("to_wait"));
  expect((await lookUps.begin("a", "x.wild.example.com")).restMs).toBeGreaterThan(2_900);
  expect(await waitsFor(lookUps, "a", "www.other.example")).toBeLessThan(patience(50));
});

test("a name whose turn it was waits for none of the others, until it leads elsewhere", async () => {
  const lookUps = new LookUps();
  const name = "known.wild.example.com";
  (await lookUps.begin("a", name)).end("on");
  await lookedUp(lookUps, "wild.example.com", Array(40).fill("nowhere"));
  const known = await lookUps.begin("a", name);
  expect(known.restMs).toBe(0);
  known.end("to_wait");
  expect((await lookUps.begin("a", name)).restMs).toBeGreaterThan(2_900);
});
