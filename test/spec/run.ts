// npm run spec -- [--steps N] [--traces N] [--seed S] [--prove]
//
// Simulates the specification for N steps (default: 1,000,000), searches small instances of it exhaustively, and plays
// N of its traces (default: 1,000) against the real SQL. With --prove it takes each guard out of the specification, and
// out of the real SQL, one at a time: exits 0 when the loss of each was found, else 1 with the list of those that were
// not.
import { parseArgs } from "node:util";
import { inWords } from "../faults/harness/figures.ts";
import { openLongPlace } from "../faults/harness/long-place.ts";
import type { Place } from "../faults/harness/scenario.ts";
import { Chance } from "../simulation/chance.ts";
import { findGuards, findLossInSpec, findLossInSql, SQL_GUARDS } from "./guards.ts";
import { Spec } from "./quint.ts";
import { compareWithQuint } from "./quint-evaluator.ts";
import { RealSql } from "./real-sql.ts";
import { explore, playTrace, simulate } from "./searches.ts";

const { values } = parseArgs({
  options: {
    steps: { type: "string", default: "1000000" },
    traces: { type: "string", default: "1000" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    prove: { type: "boolean", default: false },
  },
});
const seed = Number(values.seed);
const STEPS_OF_TRACE = 60;
const STATES_COMPARED_WITH_QUINT = 300;
const STEPS_TO_PROVE = 500_000;
const TRACES_TO_PROVE = 150;

console.log(`seed ${seed}`);
const { place, close } = await openLongPlace(new Chance(seed), 0);
try {
  if (values.prove) await prove(place);
  else await search(place);
} catch (error) {
  console.log("spec FAILED:", error);
  process.exitCode = 1;
} finally {
  await close();
}

async function search(place: Place): Promise<void> {
  await timed("agrees with Quint's evaluator", () => {
    const compared = compareWithQuint(
      new Spec("short"),
      "short",
      new Chance(seed),
      STATES_COMPARED_WITH_QUINT,
      STEPS_OF_TRACE,
    );
    return { "states compared": compared, differences: 0 };
  });
  for (const [instance, share] of [
    ["short", 0.6],
    ["many", 0.4],
  ] as const) {
    await timed(`simulated ${instance}`, () => {
      const steps = Number(values.steps) * share;
      const tally = simulate(
        new Spec(instance),
        new Chance(seed),
        steps,
        instance === "many" ? 300 : STEPS_OF_TRACE,
      );
      const traces = tally.get("traces")!;
      tally.delete("traces");
      for (const action of new Spec(instance).actions)
        if (!tally.has(action)) throw new Error(`nothing was ever done by ${action}`);
      return { traces, steps: [...tally.values()].reduce((sum, n) => sum + n, 0), violations: 0 };
    });
  }
  for (const instance of ["staying", "moving"]) {
    await timed(`searched ${instance}`, () => ({ ...explore(new Spec(instance)), violations: 0 }));
  }
  await timed("replayed against PostgreSQL", async () => {
    const real = await RealSql.open(await newCells(place));
    const traces = Number(values.traces);
    let steps = 0;
    for (let trace = 0; trace < traces; trace++) {
      const spec = new Spec((["unmoved", "short", "unmoved", "many"] as const)[trace % 4]!);
      steps += await real.play(spec, playTrace(spec, new Chance(seed + trace), STEPS_OF_TRACE));
    }
    await real.close();
    return { traces, steps, differences: 0 };
  });
}

async function prove(place: Place): Promise<void> {
  const missed: string[] = [];
  const tell = (what: string, guard: string, found: string | null) => {
    console.log(`${what} without "${guard}": ${found ?? "NOTHING WAS FOUND"}`);
    if (found === null) missed.push(guard);
  };
  for (const guard of findGuards())
    tell("specification", guard, findLossInSpec(guard, new Chance(seed), STEPS_TO_PROVE));
  for (const guard of SQL_GUARDS)
    tell("PostgreSQL", guard.name, await findLossInSql(guard, await newCells(place), seed, TRACES_TO_PROVE));
  console.log(missed.length === 0 ? "Every loss was found." : `Not found: ${missed.join("; ")}`);
  if (missed.length > 0) process.exitCode = 1;
}

async function newCells(place: Place): Promise<[string, string]> {
  return [(await place.newDatabase()).url, (await place.newDatabase()).url];
}

type Figures = Readonly<Record<string, number>>;

async function timed(name: string, work: () => Figures | Promise<Figures>): Promise<void> {
  const startedAt = performance.now();
  const figures = await work();
  console.log(
    inWords(name, { ...figures, "took s": Math.round((performance.now() - startedAt) / 100) / 10 }),
  );
}
