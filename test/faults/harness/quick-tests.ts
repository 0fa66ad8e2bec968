import { describe, it, vi } from "vitest";
import { patience } from "../../support/time-limits.ts";
import { inWords } from "./figures.ts";
import { quickPlace } from "./quick-place.ts";
import type { Scenario } from "./scenario.ts";

/** A test for each scenario, played quickly; the figures are printed. */
export function describeQuickly(title: string, scenarios: readonly Scenario[]): void {
  const place = quickPlace();
  // They wait for deadlines and leases more than they work, so they wait together; but each starts several processes,
  // and with more at once a machine with two cores would be what is tested.
  vi.setConfig({ maxConcurrency: 3 });
  describe.concurrent(title, () => {
    for (const { name, fault, play } of scenarios) {
      it(`${name}: ${fault}`, { timeout: patience(180_000) }, async () => {
        console.log(inWords(name, await play(place)));
      });
    }
  });
}
