import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Bench } from "../bench.ts";
import { type BenchCase, type Figure, formatNumber } from "../figures.ts";
import { profilingFlags, sumProfile } from "../measuring/cpu-profile.ts";
import { readStatements, type StatementLine } from "../measuring/statements.ts";
import { cpuFigures, deliver } from "./throughput.ts";

/** Lines that cost less, in µs per delivery, are left out. */
const PLACE_LEAST = 0.4;
const FUNCTIONS_SHOWN = 30;
const STATEMENTS_SHOWN = 10;
const IN_FLIGHT = 64;

/** Not measured with the others: profiling costs a tenth of the time. */
export const profile: BenchCase<Bench> = {
  name: "profile",
  says:
    "Where the time of a delivery goes while the publisher runs: the dispatcher's CPU by file, then by function, and " +
    "PostgreSQL's time by statement.",
  run: async (bench, tell) => {
    const folder = await mkdtemp(join(tmpdir(), "sealpost-profile-"));
    let statements: readonly StatementLine[] = [];
    const { measured, published } = await deliver(bench, {
      inFlight: bench.inFlightMax ?? IN_FLIGHT,
      tell,
      dispatcher: { execArgv: profilingFlags(folder) },
      inspect: async (database) => {
        statements = await readStatements(database);
      },
    });
    const sum = await sumProfile(folder);
    await rm(folder, { recursive: true });
    for (const { name, microseconds } of sum.byFunction.slice(0, FUNCTIONS_SHOWN)) {
      tell(`${formatNumber(microseconds / published).padStart(6)} µs  ${name}`);
    }
    const unit = "µs per delivery";
    return [
      ...cpuFigures(measured),
      { name: "profile: all", value: sum.busyMicroseconds / published, unit },
      ...sum.byPlace
        .map(({ name, microseconds }) => ({
          name: `profile: ${name}`,
          value: microseconds / published,
          unit,
        }))
        .filter(({ value }) => value >= PLACE_LEAST),
      ...statements.slice(0, STATEMENTS_SHOWN).flatMap((statement) => statementFigures(statement, published)),
    ];
  },
};

function statementFigures(statement: StatementLine, published: number): Figure[] {
  const name = statement.text;
  return [
    { name, value: (statement.totalMs * 1000) / published, unit: "µs per delivery" },
    { name: "  … rows", value: statement.rows / statement.calls, unit: "per call" },
    { name: "  … WAL", value: statement.walBytes / published, unit: "bytes per delivery" },
  ];
}
