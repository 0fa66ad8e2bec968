import { describe, expect, it } from "vitest";
import { TemporarilyUnavailable } from "../../src/api/problems.ts";
import { WorkPlaces } from "../../src/api/work-places.ts";
import { patience } from "../support/time-limits.ts";

const LONG_MS = patience(10_000);

/** Work that is under way until it is ended, by account. */
class Bench {
  readonly #places: WorkPlaces;
  readonly #underWay: { readonly accountId: string; readonly end: () => void }[] = [];
  readonly started: string[] = [];

  constructor(placesMax: number) {
    this.#places = new WorkPlaces(placesMax);
  }

  ask(accountId: string, { waitMs = LONG_MS, places = 1 } = {}): Promise<void> {
    return this.#places.run(accountId, places, waitMs, () => {
      this.started.push(accountId);
      const { promise, resolve: end } = Promise.withResolvers<void>();
      this.#underWay.push({ accountId, end });
      return promise;
    });
  }

  async askMany(accountId: string, count: number): Promise<void> {
    for (let n = 0; n < count; n++) void this.ask(accountId);
    await turn();
  }

  async end(accountId: string): Promise<void> {
    const at = this.#underWay.findIndex((one) => one.accountId === accountId);
    const [ended] = this.#underWay.splice(at, 1);
    ended!.end();
    await turn();
  }

  held(accountId: string): number {
    return this.#underWay.filter((one) => one.accountId === accountId).length;
  }
}

/** All promises that can settle by themselves have settled. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("places at work", () => {
  it("are three quarters of all for an account alone, and the next one has one at once", async () => {
    const bench = new Bench(12);
    await bench.askMany("greedy", 100);
    expect(bench.held("greedy")).toBe(9);
    await bench.askMany("next", 1);
    expect(bench.held("next")).toBe(1);
  });

  it("are given to accounts that have none before any of the greedy ones gets another", async () => {
    const bench = new Bench(12);
    for (let n = 0; n < 6; n++) await bench.askMany(`greedy-${n}`, 100);
    expect([bench.held("greedy-0"), bench.held("greedy-1")]).toEqual([9, 3]);
    await bench.askMany("late", 1);
    for (let n = 0; n < 5; n++) await bench.end("greedy-0");
    expect(bench.started.slice(12)).toEqual(["greedy-2", "greedy-3", "greedy-4", "greedy-5", "late"]);
  });

  it("go to whoever waits and has the fewest, and among equals in turn", async () => {
    const bench = new Bench(1);
    await bench.askMany("a", 3);
    await bench.askMany("b", 2);
    await bench.askMany("c", 1);
    for (const next of ["a", "a", "b", "c", "a", "b"]) {
      expect(bench.held(next)).toBe(1);
      await bench.end(next);
    }
    expect(bench.started).toEqual(["a", "a", "b", "c", "a", "b"]);
  });

  it("that do not come in time are refused, and the work is not begun", async () => {
    const bench = new Bench(1);
    await bench.askMany("a", 1);
    await expect(bench.ask("b", { waitMs: 1 })).rejects.toThrow(TemporarilyUnavailable);
    await bench.end("a");
    expect(bench.started).toEqual(["a"]);
    await bench.askMany("c", 1);
    expect(bench.held("c")).toBe(1);
  });

  it("are several for large work, and one account has one of that at a time", async () => {
    const bench = new Bench(12);
    for (let n = 0; n < 3; n++) void bench.ask("large", { places: 9 });
    await bench.askMany("next", 1);
    expect(bench.started).toEqual(["large", "next"]);
    await bench.end("next");
    void bench.ask("other", { places: 9 });
    await turn();
    expect(bench.held("other"), "though fewer are free").toBe(1);
    await bench.askMany("next", 1);
    expect(bench.held("next")).toBe(0);
    await bench.end("large");
    await bench.end("other");
    expect(bench.started.slice(2), "in turn").toEqual(["other", "large", "next"]);
  });

  it("are free again after work that fails", async () => {
    const places = new WorkPlaces(1);
    const failing = () => places.run("a", 1, LONG_MS, () => Promise.reject(new Error("x")));
    for (let n = 0; n < 3; n++) await expect(failing()).rejects.toThrow("x");
  });
});
