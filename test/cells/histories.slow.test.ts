import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { patience } from "../support/time-limits.ts";
import { History } from "./history.ts";
import { startWorld, type World } from "./world.ts";

declare module "vitest" {
  interface ProvidedContext {
    moveHistories: number;
  }
}

const HISTORY_MS_MAX = 60_000;

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world?.close());

const count = inject("moveHistories");
// MOVE_SEED repeats one history of a run that failed, as far as the machine lets it.
const firstSeed = Number(process.env.MOVE_SEED ?? 1);

it(
  `nothing is lost, sent twice or published twice in ${count} random histories of moves that are killed`,
  async () => {
    let kills = 0;
    for (let seed = firstSeed; seed < firstSeed + count; seed++) {
      const history = new History(world, seed);
      await history.play().catch((cause: unknown) => {
        throw new Error(`seed ${seed}: ${String(cause)}`, { cause });
      });
      kills += history.kills;
    }
    console.log(`${kills} kills in ${count} histories`);
    if (count >= 10) expect(kills).toBeGreaterThan(count);
  },
  patience(count * HISTORY_MS_MAX),
);
