import { describe, it } from "vitest";
import { inWords } from "./figures.ts";
import { quickPlace } from "./quick-place.ts";
import type { Scenario } from "./scenario.ts";

/** A test for each scenario, played quickly; the figures are printed. */
export function describeQuickly(title: string, scenarios: readonly Scenario[]): void {
  const place = quickPlace();
  // They wait for deadlines and leases more than they work, so they wait together.
  describe.concurrent(title, () => {
    for (const { name, fault, play } of scenarios) {
      it(`${name}: ${fault}`, { timeout: 120_000 }, async () => {
        console.log(inWords(name, await play(place)));
      });
    }
  });
}
