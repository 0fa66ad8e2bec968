import { expect, test } from "vitest";
import { ByteBudget } from "../../../src/workspace/objects/byte-budget.ts";

const never = new AbortController().signal;

test("who takes more than is left waits, and those behind as well", async () => {
  const budget = new ByteBudget(10);
  const order: string[] = [];
  const letGo = await budget.take(8, never);
  const take = async (name: string, bytes: number) => {
    const release = await budget.take(bytes, never);
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
  const letGo = await budget.take(8, never);
  const controller = new AbortController();
  const large = budget.take(10, controller.signal);
  const small = budget.take(2, never);
  controller.abort(new Error("enough"));
  await expect(large).rejects.toThrow("enough");
  (await small)();
  letGo();
  await budget.take(10, never);
});
