/**
 * `npm run bench`: measures how fast Sealpost is and whether anybody waits for somebody else.
 *   -- --only limit,throughput    these cases alone
 *   -- --scale 0.1                a quick run: a tenth of the deliveries and seconds
 *   -- --profile                  where the time of a delivery goes; this alone
 *   -- --cells 1,2                one cell on a core, and two on two; this alone, with HAProxy
 *   -- --consent                  receivers have to be proven, and are
 *   -- --json                     figures for machines on standard output
 *   -- --in-flight 256            DISPATCH_IN_FLIGHT_MAX, in place of the number at which the limit is best
 *   -- --node-flags="…"          Node's flags for the dispatcher, in place of the recommended ones
 *   -- --postgres a=b,c=d         PostgreSQL settings besides the recommended ones
 * TEST_DATABASE_URL in the environment: the address of a PostgreSQL on this machine, in place of the embedded one.
 * Ends with exit code 1 when a case failed; a goal that is missed is no failure of the benchmark.
 */
import { parseArgs } from "node:util";
import { type Bench, openBench } from "./bench.ts";
import { apiReads } from "./cases/api-reads.ts";
import { backlog } from "./cases/backlog.ts";
import { cells } from "./cases/cells.ts";
import { consolePages } from "./cases/console/console.ts";
import { deploy } from "./cases/deploy.ts";
import { feed } from "./cases/feed.ts";
import { backup, heldSnapshot } from "./cases/held-snapshot.ts";
import { httpEndpoint } from "./cases/http-endpoint.ts";
import { httpLatency } from "./cases/http-latency.ts";
import { idle } from "./cases/idle.ts";
import { isolation } from "./cases/isolation/isolation.ts";
import { latency } from "./cases/latency.ts";
import { limit } from "./cases/limit.ts";
import { log } from "./cases/log.ts";
import { move } from "./cases/move.ts";
import { newReceivers } from "./cases/new-receivers.ts";
import { observing } from "./cases/observing.ts";
import { profile } from "./cases/profile.ts";
import { retention } from "./cases/retention.ts";
import { runs } from "./cases/runs.ts";
import { scaleOut } from "./cases/scale-out.ts";
import { sqlBatches } from "./cases/sql-batches.ts";
import { sqlSingle } from "./cases/sql-single.ts";
import { throughput } from "./cases/throughput.ts";
import { tracing } from "./cases/tracing.ts";
import { zipf } from "./cases/zipf.ts";
import { type BenchCase, type CaseReport, describeReport, isMet } from "./figures.ts";

/** What customers do first; then what shows how far it can go. */
const CASES: readonly BenchCase<Bench>[] = [
  httpEndpoint,
  httpLatency,
  idle,
  heldSnapshot,
  backup,
  sqlSingle,
  sqlBatches,
  zipf,
  limit,
  throughput,
  backlog,
  latency,
  isolation,
  deploy,
  newReceivers,
  scaleOut,
  log,
  consolePages,
  retention,
  move,
  apiReads,
  feed,
  runs,
  observing,
  tracing,
];
/** Only where they are asked for. */
const LONG = [heldSnapshot, backup];
const { values: wishes } = parseArgs({
  options: {
    only: { type: "string" },
    scale: { type: "string", default: "1" },
    profile: { type: "boolean", default: false },
    cells: { type: "string" },
    json: { type: "boolean", default: false },
    consent: { type: "boolean", default: false },
    "in-flight": { type: "string" },
    "node-flags": { type: "string" },
    postgres: { type: "string" },
  },
});

const names = wishes.only?.split(",");
const asked = [...(wishes.profile ? [profile] : []), ...(wishes.cells === undefined ? [] : [cells])];
const chosen =
  asked.length > 0 ? asked : CASES.filter((each) => names?.includes(each.name) ?? !LONG.includes(each));
const unknown = names?.filter((name) => !CASES.some((known) => known.name === name)) ?? [];
const scale = Number(wishes.scale);
const cellCounts = wishes.cells?.split(",").map(Number) ?? [];
if (unknown.length > 0 || !(scale > 0)) {
  const known = CASES.map((each) => each.name).join(",");
  process.stderr.write(`Give --only some of ${known}, and --scale a number above 0.\n`);
  process.exit(2);
}
if (cellCounts.some((count) => count !== 1 && count !== 2)) {
  process.stderr.write("Give --cells 1, 2 or 1,2.\n");
  process.exit(2);
}

const tell = (line: string) => process.stderr.write(`  ${line}\n`);
const bench = await openBench({
  scale,
  cellCounts,
  inFlightMax: wishes["in-flight"] === undefined ? null : Number(wishes["in-flight"]),
  consents: wishes.consent,
  nodeFlags: wishes["node-flags"]?.split(" ").filter((flag) => flag !== "") ?? null,
  settings: Object.fromEntries(wishes.postgres?.split(",").map((setting) => setting.split("=")) ?? []),
});

process.stderr.write(`${bench.server.description}\n`);
const reports: CaseReport[] = [];
try {
  for (const each of chosen) {
    process.stderr.write(`${each.name} …\n`);
    try {
      const report = { name: each.name, says: each.says, figures: await each.run(bench, tell) };
      reports.push(report);
      if (!wishes.json) process.stdout.write(`${describeReport(report)}\n\n`);
    } catch (error) {
      process.exitCode = 1;
      await bench.endLeftovers();
      process.stderr.write(`${each.name} failed: ${error instanceof Error ? error.stack : error}\n`);
    }
  }
} finally {
  await bench.stop();
}
if (wishes.json)
  process.stdout.write(
    `${JSON.stringify({ scale, postgres: bench.server.description, cases: reports.map(withVerdicts) }, null, 2)}\n`,
  );

function withVerdicts(report: CaseReport): unknown {
  return { ...report, figures: report.figures.map((figure) => ({ ...figure, isMet: isMet(figure) })) };
}
