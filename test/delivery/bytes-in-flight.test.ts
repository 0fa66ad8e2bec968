import { expect, test } from "vitest";
import { BytesInFlight } from "../../src/delivery/dispatcher.ts";

const MIB = 1024 * 1024;

function watched() {
  const held = new Set<string>();
  const bytes = new BytesInFlight((accountId, isOverBudget) => {
    if (isOverBudget) held.add(accountId);
    else held.delete(accountId);
  });
  return { bytes, held };
}

test("an account alone gets nearly half of the memory for bodies, and goes on when some of it is free again", () => {
  const { bytes, held } = watched();
  for (let n = 0; n < 28; n++) bytes.count("a", MIB);
  expect(held.size).toBe(0);
  bytes.count("a", 1);
  expect([...held]).toEqual(["a"]);
  expect([bytes.free, bytes.accountsOverBudget]).toEqual([36 * MIB - 1, 1]);
  bytes.count("a", -1);
  expect([held.size, bytes.accountsOverBudget]).toEqual([0, 0]);
});

test("twenty greedy accounts leave room for the next", () => {
  const { bytes, held } = watched();
  for (let n = 0; n < 20; n++) while (!held.has(`greedy${n}`)) bytes.count(`greedy${n}`, MIB / 8);
  expect(bytes.free).toBeGreaterThan(4 * MIB);
  bytes.count("next", MIB / 20);
  expect(held.has("next")).toBe(false);
  for (let n = 0; n < 19; n++) bytes.count(`greedy${n}`, -MIB);
  expect(held.has("greedy19"), "freed by others, it goes on").toBe(false);
});
