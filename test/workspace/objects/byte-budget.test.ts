import { expect, test } from "vitest";
import { ByteBudget } from "../../../src/workspace/objects/byte-budget.ts";

const never = new AbortController().signal;

test("who takes more than is left waits, and those behind as well", async () => {
  const budget = new ByteBudget(10);
  const order: string[] = [];
  const letGo = await budget.take(8, null, never);
  const take = async (name: string, bytes: number) => {
    const release = await budget.take(bytes, null, never);
    order.push(name);
    release();
  };
  const both = [take("large", 10), take("small", 1)];
  letGo();
  await Promise.all(both);
  expect(order).toEqual(["large", "small"]);
});

test("who is aborted leaves the queue to those behind", async () => {
  const budget = new ByteBudget(10);
  const letGo = await budget.take(8, null, never);
  const controller = new AbortController();
  const large = budget.take(10, null, controller.signal);
  const small = budget.take(2, null, never);
  controller.abort(new Error("enough"));
  await expect(large).rejects.toThrow("enough");
  (await small)();
  letGo();
  await budget.take(10, null, never);
});

test("one has half of it, and whoever waits for its own share is in nobody's way", async () => {
  const budget = new ByteBudget(10);
  const letGo = await budget.take(3, "ada", never);
  await budget.take(2, "ada", never);
  const order: string[] = [];
  const third = budget.take(2, "ada", never).then(() => order.push("ada"));
  await budget.take(5, "bob", never);
  order.push("bob");
  expect([budget.tryTake(1, "ada"), budget.tryTake(1, "eve")]).toEqual([null, null]);
  letGo();
  letGo();
  await third;
  expect(order).toEqual(["bob", "ada"]);
  expect([budget.tryTake(2, "eve"), budget.tryTake(1, "eve")]).toEqual([null, expect.any(Function)]);
});
