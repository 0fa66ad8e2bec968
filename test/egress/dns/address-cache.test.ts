import { expect, it } from "vitest";
import { createAddressCache } from "../../../src/egress/dns/address-cache.ts";

it("forgets the oldest name when it is full", () => {
  const cache = createAddressCache(() => 0);
  const resolution = { addresses: [{ address: "1.1.1.1", family: 4 }], lifetimeMs: 30_000 } as const;
  for (let index = 0; index <= 10_000; index += 1) cache.put(`name-${index}`, resolution);
  expect(cache.get("name-0")).toBeUndefined();
  expect(cache.get("name-1")).toBe(resolution);
  expect(cache.get("name-10000")).toBe(resolution);
});

it("counts a name that is put again as new", () => {
  const cache = createAddressCache(() => 0);
  const resolution = { addresses: [{ address: "1.1.1.1", family: 4 }], lifetimeMs: 30_000 } as const;
  cache.put("again", resolution);
  for (let index = 0; index < 9_999; index += 1) cache.put(`name-${index}`, resolution);
  cache.put("again", resolution);
  cache.put("one more", resolution);
  expect(cache.get("again")).toBe(resolution);
  expect(cache.get("name-0")).toBeUndefined();
});
