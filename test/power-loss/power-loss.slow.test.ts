// The short form of `npm run power-loss`: two cuts, and that the lab finds what a server loses that does not sync.
import { expect, test } from "vitest";
import { inWords } from "../faults/harness/figures.ts";
import { Chance } from "../simulation/chance.ts";
import { patience } from "../support/time-limits.ts";
import { LazyFs } from "./lazy-fs.ts";
import { LATE_SYNC, playPowerCuts } from "./power-cuts.ts";

/** Null: none can be mounted here, as in most containers; the reason is the machine's. */
const reason = await LazyFs.mount().then(
  (disk) => disk.end().then(() => null),
  (error: Error) => error.message,
);
if (reason !== null) console.log(`no file system can be mounted here, so no power is cut: ${reason}`);

test.skipIf(reason !== null)(
  "what was acknowledged survives cuts of the power, once",
  {
    timeout: patience(240_000),
  },
  async () => {
    console.log(inWords("power-loss", await playPowerCuts({ cuts: 2, chance: new Chance(7) })));
  },
);

test.skipIf(reason !== null)(
  "the loss of a server that acknowledges before it syncs is found",
  {
    timeout: patience(240_000),
  },
  async () => {
    const chance = new Chance(7);
    await expect(playPowerCuts({ cuts: 2, chance, ...LATE_SYNC })).rejects.toThrow(
      "what was acknowledged is not there",
    );
  },
);
