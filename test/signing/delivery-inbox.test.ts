import { expect, test } from "vitest";
import { createMemoryInbox } from "../../src/signing/index.ts";

test("accepts each id once", async () => {
  const inbox = createMemoryInbox();
  const accepted: string[] = [];
  const outcomes = [];
  for (const id of ["a", "b", "a", "a"])
    outcomes.push(await inbox.acceptOnce(id, () => void accepted.push(id)));
  expect(outcomes).toEqual(["accepted", "accepted", "duplicate", "duplicate"]);
  expect(accepted).toEqual(["a", "b"]);
});

test("accepts again after a failure, and passes the failure on", async () => {
  const inbox = createMemoryInbox();
  for (const failing of [
    () => Promise.reject(new Error("full")),
    () => {
      throw new Error("full");
    },
  ]) {
    await expect(inbox.acceptOnce("a", failing)).rejects.toThrow("full");
  }
  expect(await inbox.acceptOnce("a", () => {})).toBe("accepted");
});

test("a second call waits for the first, and steps in when that fails", async () => {
  const inbox = createMemoryInbox();
  const order: string[] = [];
  const { promise, reject } = Promise.withResolvers<void>();
  const first = inbox.acceptOnce("a", () => promise);
  const others = ["second", "third"].map((name) =>
    inbox.acceptOnce("a", async () => {
      await Promise.resolve();
      order.push(name);
    }),
  );
  reject(new Error("full"));
  await expect(first).rejects.toThrow("full");
  expect(await Promise.all(others)).toEqual(["accepted", "duplicate"]);
  expect(order).toEqual(["second"]);
});

test("forgets the oldest beyond its limit", async () => {
  const inbox = createMemoryInbox({ idsMax: 2 });
  for (const id of ["a", "b", "c"]) await inbox.acceptOnce(id, () => {});
  expect(await inbox.acceptOnce("b", () => {})).toBe("duplicate");
  expect(await inbox.acceptOnce("a", () => {})).toBe("accepted");
});

test("refuses a limit that is none", () => {
  for (const idsMax of [0, -1, 1.5, Number.NaN])
    expect(() => createMemoryInbox({ idsMax })).toThrow(new RangeError("idsMax must be a positive integer."));
});

test("may remember a single one", async () => {
  const inbox = createMemoryInbox({ idsMax: 1 });
  const outcomes = [];
  for (const id of ["a", "a", "b", "a"]) outcomes.push(await inbox.acceptOnce(id, () => {}));
  expect(outcomes).toEqual(["accepted", "duplicate", "accepted", "accepted"]);
});
