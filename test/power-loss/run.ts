// npm run power-loss -- [--cuts N] [--seed S] [--prove]
//
// Cuts the power N times (default: 100) under PostgreSQL's data, and for a third of them under everything. With --prove
// it runs on a server as it should be, which has to hold, and on servers that do not sync, acknowledge before they do,
// or leave out full pages: exits 0 when the loss was found on each of them.
import { parseArgs } from "node:util";
import { inWords } from "../faults/harness/figures.ts";
import { Chance } from "../simulation/chance.ts";
import { watchSlowness } from "../support/suite-setup.ts";
import { LATE_SYNC, playPowerCuts } from "./power-cuts.ts";

const { values } = parseArgs({
  options: {
    cuts: { type: "string", default: "100" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    prove: { type: "boolean", default: false },
  },
});
const seed = Number(values.seed);
const cuts = Number(values.cuts);
console.log(`seed ${seed}`);
const slowness = await watchSlowness();
const code = values.prove ? await prove() : await play();
await slowness.stop();
// After a loss there may be publishers who ask for ever.
process.exit(code);

async function play(): Promise<number> {
  try {
    const figures = await playPowerCuts({ cuts, chance: new Chance(seed), tell: console.log });
    console.log(inWords("power-loss", figures));
    return 0;
  } catch (error) {
    console.log("power-loss FAILED:", (error as Error).cause ?? error);
    return 1;
  }
}

async function prove(): Promise<number> {
  if ((await play()) !== 0) return 1;
  let missed = 0;
  const servers = {
    fsync: { settings: { fsync: "off" } },
    full_page_writes: { settings: { full_page_writes: "off" } },
    synchronous_commit: LATE_SYNC,
  };
  for (const [setting, server] of Object.entries(servers)) {
    const found = await playPowerCuts({ cuts, chance: new Chance(seed), ...server }).then(
      () => null,
      (error: Error) => error.message.split("\n", 4).join(" "),
    );
    console.log(`${setting} off: ${found ?? "NOTHING WAS FOUND"}`);
    if (found === null) missed++;
  }
  return missed === 0 ? 0 : 1;
}
