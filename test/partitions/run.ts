// npm run partitions -- [--rounds N] [--seed S] [--prove]
//
// N times (default: 20) cuts processes off from their database, in each way once, and a primary off from the
// synchronous standby that takes over. With --prove it runs with a standby that is asynchronous or need not have
// synced, and without one protection after the other: exits 0 when what that breaks was found each time.
import { parseArgs } from "node:util";
import { inWords } from "../faults/harness/figures.ts";
import { openLongPlace } from "../faults/harness/long-place.ts";
import type { Figures } from "../faults/harness/scenario.ts";
import { prove } from "../faults/prove.ts";
import { Chance } from "../simulation/chance.ts";
import { watchSlowness } from "../support/suite-setup.ts";
import { failover, playFailover } from "./failover.ts";
import { line } from "./line.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "20" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    prove: { type: "boolean", default: false },
  },
});
console.log(`seed ${values.seed}`);
const slowness = await watchSlowness();
const { place, close } = await openLongPlace(new Chance(Number(values.seed)), 0);
const code = values.prove ? await proveAll() : await playAll(Number(values.rounds));
await close();
await slowness.stop();
// After a loss there may be publishers who ask for ever.
process.exit(code);

async function playAll(rounds: number): Promise<number> {
  let failures = 0;
  const plays = Array.from({ length: rounds }, () => [line, failover]).flat();
  for (const [nth, { name, play }] of plays.entries()) {
    const found = await faultOf(
      () => play(place),
      (figures) => console.log(inWords(`${nth} ${name}`, figures)),
    );
    if (found === null) continue;
    failures++;
    console.log(`${nth} ${name} FAILED:`, found);
  }
  console.log(`${plays.length - failures} of ${plays.length} held`);
  return failures === 0 ? 0 : 1;
}

/** Servers that a failover loses something of, and what our own code does against it. */
async function proveAll(): Promise<number> {
  const servers: Readonly<Record<string, Parameters<typeof playFailover>[1]>> = {
    "a standby that is asynchronous": { isSynchronous: false },
    "commits that wait for their own disk alone": {
      isSynchronous: false,
      settings: { synchronous_standby_names: "server_1", synchronous_commit: "local" },
    },
  };
  const missed: string[] = [];
  for (const [name, options] of Object.entries(servers)) {
    const found = await faultOf(() => playFailover(place, options));
    console.log(`${name}: ${found?.message.split("\n")[0] ?? "NOTHING WAS FOUND"}`);
    if (found === null) missed.push(name);
  }
  const unproven = await prove(
    console.log,
    ({ file, name }) => file.startsWith("test/partitions/") || name === "the fence",
  );
  if (missed.length > 0) console.log(`not found: ${missed.join(", ")}`);
  return missed.length + unproven === 0 ? 0 : 1;
}

async function faultOf(play: () => Promise<Figures>, tell: (figures: Figures) => void = () => undefined) {
  try {
    tell(await play());
    return null;
  } catch (error) {
    return error as Error;
  }
}
