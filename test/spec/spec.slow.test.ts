// The short form of `npm run spec`.
import { afterAll, expect, it } from "vitest";
import { Chance } from "../simulation/chance.ts";
import { createTestDatabase } from "../support/database.ts";
import { patience } from "../support/time-limits.ts";
import { findLossInSpec, findLossInSql, SQL_GUARDS } from "./guards.ts";
import { Spec } from "./quint.ts";
import { RealSql } from "./real-sql.ts";
import { playTrace, simulate } from "./searches.ts";

const STEPS = 20_000;
const TRACES = 50;

async function newCells(): Promise<[string, string]> {
  const cells = [await createTestDatabase(), await createTestDatabase()] as const;
  afterAll(() => Promise.all(cells.map((cell) => cell.drop())));
  return [cells[0].url, cells[1].url];
}
const [cells, otherCells] = [await newCells(), await newCells()];

it(
  `no invariant of the specification is violated in ${STEPS} steps, of which each happens`,
  () => {
    const spec = new Spec("short");
    const tally = simulate(spec, new Chance(1), STEPS, 60);
    for (const action of spec.actions) expect(tally.get(action), action).toBeGreaterThan(10);
  },
  patience(60_000),
);

it(
  `PostgreSQL holds after every step of ${TRACES} traces what the specification says`,
  async () => {
    const real = await RealSql.open(cells);
    let steps = 0;
    for (let trace = 0; trace < TRACES; trace++) {
      const spec = new Spec(trace % 5 === 0 ? "short" : "unmoved");
      steps += await real.play(spec, playTrace(spec, new Chance(trace), 30));
    }
    await real.close();
    expect(steps).toBe(TRACES * 30);
  },
  patience(60_000),
);

it(
  "the loss of the fence is found in the specification and in PostgreSQL",
  async () => {
    expect(findLossInSpec("fence", new Chance(1), STEPS)).toBe("zombiesChangeNothing");
    expect(await findLossInSql(SQL_GUARDS[0]!, otherCells, 1, TRACES)).not.toBeNull();
  },
  patience(60_000),
);
