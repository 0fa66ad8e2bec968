// npm run faults -- [--minutes N] [--seed S] [--only NAME,NAME] [--prove]
//
// Plays every fault as thoroughly as its figures are promised (what is left open stays open for N minutes), 2,000
// simulated histories through the real SQL, and then everything at once for N minutes. --only plays scenarios by their
// names, `twin` or `everything`. --prove takes protections out of a copy of the project and asserts that the scenarios
// notice.
import { parseArgs } from "node:util";
import { createDispatchPool } from "../../src/base/database/pools.ts";
import { Chance } from "../simulation/chance.ts";
import { SqlTwin } from "../simulation/sql-twin.ts";
import { watchSlowness } from "../support/suite-setup.ts";
import { inWords } from "./harness/figures.ts";
import { openLongPlace } from "./harness/long-place.ts";
import type { Figures, Place } from "./harness/scenario.ts";
import { prove } from "./prove.ts";
import { playEverything } from "./scenarios/everything.ts";
import { scenarios } from "./scenarios.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "5" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    only: { type: "string" },
    prove: { type: "boolean", default: false },
  },
});
const HISTORIES = 2_000;

process.exitCode = values.prove ? await prove(console.log) : await playAll(Number(values.seed));

async function playAll(seed: number): Promise<number> {
  console.log(`seed ${seed}`);
  const slowness = await watchSlowness();
  const minutes = Number(values.minutes);
  const { place, close } = await openLongPlace(new Chance(seed), minutes);
  const plays: [string, () => Promise<Figures>][] = [
    ...scenarios.map(({ name, play }): [string, () => Promise<Figures>] => [name, () => play(place)]),
    ["twin", () => playTwin(place, seed)],
    ["everything", () => playEverything(place, seed, minutes * 60_000, tell)],
  ];
  const names = plays.map(([name]) => name);
  const only = values.only?.split(",") ?? names;
  const unknown = only.filter((name) => !names.includes(name));
  if (unknown.length > 0) {
    console.log(`There is no ${unknown.join(", ")}, but: ${names.join(", ")}`);
    await close();
    await slowness.stop();
    return 2;
  }
  const asked = plays.filter(([name]) => only.includes(name));
  let failures = 0;
  for (const [name, play] of asked) {
    const startedAt = performance.now();
    try {
      console.log(inWords(name, { ...(await play()), "took s": since(startedAt) }));
    } catch (error) {
      failures++;
      console.log(`${name} FAILED after ${since(startedAt)} s:`, error);
    }
  }
  await close();
  const slowest = await slowness.stop();
  if (slowest > 1)
    console.log(`The machine was up to ${slowest} times slower than usual, and so were time limits.`);
  console.log(`${asked.length - failures} of ${asked.length} held. Again: npm run faults -- --seed ${seed}`);
  return failures > 0 ? 1 : 0;
}

async function playTwin(place: Place, firstSeed: number): Promise<Figures> {
  const { url } = await place.newDatabase();
  const pool = createDispatchPool({
    databaseUrl: url,
    connectionsMax: 2,
    applicationName: "sealpost simulation",
    onError: () => undefined,
  });
  const twin = await SqlTwin.open(pool);
  let operations = 0;
  for (let seed = firstSeed; seed < firstSeed + HISTORIES; seed++) operations += await twin.play(seed);
  await pool.end();
  return { histories: HISTORIES, operations, differences: 0 };
}

function tell(line: string): void {
  console.log(`  ${new Date().toISOString().slice(11, 19)} ${line}`);
}

function since(startedAt: number): number {
  return Math.round((performance.now() - startedAt) / 100) / 10;
}
