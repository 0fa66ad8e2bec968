import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { InLine } from "../../src/delivery/lane.ts";
import { LookUps } from "../../src/delivery/look-ups.ts";

type Outcome = "failed" | "waits" | "admitted";
const at = (hostname: string, port = 443) => ({ hostname, origin: `https://${hostname}:${port}` });

let nowMs = 0;
beforeEach(() => {
  vi.spyOn(performance, "now").mockImplementation(() => nowMs);
});
afterEach(() => {
  vi.restoreAllMocks();
});

/** As rests are ended, four times a second. Returns how many milliseconds it took until `isOver`. */
function pass(isOver: () => boolean, mostMs = 60_000): number {
  const startedAtMs = nowMs;
  while (!isOver() && nowMs - startedAtMs < mostMs) nowMs += 250;
  return nowMs - startedAtMs;
}

/** How many of so many at one time begin; all with this outcome. */
function begin(
  lookUps: LookUps,
  of: string,
  count: number,
  outcome: Outcome | null,
  accountId = "a",
): number {
  const names = Array.from({ length: count }, (_, n) => lookUps.begin(accountId, at(`${n}.${of}`)));
  const begun = names.filter(({ inLine }) => inLine === null);
  for (const { end } of begun) end(outcome);
  return begun.length;
}

/** So many that wait in line, and come when they are called. */
function stand(lookUps: LookUps, of: string, count: number, outcome: Outcome | null) {
  let waiting = Array.from({ length: count }, (_, n) => `${n}.${of}`).map((name) => ({
    name,
    inLine: lookUps.begin("a", at(name)).inLine!,
  }));
  /** Those that are called: how many are left. */
  const come = () => {
    waiting = waiting.filter(({ name, inLine }) => {
      if (!inLine.isCalled()) return true;
      const { inLine: again, end } = lookUps.begin("a", at(name));
      end(outcome);
      return again !== null;
    });
    return waiting.length;
  };
  const leave = () => {
    for (const { inLine } of waiting) inLine.leave();
  };
  return { come, leave, called: () => waiting.filter(({ inLine }) => inLine.isCalled()).length };
}

/** Names that come again whenever they may, and fail. Returns how many look-ups have begun. */
function comeAndFail(lookUps: LookUps, hosts: readonly string[]): () => number {
  const names = hosts.map((host) => ({ host, inLine: null as InLine | null }));
  let begun = 0;
  return () => {
    for (const name of names.filter(({ inLine }) => inLine?.isCalled() !== false)) {
      const { inLine, end } = lookUps.begin("a", at(name.host));
      name.inLine = inLine;
      if (inLine === null) begun++;
      end("failed");
    }
    return begun;
  };
}

test.each(["failed", "waits"] as const)(
  "of names of one domain whose look-ups end as %s fifty a second are looked up",
  (outcome) => {
    const lookUps = new LookUps();
    // Nothing is counted before one has cost something.
    expect(begin(lookUps, "victim.example.com", 480, outcome)).toBe(480);
    expect(begin(lookUps, "other.victim.example.com", 20, outcome)).toBe(20);
    const { come } = stand(lookUps, "line.example.com", 250, outcome);
    pass(() => false, 3_000);
    expect(
      pass(() => come() === 0),
      "and what was saved up is 150",
    ).toBe(2_000);
    expect(lookUps.begin("a", at("0.line.example.com")).inLine, "it has come").not.toBeNull();
    expect(begin(lookUps, "www.other.example", 20, outcome), "in another domain").toBe(20);
    expect(begin(lookUps, "example.com", 20, outcome, "b"), "another account's").toBe(20);
  },
);

test("nothing is counted where nothing has cost a token for twenty seconds, and none waits", () => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 501, "failed");
  const { leave } = stand(lookUps, "example.com", 1, null);
  leave();
  nowMs += 20_000;
  expect(begin(lookUps, "example.com", 900, "admitted")).toBe(900);
  begin(lookUps, "other.example", 501, "failed");
  nowMs += 15_000;
  expect(begin(lookUps, "other.example", 900, null), "after fifteen it is").toBe(500);
});

test.each([
  ["whose look-ups fail", "victim.example", 500, 500],
  ["of all of an account's domains", "", 1_000, 1_000],
])("of those that wait, %s, no more come at once because none was sent for a while", (_, of, cost, most) => {
  const lookUps = new LookUps();
  for (let n = 0; n < cost; n++) begin(lookUps, of || `gone${n}.example`, 1, "failed");
  const hosts = Array.from({ length: 5_000 }, (_, n) => `new${n}.${of || `gone${n % 1_000}.example`}`);
  const inLine = hosts.flatMap((host) => lookUps.begin("a", at(host)).inLine ?? []);
  expect(inLine.length).toBeGreaterThan(4_000);
  const called = () => inLine.filter(({ isCalled }) => isCalled()).length;
  expect(called()).toBe(0);
  for (const times of [1, 2]) {
    nowMs += 25_000;
    expect(called()).toBeLessThanOrEqual(times * most);
  }
});

test("of those that are called and cannot come, no more begin at once than there are tokens", () => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 500, "failed");
  const hosts = Array.from({ length: 3_000 }, (_, n) => `new${n}.example.com`);
  const line = hosts.map((host) => lookUps.begin("a", at(host)).inLine!);
  expect(
    pass(() => line.every(({ isCalled }) => isCalled())),
    "others in their place",
  ).toBeLessThan(20_000);
  const come = (those: readonly string[]) => {
    const begun = those.filter((host) => {
      const { inLine, end } = lookUps.begin("a", at(host));
      end("failed");
      return inLine === null;
    });
    return begun;
  };
  nowMs += 25_000;
  expect(come(hosts.toReversed())).toHaveLength(500);
  nowMs += 250;
  const called = line.slice(0, 2_500).map(({ isCalled }) => isCalled());
  expect(called.lastIndexOf(true), "the others keep their places").toBe(11);
});

test("in a hundred seconds it is five hundred, and fifty for each of them", () => {
  const hosts = Array.from({ length: 6_000 }, (_, n) => `new${n}.example.com`);
  const come = comeAndFail(new LookUps(), hosts);
  pass(() => come() < 0, 100_000);
  expect(come()).toBeLessThanOrEqual(5_500);
  expect(come()).toBeGreaterThan(5_400);
});

test("a place that several of a receiver's lanes share is nobody's for good", () => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 500, "failed");
  const [one, other] = [1, 2].map(() => lookUps.begin("a", at("both.example.com")).inLine!);
  expect([one!.isCalled(), other!.isCalled()]).toEqual([false, false]);
  one!.leave();
  expect(other!.isCalled(), "it stands at the end then").toBe(true);
});

test("those that are called and never come have no place after a minute", () => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 500, "failed");
  const gone = stand(lookUps, "gone.example.com", 5, null);
  nowMs += 1_000;
  expect(gone.called()).toBe(5);
  nowMs += 60_000;
  gone.called();
  expect(begin(lookUps, "new.example.com", 100, "failed"), "nobody is in front").toBe(100);
});

test("an account that has tokens again keeps no other domain waiting", () => {
  const lookUps = new LookUps();
  begin(lookUps, "own.example", 500, "waits");
  for (let n = 0; n < 10; n++) begin(lookUps, `gone${n}.example`, 100, "failed");
  const { called } = stand(lookUps, "new.own.example", 300, "waits");
  called();
  expect(lookUps.begin("a", at("a.other.example")).inLine).not.toBeNull();
  nowMs += 5_000;
  expect(called(), "as many as their domain has tokens").toBe(250);
  expect(lookUps.begin("a", at("b.another.example")).inLine).toBeNull();
});

test("an account's names that cannot be looked up are a hundred a second, wherever they are", () => {
  const lookUps = new LookUps();
  const begun = (from: number) => {
    let count = 0;
    for (let n = from; n < from + 20; n++) count += begin(lookUps, `domain${n}.example`, 60, "failed");
    return count;
  };
  expect(begun(0)).toBe(1_000);
  expect(
    pass(() => begun(nowMs) > 0),
    "a token has to come first",
  ).toBe(250);
});

test("an account's names that wait for their turns cost nothing but in their domain", () => {
  const lookUps = new LookUps();
  let count = 0;
  for (let n = 0; n < 20; n++) count += begin(lookUps, `domain${n}.example`, 100, "waits");
  expect(count).toBe(2_000);
});

test("a look-up ends once", () => {
  const lookUps = new LookUps();
  for (let n = 0; n < 300; n++) {
    const { end } = lookUps.begin("a", at(`${n}.example.com`));
    for (const outcome of ["failed", "failed"] as const) end(outcome);
  }
  expect(begin(lookUps, "example.com", 300, "failed")).toBe(200);
});

test.each([
  ["are admitted", "admitted"],
  ["nobody was asked about", null],
] as const)("names that %s cost nothing, and bring those behind them forward", (_, outcome) => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 500, "failed");
  const { come } = stand(lookUps, "example.com", 1_500, outcome);
  // At the pace of dead ones it took 30 s.
  expect(pass(() => come() === 0)).toBeLessThan(5_000);
});

test.each([
  ["a domain", () => "example.com", ["example.com"]],
  ["an account", (n: number) => `${n}.example`, Array.from({ length: 10 }, (_, n) => `full${n}.example`)],
])("names that are called and do not come make way for those behind them, in %s", (_, domainOf, full) => {
  const lookUps = new LookUps();
  for (const of of full) begin(lookUps, of, full.length === 1 ? 500 : 100, "failed");
  const gone = Array.from(
    { length: 1_000 },
    (_, n) => lookUps.begin("a", at(`gone${n}.${domainOf(n)}`)).inLine!,
  );
  const { come } = stand(lookUps, `new.${domainOf(1_001)}`, 20, "admitted");
  let left: readonly InLine[] = gone;
  const comeOrLeave = () => {
    left = left.filter((one) => {
      if (!one.isCalled()) return true;
      one.leave();
      return false;
    });
    return come() === 0;
  };
  // A token for each took twenty seconds, and ten.
  expect(pass(comeOrLeave)).toBeLessThan(5_000);
});

test("a name that has come and then leaves gives nothing back", () => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 500, "failed");
  const { inLine } = lookUps.begin("a", at("one.example.com"));
  nowMs += 1_000;
  expect(inLine!.isCalled()).toBe(true);
  lookUps.begin("a", at("one.example.com")).end("failed");
  for (let n = 0; n < 50; n++) inLine!.leave();
  expect(begin(lookUps, "example.com", 100, "failed")).toBe(49);
});

test("what began before anything was counted owes ten seconds at most", () => {
  const lookUps = new LookUps();
  const begun = Array.from({ length: 2_000 }, (_, n) => lookUps.begin("a", at(`${n}.example.com`)));
  for (const { end } of begun) end("failed");
  const { called } = stand(lookUps, "example.com", 5, null);
  expect(pass(() => called() > 0)).toBe(10_250);
});

test("names that leave before they are called stand in nobody's way", () => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 500, "failed");
  const { leave } = stand(lookUps, "gone.example.com", 1_000, null);
  const { come } = stand(lookUps, "example.com", 5, "failed");
  leave();
  expect(pass(() => come() === 0)).toBeLessThanOrEqual(750);
});

test("a name that was admitted waits for none of the others for ten minutes, unless it is not", () => {
  const lookUps = new LookUps();
  const name = "known.wild.example.com";
  const admit = () => lookUps.begin("a", at(name)).end("admitted");
  admit();
  begin(lookUps, "wild.example.com", 500, "failed");
  const known = lookUps.begin("a", at(name));
  expect(known.inLine).toBeNull();
  known.end(null);
  const again = lookUps.begin("a", at(name));
  expect(again.inLine).toBeNull();
  again.end("waits");
  expect(lookUps.begin("a", at(name)).inLine).not.toBeNull();
  nowMs += 1_000;
  expect(lookUps.begin("a", at(name)).inLine?.isCalled()).toBe(true);
  admit();
  nowMs += 600_000;
  begin(lookUps, "wild.example.com", 500, "failed");
  expect(lookUps.begin("a", at(name)).inLine, "it was ten minutes ago").not.toBeNull();
});

test("names that were admitted pass by those that wait as long as no more than five hundred are owed", () => {
  const lookUps = new LookUps();
  const known = Array.from({ length: 2_000 }, (_, n) => at(`known${n}.example.com`));
  for (const one of known) lookUps.begin("a", one).end("admitted");
  begin(lookUps, "example.com", 500, "failed");
  stand(lookUps, "example.com", 500, "failed");
  nowMs += 10_000;
  const come = () =>
    known.filter((one) => {
      const { inLine, end } = lookUps.begin("a", one);
      end("failed");
      return inLine === null;
    }).length;
  expect(come()).toBe(1_000);
  nowMs += 1_000;
  expect(come(), "it is owed").toBeLessThanOrEqual(50);
});

test("a name that has had to wait for its turn is behind no more than a new one", () => {
  const lookUps = new LookUps();
  const healthy = () => lookUps.begin("a", at("healthy.example.com"));
  healthy().end("failed");
  begin(lookUps, "example.com", 499, "failed");
  nowMs += 1_800_000;
  healthy().end("waits");
  begin(lookUps, "other.example.com", 500, "failed");
  // Known to lead nowhere, even from half an hour ago.
  stand(lookUps, "example.com", 499, "failed");
  const { inLine } = healthy();
  expect(pass(inLine!.isCalled)).toBeLessThan(1_000);
});

test("names that have failed before and new ones take turns", () => {
  const lookUps = new LookUps();
  const hosts = Array.from({ length: 1_500 }, (_, n) => `dead${n}.example.com`);
  const dead = comeAndFail(lookUps, hosts);
  pass(() => dead() < 0);
  const { come } = stand(lookUps, "example.com", 150, "failed");
  // Behind the dead ones it took 33 s.
  expect(pass(() => dead() > 0 && come() === 0)).toBeLessThan(8_000);
  expect(lookUps.begin("a", at("other.example.com")).inLine, "the others go on").not.toBeNull();
  const line = hosts.map((host) => lookUps.begin("a", at(host)).inLine!);
  nowMs += 5_000;
  expect(line.filter(({ isCalled }) => isCalled()).length).toBeGreaterThan(200);
});

test.each([3, 30])("a name stands behind no thousands of new ones in %d other domains", (domains) => {
  const lookUps = new LookUps();
  const hosts = Array.from({ length: 6_000 }, (_, n) => `${n}.dead${n % domains}.example`);
  const dead = comeAndFail(lookUps, hosts);
  dead();
  const { come } = stand(lookUps, "own.example", 3, "admitted");
  // Behind all others it took 50 s.
  expect(pass(() => dead() > 0 && come() === 0)).toBeLessThanOrEqual(1_500);
  expect(dead()).toBeLessThan(2_000);
});

test("nobody waits in a domain that nobody waits in any more", () => {
  const lookUps = new LookUps();
  for (const domain of ["one.example", "other.example"]) begin(lookUps, domain, 500, "waits");
  stand(lookUps, "one.example", 300, "waits");
  const { come } = stand(lookUps, "other.example", 1, "waits");
  pass(() => come() === 0);
  nowMs += 1_000;
  expect(begin(lookUps, "other.example", 1, "waits")).toBe(1);
});

test.each([
  ["in their domain", (n: number) => `new${n}.own.example`, []],
  [
    "in their account",
    (n: number) => `new.own${n}.example`,
    Array.from({ length: 9 }, (_, n) => `${n}.example`),
  ],
])("names that come anew stand behind those that wait %s", (_, newName, full) => {
  const lookUps = new LookUps();
  for (const domain of ["own.example", ...full])
    begin(lookUps, domain, full.length === 0 ? 500 : 100, "failed");
  const { come } = stand(lookUps, "own.example", 20, "admitted");
  let published = 0;
  const isOver = () => {
    for (let n = 0; n < 100; n++) lookUps.begin("a", at(newName(published++))).end("failed");
    return come() === 0;
  };
  expect(pass(isOver)).toBeLessThan(10_000);
});

test("receivers at several ports of a name are called one by one", () => {
  const lookUps = new LookUps();
  begin(lookUps, "example.com", 500, "failed");
  const ports = Array.from({ length: 80 }, (_, n) => lookUps.begin("a", at("x.example.com", 1_024 + n)));
  const called = () => ports.filter(({ inLine }) => inLine!.isCalled()).length;
  expect(called()).toBe(0);
  nowMs += 1_000;
  expect(called()).toBe(50);
  nowMs += 1_000;
  expect(called()).toBe(80);
});
