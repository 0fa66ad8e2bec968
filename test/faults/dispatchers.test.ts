import { describe, expect, it } from "vitest";
import { quickPlace } from "./harness/quick-place.ts";
import * as killed from "./scenarios/killed.ts";
import * as stopped from "./scenarios/stopped.ts";

const place = quickPlace();

// They wait for leases to end more than they work, so they wait together.
describe.concurrent("dispatchers", () => {
  for (const { name, fault, play } of [...Object.values(killed), ...Object.values(stopped)]) {
    it(`${name}: ${fault}`, { timeout: 120_000 }, async () => {
      expect(await play(place)).toBeDefined();
    });
  }
});
