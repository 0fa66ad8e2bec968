import { describe, expect, it } from "vitest";
import { sharerOf } from "../../../src/base/model/account-places.ts";
import { Bench, NEVER } from "../../support/places-bench.ts";

describe("a user of an account", () => {
  const [greedy, other, own] = ["greedy", "other", null].map((userId) => sharerOf("a", { userId }));
  const TRIES = 20;

  it("has half of what its others leave, and the account itself all of that", () => {
    const bench = new Bench({ placesMax: 96 });
    expect([greedy, other, own].map((sharer) => bench.takeAll(sharer!))).toEqual([24, 12, 12]);
  });

  it.each([
    ["of places for transfers", { placesMax: 96 }, 1],
    ["of bytes", { placesMax: 134_217_728 }, 1_048_576],
    ["beside another account that has all it gets", { placesMax: 96 }, 1],
  ])("who takes all they get keeps nobody else in it from some: %s", (what, options, size) => {
    const bench = new Bench(options);
    if (what.includes("another account")) bench.takeAll("b");
    while (bench.tryTake(greedy!, size));
    for (let n = 0; n < TRIES; n++) {
      for (const sharer of [other!, own!]) {
        expect(bench.tryTake(sharer, size), `${n}`).toBe(true);
        bench.taken.pop()!.place.giveBack();
      }
    }
  });

  it.each([
    ["at the database", { placesMax: 8, lightMs: 1_000 }, 4],
    ["for passwords", { placesMax: 3, lightMs: 1_000 }, 1],
    ["for looking again", { placesMax: 4 }, 1],
  ])("whose work never ends keeps nobody else in it waiting %s", async (_, options, size) => {
    const bench = new Bench(options);
    for (let n = 0; n < 100; n++) void bench.ask(greedy!, NEVER, 1, size);
    for (let n = 0; n < TRIES; n++) {
      bench.nowMs += 1_000;
      for (const sharer of [other!, own!]) {
        await bench.askMany(sharer, 1);
        expect(bench.started.at(-1), `${n}`).toBe(sharer);
        await bench.end(sharer);
      }
    }
  });

  it.each([
    ["of pieces of the thread", { placesMax: 1, keptPlaces: 0, lightMs: 0 }],
    ["of texts to be rendered", { placesMax: 2, lightMs: 250 }],
  ])("who waits for many turns %s lets nobody else in it wait for more than two", async (_, options) => {
    const bench = new Bench(options);
    await bench.askMany(greedy!, 100);
    for (let n = 0; n < TRIES; n++) {
      for (const sharer of [other!, own!]) {
        await bench.askMany(sharer, 1);
        const before = bench.started.length;
        for (let ended = 0; ended < 2 && bench.started.at(-1) !== sharer; ended++) {
          bench.nowMs += 2_000;
          await bench.end(greedy!);
        }
        expect(bench.started.slice(before), `${n}`).toContain(sharer);
        await bench.end(sharer);
      }
    }
  });

  it("whose transfers hardly move makes room for others in it, however many such there are", () => {
    const bench = new Bench({ placesMax: 16, movingBytesPerSecond: 1_000 });
    for (let n = 0; n < 10; n++) bench.takeAll(sharerOf("a", { userId: `slow-${n}` }));
    bench.takeAll("b");
    expect([bench.tryTake(other!), bench.tryTake(own!)], "they have just begun").toEqual([false, false]);
    bench.nowMs += 11_000;
    expect([bench.tryTake(other!), bench.tryTake(own!)]).toEqual([true, true]);
    expect(bench.cut.filter((sharer) => !sharer.startsWith("a slow-"))).toEqual([]);
  });
});
