// npm run histories -- [--count N] [--seed S] [--only MODEL,MODEL] [--prove]
//
// Records what clients of real processes saw, each operation with its times, while processes are killed, sessions are
// ended and the database is restarted; and has every history judged by a checker that we did not write: Porcupine
// (github.com/anishathalye/porcupine), which looks for one order of the operations that explains all answers. Needs
// Go. What is right in one order is said in checker/models.go, a few lines for each model:
//
// | model | a history | what holds |
// |---|---|---|
// | idempotency | requests under one key | the first takes it; again it is told the same, another is refused |
// | analysis | one id, published by HTTP and SQL, and read | what was acknowledged is read, and never changes |
// | draft | a workflow's draft | it is saved and published only at the revision that was named |
// | pause | an endpoint, paused, resumed and posted to | while it is paused no POST is claimed |
// | feed | an account's feed and its readers | all read one list, with all that was acknowledged, nothing twice |
// | cell | an account that moves, and is called back | it is open in one cell, or in none |
//
// Plays N histories (default: 10,000) and exits 0 if none was refused; those that were are in .cache/histories, as
// pages and as text. What has no answer may take place at any time until the end. --prove plays a tenth of them, and
// then takes the guards of guards.ts away, one by one: exits 0 if the checker finds each of them missing, 1 with the
// list of those that it does not.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { inWords } from "../faults/harness/figures.ts";
import { Chance } from "../simulation/chance.ts";
import { watchSlowness } from "../support/suite-setup.ts";
import { MODELS } from "./checker.ts";
import { GUARDS } from "./guards.ts";
import { Installation } from "./installation.ts";
import { loadMover, PICTURES, playHistories } from "./lab.ts";
import { prove } from "./twins.ts";

const { values } = parseArgs({
  options: {
    count: { type: "string", default: "10000" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    only: { type: "string", default: MODELS.join(",") },
    prove: { type: "boolean", default: false },
  },
});
const seed = Number(values.seed);
const only = values.only.split(",");
const models = MODELS.filter((model) => only.includes(model));
if (models.length < only.length) {
  console.log(`There is no ${values.only}, but: ${MODELS.join(", ")}`);
  process.exit(2);
}
console.log(`seed ${seed}`);
const slowness = await watchSlowness();
const world = await Installation.start(new Chance(seed));
try {
  const failures = (await play()) + (values.prove ? await proveAll() : 0);
  process.exitCode = failures > 0 ? 1 : 0;
} finally {
  await world.close();
  await slowness.stop();
}

async function play(): Promise<number> {
  const count = Number(values.count) / (values.prove ? 10 : 1);
  const options = { count, seed, models, mover: await loadMover() };
  const { figures, refusals } = await playHistories(world, options);
  for (const { name, verdict, history } of refusals) {
    mkdirSync(PICTURES, { recursive: true });
    const path = join(PICTURES, `${name}.json`);
    writeFileSync(path, JSON.stringify(history, null, 1));
    console.log(`${name}: ${verdict}, ${path}`);
  }
  console.log(inWords("histories", figures));
  return refusals.length;
}

async function proveAll(): Promise<number> {
  const missed: string[] = [];
  for (const guard of GUARDS.filter(({ model }) => models.includes(model))) {
    const found = await prove(world, guard, seed);
    if (found === null) missed.push(guard.name);
    console.log(`${guard.model}, without ${guard.name}: ${found ?? "NOTHING WAS FOUND"}`);
  }
  console.log(missed.length === 0 ? "Each was found." : `Not found: ${missed.join("; ")}`);
  return missed.length;
}
