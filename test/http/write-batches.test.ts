import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  LOCK_WAIT_IN_BATCH_MS,
  WRITE_BYTES_IN_BATCH_MAX,
  WRITES_PER_BATCH_MAX,
  WRITTEN_BYTES_PER_BATCH_MAX,
} from "../../src/http/limits.ts";
import { Problem, TemporarilyUnavailable } from "../../src/http/problems.ts";
import { FOR_EVER_MS, openBatches } from "../support/api-toy-batches.ts";
import type { ToyIdempotencyStore } from "../support/api-toy-stores.ts";

/** A gate that is shut until it is opened, and tells when somebody stands before it. */
function gate() {
  const { promise: opened, resolve: letThrough } = Promise.withResolvers<void>();
  const { promise: reached, resolve: tell } = Promise.withResolvers<void>();
  onTestFinished(() => letThrough());
  const pass = () => {
    tell();
    return opened;
  };
  return { reached, letThrough, pass };
}

const numbered = (prefix: string, count: number) => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

describe("writes that come while a transaction runs", () => {
  test("go together in the next one, accounts in turn", async () => {
    const { world, add, batches } = openBatches();
    const first = gate();
    world.gate = first.pass;
    const running = add("first");
    await first.reached;
    const rest = [
      ...numbered("a", 3).map((item) => add(item)),
      ...numbered("b", 2).map((item) => add(item, { account: "b" })),
    ];
    world.gate = async () => {};
    first.letThrough();
    expect(await Promise.all([running, ...rest])).toEqual(["first", "a0", "a1", "a2", "b0", "b1"]);
    expect(batches).toEqual([["first"], ["a0", "b0", "a1", "b1", "a2"]]);
  });

  test("are so many at most, and so many bytes", async () => {
    const { add, batches } = openBatches();
    await Promise.all(numbered("n", WRITES_PER_BATCH_MAX + 1).map((item) => add(item)));
    expect(batches.map(({ length }) => length)).toEqual([WRITES_PER_BATCH_MAX, 1]);
    batches.length = 0;
    const bytes = WRITE_BYTES_IN_BATCH_MAX;
    const fitting = WRITTEN_BYTES_PER_BATCH_MAX / bytes;
    await Promise.all(numbered("b", fitting + 1).map((item) => add(item, { bytes })));
    expect(batches.map(({ length }) => length)).toEqual([fitting, 1]);
  });

  test("have one transaction each where they are large", async () => {
    const { add, batches } = openBatches();
    const bytes = WRITE_BYTES_IN_BATCH_MAX + 1;
    await Promise.all([add("large", { bytes }), add("small"), add("another", { bytes }), add("small too")]);
    expect(batches.toSorted((one, other) => one.length - other.length)).toEqual([
      ["large"],
      ["another"],
      ["small", "small too"],
    ]);
  });

  test("are apart where they have one name, or one key", async () => {
    const { add, batches, effects } = openBatches();
    const answers = await Promise.all([
      add("one", { name: "same" }),
      add("other", { name: "same" }),
      add("one", { name: "same", account: "b" }),
      add("keyed", { key: "k", name: "one name" }),
      add("keyed", { key: "k", name: "another" }),
      add("unnamed", { name: null }),
      add("unnamed", { name: null }),
    ]);
    expect(answers).toEqual(["one", "other", "one", "keyed", "again keyed", "unnamed", "unnamed"]);
    expect(batches[0]).toEqual(["one", "one", "keyed", "unnamed", "unnamed"]);
    expect(batches[1]).toEqual(["other"]);
    expect(effects.filter((item) => item === "keyed")).toHaveLength(1);
  });

  test("are refused one by one, and a repeat of what was answered is answered all the same", async () => {
    const { add, refused, effects } = openBatches();
    refused.add("sealed");
    const problem = new Problem("invalid_request");
    await add("known", { key: "k" });
    const results = await Promise.allSettled([
      add("good"),
      add("sealed"),
      add("never asked", { problem }),
      add("known", { key: "k", problem }),
      add("another", { key: "k" }),
    ]);
    expect(results).toEqual([
      { status: "fulfilled", value: "good" },
      { status: "rejected", reason: expect.objectContaining({ code: "box_sealed" }) },
      { status: "rejected", reason: problem },
      { status: "fulfilled", value: "again known" },
      { status: "rejected", reason: expect.objectContaining({ code: "idempotency_key_reused" }) },
    ]);
    expect(effects).toEqual(["known", "good"]);
  });
});

describe("a batch that fails", () => {
  test("is taken apart by accounts, then into single writes; only the culprit fails", async () => {
    const { add, poison, batches, effects } = openBatches();
    poison.set("bad", new Error("refused by the database"));
    const results = await Promise.allSettled([
      add("a0"),
      add("bad"),
      add("b0", { account: "b" }),
      add("a1"),
      add("b1", { account: "b" }),
    ]);
    expect(results.map(({ status }) => status === "fulfilled")).toEqual([true, false, true, true, true]);
    expect(results[1]).toMatchObject({ reason: { message: "refused by the database" } });
    expect(batches).toEqual([
      ["a0", "b0", "bad", "b1", "a1"],
      ["a0", "bad", "a1"],
      ["b0", "b1"],
      ["a0"],
      ["bad"],
      ["a1"],
    ]);
    expect(effects.toSorted()).toEqual(["a0", "a1", "b0", "b1"]);
  });

  test.each<[string, (toy: ToyIdempotencyStore) => Partial<ToyIdempotencyStore>]>([
    [
      "claiming",
      (toy) => ({
        claimedTogether: async (claims, work) => {
          if (claims.some(({ idempotencyKey }) => idempotencyKey === "bad")) throw new Error("broken");
          return await toy.claimedTogether(claims, work);
        },
      }),
    ],
    [
      "storing the answers",
      (toy) => ({
        claimedTogether: (claims, work) =>
          toy.claimedTogether(claims, async (tx, states) => {
            const done = await work(tx, states);
            if (done.completed.some(({ claim }) => claim.idempotencyKey === "bad")) throw new Error("broken");
            return done;
          }),
      }),
    ],
  ])("while %s, too", async (_, change) => {
    const { add, effects } = openBatches(change);
    const results = await Promise.allSettled([add("good"), add("bad", { key: "bad" }), add("fine")]);
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect(effects.toSorted()).toEqual(["fine", "good"]);
  });

  test("after its commit, without saying so, is no second effect", async () => {
    let fails = 1;
    const { add, effects } = openBatches((toy) => ({
      claimedTogether: async (claims, work) => {
        const result = await toy.claimedTogether(claims, work);
        if (fails-- > 0) throw new Error("who knows");
        return result;
      },
    }));
    expect(await Promise.all([add("one"), add("other")])).toEqual(["again one", "again other"]);
    expect(effects).toEqual(["one", "other"]);
  });

  test("because the database is away fails as a whole, and what comes then does not", async () => {
    const { add, world, batches } = openBatches();
    world.gate = () => Promise.reject(new TemporarilyUnavailable("away"));
    const results = await Promise.allSettled(numbered("n", 5).map((item) => add(item)));
    expect(results.map(({ status }) => status)).toEqual(Array(5).fill("rejected"));
    expect(batches).toHaveLength(1);
    world.gate = async () => {};
    expect(await Promise.all(numbered("n", 5).map((item) => add(item)))).toEqual(numbered("n", 5));
  });
});

describe("a write that meets a lock", () => {
  test("is tried until it is free, and those of other accounts no longer go with its account's", async () => {
    const { add, locked, batches } = openBatches();
    locked.add("held");
    const waiting = [add("held"), add("beside"), add("neighbour", { account: "b" })];
    expect(await Promise.all(waiting.slice(1))).toEqual(["beside", "neighbour"]);
    await tried(batches, "held", 3);
    batches.length = 0;
    await Promise.all([add("more"), add("next", { account: "b" }), add("most")]);
    expect(batches).toContainEqual(["next"]);
    expect(batches).toContainEqual(["more", "most"]);
    locked.clear();
    expect(await waiting[0]).toBe("held");
  });

  test("is given up with its caller, and a repeat is found when the lock is free", async () => {
    const { add, locked } = openBatches();
    locked.add("held");
    await expect(add("held", { key: "k", waitMs: LOCK_WAIT_IN_BATCH_MS })).rejects.toThrow(
      TemporarilyUnavailable,
    );
    const repeat = add("held", { key: "k" });
    locked.clear();
    expect(await repeat).toBe("held");
  });

  test("lets the next of its name go on, answered or given up, when nothing else comes", async () => {
    const { add, locked } = openBatches();
    locked.add("held").add("given up");
    const both = [add("held"), add("held")];
    const results = await Promise.allSettled([
      add("given up", { waitMs: LOCK_WAIT_IN_BATCH_MS }),
      add("next", { name: "given up" }),
    ]);
    expect(results).toEqual([
      { status: "rejected", reason: expect.any(TemporarilyUnavailable) },
      { status: "fulfilled", value: "next" },
    ]);
    locked.clear();
    expect(await Promise.all(both)).toEqual(["held", "held"]);
  });

  test("leaves a place for others that meet one, however many there are of its account", async () => {
    const { add, locked, batches } = openBatches();
    for (const item of [...numbered("held", 60), "neighbour"]) locked.add(item);
    const flood = numbered("held", 60).map((item) => add(item));
    await tried(batches, "held59", 1);
    const neighbour = add("neighbour", { account: "b" });
    await tried(batches, "neighbour", 2);
    const before = batches.length;
    await tried(batches, "neighbour", 2);
    // In turn: not after sixty others.
    expect(batches.length - before).toBeLessThan(20);
    locked.clear();
    expect(await neighbour).toBe("neighbour");
    await Promise.all(flood);
  });
});

/** Resolves when it was performed so many times more. */
async function tried(batches: readonly (readonly string[])[], item: string, times: number): Promise<void> {
  const count = () => batches.filter((batch) => batch.includes(item)).length;
  const wanted = count() + times;
  while (count() < wanted) await new Promise(setImmediate);
}

test("a batch that hangs does not keep the others from going on", async () => {
  const { world, add } = openBatches();
  const hanging = gate();
  world.gate = (items) => (items[0] === "hangs" ? hanging.pass() : Promise.resolve());
  const first = add("hangs");
  await hanging.reached;
  expect(await Promise.all([add("goes", { account: "c" }), add("too")])).toEqual(["goes", "too"]);
  hanging.letThrough();
  expect(await first).toBe("hangs");
});

test("a large request that hangs, or many, keep no small one from going on", async () => {
  const { world, add } = openBatches();
  const hanging = gate();
  world.gate = (items) => (items[0]!.startsWith("large") ? hanging.pass() : Promise.resolve());
  const large = numbered("large", 20).map((item) => add(item, { bytes: WRITE_BYTES_IN_BATCH_MAX + 1 }));
  expect(await add("small")).toBe("small");
  hanging.letThrough();
  expect(await Promise.all(large)).toEqual(numbered("large", 20));
});

const [accounts, items, keys] = [
  ["a", "b", "c"],
  ["i", "j", "k", "l", "m"],
  ["1", "2", "3"],
] as const;
const scripts = fc.array(
  fc.record({
    item: fc.constantFrom(...items),
    account: fc.constantFrom(...accounts),
    key: fc.constantFrom(...keys, undefined, undefined, undefined),
    bytes: fc.constantFrom(10, WRITE_BYTES_IN_BATCH_MAX, WRITE_BYTES_IN_BATCH_MAX + 1),
    waitMs: fc.constantFrom(5, FOR_EVER_MS, FOR_EVER_MS),
    pause: fc.constantFrom("none", "turn", "lock", "free", "poison", "cure", "away", "back"),
  }),
  { minLength: 1, maxLength: 60, size: "max" },
);

propertyTest.prop([scripts], { numRuns: 60 })(
  "whatever comes: everyone is answered, nothing happens twice, and no name stays held",
  async (script) => {
    const { world, add, locked, poison, effects, batches } = openBatches();
    const answers: Promise<PromiseSettledResult<string>>[] = [];
    const settle = async (work: Promise<string>) => (await Promise.allSettled([work]))[0]!;
    let isAway = false;
    world.gate = async () => {
      await new Promise(setImmediate);
      if (isAway) throw new TemporarilyUnavailable("away");
    };
    for (const { item, account, key, bytes, waitMs, pause } of script) {
      const name = `${account}-${item}`;
      const asked = { account, name, bytes, waitMs };
      answers.push(settle(key === undefined ? add(name, asked) : add(`${name} ${key}`, { ...asked, key })));
      if (pause !== "none") await new Promise(setImmediate);
      if (pause === "lock") for (const one of accounts) locked.add(`${one}-i`).add(`${one}-i 1`);
      if (pause === "free") locked.clear();
      if (pause === "poison") poison.set("a-j", new Error("poison"));
      if (pause === "cure") poison.clear();
      if (pause === "away" || pause === "back") isAway = pause === "away";
    }
    isAway = false;
    locked.clear();
    poison.clear();
    await Promise.all(answers);
    for (const batch of batches) {
      const names = batch.map((item) => item.split(" ")[0]);
      expect(new Set(names).size).toBe(names.length);
    }
    for (const account of accounts) {
      // Every name and every key is free again.
      for (const item of items) expect(await add(item, { account, name: `${account}-${item}` })).toBe(item);
      for (const key of keys) await settle(add(`${account}-i ${key}`, { account, key }));
      const keyed = effects.filter((item) => item.startsWith(account) && item.includes(" "));
      expect(keyed.map((item) => item.split(" ")[1]).toSorted()).toEqual(keys);
    }
  },
);
