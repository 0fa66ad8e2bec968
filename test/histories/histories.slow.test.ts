// The short form of `npm run histories`: some hundreds of histories, and two guards that are found missing.
import { expect, test } from "vitest";
import { inWords } from "../faults/harness/figures.ts";
import { Chance } from "../simulation/chance.ts";
import { patience } from "../support/time-limits.ts";
import { missingChecker } from "./checker.ts";
import { GUARDS } from "./guards.ts";
import { Installation } from "./installation.ts";
import { loadMover, playHistories } from "./lab.ts";
import { prove } from "./twins.ts";

const SEED = 7;
const reason = missingChecker();

test("what clients saw has an order that explains it, and without a guard it has none", {
  timeout: patience(120_000),
}, async ({ skip }) => {
  skip(reason !== null, `no checker of histories: ${reason}`);
  const world = await Installation.start(new Chance(SEED));
  try {
    const mover = await loadMover();
    const { figures, refusals } = await playHistories(world, { count: 300, seed: SEED, mover });
    console.log(inWords("histories", figures));
    expect(refusals).toEqual([]);
    for (const guard of GUARDS.filter(({ sql }) => sql !== null).slice(0, 2))
      expect(await prove(world, guard, SEED), guard.name).toContain("Illegal");
  } finally {
    await world.close();
  }
});
