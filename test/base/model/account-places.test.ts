import { fc, test as prop } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { AccountPlaces } from "../../../src/base/model/account-places.ts";
import { Bench, NEVER, turn } from "../../support/places-bench.ts";

const accounts = (count: number) => Array.from({ length: count }, (_, n) => `greedy-${n}`);

it("of accounts that come at once, what is short comes before what takes long", async () => {
  const bench = new Bench({ placesMax: 2, lightMs: 250 });
  for (const accountId of accounts(20)) void bench.ask(accountId, NEVER, 1, 1, 2_000);
  void bench.ask("victim", NEVER, 1, 1, 10);
  await turn();
  expect(bench.started).toEqual(accounts(2));
  await bench.end("greedy-0");
  expect(bench.started).toEqual([...accounts(2), "victim"]);
});

describe.each([2, 20, 200])("beside %i greedy accounts the next one has a place", (count) => {
  it("where they come one after the other, each taking all that it gets, as long as fewer come than are kept", () => {
    const bench = new Bench({ placesMax: 1_000 });
    for (const accountId of accounts(count)) expect(bench.takeAll(accountId)).toBeGreaterThan(0);
    expect(bench.tryTake("victim")).toBe(true);
  });

  it("where they take turns", () => {
    const bench = new Bench({ placesMax: 1_000 });
    let isMore = true;
    while (isMore) isMore = accounts(count).filter((accountId) => bench.tryTake(accountId)).length > 0;
    expect(bench.tryTake("victim")).toBe(true);
  });

  it("whatever moves too slowly makes room, however few places there are", () => {
    const bench = new Bench({ placesMax: 8, movingBytesPerSecond: 1_000 });
    for (const accountId of accounts(count)) bench.takeAll(accountId);
    bench.nowMs += 12_000;
    for (let n = 0; n < 8; n++) expect(bench.tryTake(`victim-${n}`), `victim ${n}`).toBe(true);
    expect(bench.tryTake("another"), "beside eight that have just begun").toBe(false);
  });

  it("the next place that is free is its, if they have held any lately", async () => {
    const bench = new Bench({ placesMax: 2, lightMs: 100 });
    for (const accountId of accounts(count)) await bench.askMany(accountId, 3);
    for (let n = 0; n < count; n++) {
      bench.nowMs += 1_000;
      await bench.end(bench.taken[0]!.accountId);
    }
    for (let tries = 0; tries < 20; tries++) {
      await bench.askMany("victim", 1);
      bench.nowMs += 4;
      if (bench.places.held("victim") === 0) await bench.end(bench.taken[0]!.accountId);
      expect(bench.places.held("victim"), `try ${tries}`).toBe(1);
      await bench.end("victim");
    }
  });
});

const step = fc.record({
  account: fc.nat({ max: 30 }),
  user: fc.constantFrom("", " ", " u", " v"),
  act: fc.constantFrom("take", "take", "take", "wait", "end"),
  places: fc.integer({ min: 1, max: 5 }),
});

prop.prop([fc.integer({ min: 4, max: 64 }), fc.array(step, { maxLength: 300 })])(
  "never are more taken than there are, no account that holds some takes a kept one, and all come back",
  async (placesMax, steps) => {
    const bench = new Bench({ placesMax });
    const kept = Math.ceil(placesMax / 4);
    const leaving = new AbortController();
    const asked: Promise<unknown>[] = [];
    for (const { account, user, act, places } of steps) {
      const sharer = `a${account}${user}`;
      const before = { held: bench.places.held(`a${account}`), taken: bench.places.taken };
      if (act === "take" && bench.tryTake(sharer, places) && before.held > 0)
        expect(placesMax - bench.places.taken).toBeGreaterThanOrEqual(kept);
      if (act === "wait") asked.push(bench.ask(sharer, leaving.signal, 1, places).catch(() => undefined));
      if (act === "end" && bench.taken.some((one) => one.accountId === sharer)) await bench.end(sharer);
      expect(bench.places.taken).toBeLessThanOrEqual(placesMax);
    }
    leaving.abort();
    await Promise.all(asked);
    while (bench.taken.length > 0) await bench.end(bench.taken[0]!.accountId);
    expect(bench.places.taken).toBe(0);
    expect(bench.tryTake("a0", placesMax)).toBe(true);
  },
);

describe("an account", () => {
  it("alone has half of all, and less beside others", () => {
    const bench = new Bench({ placesMax: 96 });
    expect(accounts(6).map((accountId) => bench.takeAll(accountId))).toEqual([48, 16, 6, 2, 1, 1]);
  });

  it("that has none comes first, then the one that has the fewest, and among equals in turn", async () => {
    const bench = new Bench({ placesMax: 8 });
    for (const accountId of accounts(8)) bench.takeAll(accountId);
    for (const [accountId, count] of [
      ["a", 3],
      ["b", 2],
      ["c", 1],
    ] as const)
      await bench.askMany(accountId, count);
    const before = bench.started.length;
    for (let n = 0; n < 4; n++) await bench.end("greedy-0");
    for (const accountId of accounts(8).slice(1)) await bench.end(accountId);
    expect(bench.started.slice(before)).toEqual(["a", "b", "c", "a", "b", "a"]);
  });

  it("that leaves before its turn has none, and is in nobody's way", async () => {
    const bench = new Bench({ placesMax: 1 });
    bench.tryTake("a");
    const leaving = new AbortController();
    const asking = bench.ask("b", leaving.signal);
    await bench.askMany("c", 1);
    leaving.abort(new Error("gone"));
    await expect(asking).rejects.toThrow("gone");
    await bench.end("a");
    expect(bench.started).toEqual(["a", "c"]);
    await expect(bench.ask("d", leaving.signal)).rejects.toThrow("gone");
  });

  it("that wants several gets as many as there are, if fewer do", () => {
    const bench = new Bench({ placesMax: 12 });
    expect(bench.tryTake("large", 9, 1)).toBe(true);
    expect(bench.places.taken).toBe(9);
    expect(bench.tryTake("large", 9, 1), "one such at a time").toBe(false);
    expect(bench.tryTake("other", 9, 1)).toBe(true);
    expect(bench.places.taken).toBe(10);
  });

  it("that wants several and no fewer waits for them, and nobody comes before it for ever", async () => {
    const bench = new Bench({ placesMax: 12 });
    bench.tryTake("a", 6);
    await Promise.all([bench.ask("b", NEVER, 3), turn()]);
    void bench.ask("large", NEVER, 6);
    await turn();
    expect([bench.tryTake("small"), bench.started]).toEqual([false, ["a", "b"]]);
    await bench.end("a");
    expect(bench.started).toEqual(["a", "b", "large"]);
  });

  it("that has none gets a kept place at once, though another waits for more than is left beside those", async () => {
    const bench = new Bench({ placesMax: 16 });
    bench.tryTake("a", 8);
    bench.tryTake("b", 1);
    void bench.ask("b", NEVER, 4);
    await turn();
    void bench.ask("new", NEVER, 4);
    await turn();
    expect(bench.started).toEqual(["a", "b", "new"]);
  });

  it("that has held places for long leaves the kept ones to others, for a while", async () => {
    const bench = new Bench({ placesMax: 4, lightMs: 100 });
    bench.tryTake("heavy");
    bench.nowMs += 1_000;
    await bench.end("heavy");
    for (const accountId of accounts(3)) bench.tryTake(accountId);
    expect([bench.tryTake("heavy"), bench.tryTake("light")]).toEqual([false, true]);
    await bench.end("light");
    bench.nowMs += 300_000;
    expect(bench.tryTake("heavy")).toBe(true);
  });
});

describe.each([2, 20])("an account that was busy, beside %i newcomers that want all there is", (count) => {
  it.each([
    ["of pieces of the thread", { placesMax: 1, keptPlaces: 0, lightMs: 0 }, 25],
    ["of passwords", { placesMax: 3, lightMs: 1_000 }, 250],
  ])("has its turn %s soon, again and again", async (_, options, pieceMs) => {
    const bench = new Bench(options);
    bench.tryTake("busy");
    bench.nowMs += 60_000;
    await bench.end("busy");
    for (const accountId of accounts(count)) await bench.askMany(accountId, 500);
    const goOn = async () => {
      bench.nowMs += pieceMs;
      for (const { accountId } of [...bench.taken]) await bench.end(accountId);
    };
    // Until none of them is a light one any more, who have kept places.
    while (bench.nowMs < 60_000 + count * 1_000) await goOn();
    for (let turns = 0; turns < 5; turns++) {
      void bench.ask("busy");
      const since = bench.nowMs;
      const before = bench.started.length;
      while (!bench.started.slice(before).includes("busy")) await goOn();
      expect(bench.nowMs - since, `${turns}`).toBeLessThan(4_000);
    }
  });
});

describe("what moves too slowly", () => {
  const RATE = { placesMax: 4, movingBytesPerSecond: 1_000 };
  function full(): Bench {
    const bench = new Bench(RATE);
    for (const accountId of ["a", "b", "c", "d"]) bench.tryTake(accountId);
    return bench;
  }

  it("is cut, the slowest first, once an account that has none needs a place, and not before", () => {
    const bench = full();
    for (let second = 0; second < 24; second++) {
      bench.nowMs += 1_000;
      for (const [accountId, bytes] of [
        ["a", 1_000],
        ["b", 999],
        ["c", 10],
        ["d", 500],
      ] as const)
        bench.move(accountId, bytes);
    }
    expect([bench.tryTake("a"), bench.cut]).toEqual([false, []]);
    expect([bench.tryTake("e"), bench.cut]).toEqual([true, ["c"]]);
    expect([bench.tryTake("f"), bench.cut]).toEqual([true, ["c", "d"]]);
    expect([bench.tryTake("g"), bench.cut], "the others are fast enough, or new").toEqual([
      false,
      ["c", "d"],
    ]);
  });

  it("is not what moves in bursts, fast enough in all", () => {
    const bench = full();
    for (let burst = 0; burst < 10; burst++) {
      bench.nowMs += 8_000;
      for (const accountId of ["b", "c", "d"]) bench.move(accountId, 8_000);
      bench.move("a", 4_000);
    }
    expect([bench.tryTake("e"), bench.tryTake("f"), bench.cut]).toEqual([true, false, ["a"]]);
  });

  it("is not what waits for us", () => {
    const bench = full();
    for (const { place } of bench.taken) place.rest();
    bench.nowMs += 60_000;
    expect(bench.tryTake("e")).toBe(false);
    bench.move("a", 0);
    expect(bench.tryTake("e")).toBe(false);
    bench.nowMs += 11_000;
    expect([bench.tryTake("e"), bench.cut]).toEqual([true, ["a"]]);
  });

  it("gains nothing by resting and moving in turn", () => {
    const bench = full();
    for (let second = 0; second < 24; second++) {
      bench.nowMs += 1_000;
      bench.move("a", 1_000);
      bench.move("b", 1_000);
      bench.move("c", 1_000);
      bench.move("d", 10);
      bench.taken[3]!.place.rest();
      bench.move("d", 10);
    }
    expect([bench.tryTake("e"), bench.cut]).toEqual([true, ["d"]]);
  });

  it("makes room for who waits as soon as it is too slow", async () => {
    const places = new AccountPlaces({ placesMax: 1, movingBytesPerSecond: 1_000, stillMs: 100 });
    let isCut = false;
    places.tryTake("a", {
      onCut: () => {
        isCut = true;
      },
    });
    const place = await places.take("b", {}, NEVER);
    expect([isCut, places.held("a"), places.held("b")]).toEqual([true, 0, 1]);
    place.giveBack();
    place.giveBack();
    expect(places.taken).toBe(0);
  });
});
