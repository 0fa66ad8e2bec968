// npm run test:repeat -- 10 --busy 5: does `npm test` depend on luck? Runs it so many times, the last ones beside two
// processes that spin and one that syncs the disk, and prints a table. `--mode all` repeats the whole run instead.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = fileURLToPath(new URL("..", import.meta.url));
const SPIN = "for (;;);";
const SYNC = `
  const { openSync, writeSync, fsyncSync } = require("node:fs");
  const file = openSync(process.argv[1], "w");
  for (;;) { writeSync(file, Buffer.alloc(1 << 20), 0, 1 << 20, 0); fsyncSync(file); }`;

type Row = {
  readonly beside: string;
  readonly minutes: string;
  readonly exit: number | null;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
};

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { busy: { type: "string", default: "0" }, mode: { type: "string", default: "test" } },
});
const [times, busy] = [Number(positionals[0] ?? 1), Number(values.busy)];
if (!Number.isInteger(times) || times < 1 || !Number.isInteger(busy) || busy < 0 || busy > times) {
  console.error("How often, and how often of these busy: npm run test:repeat -- 10 --busy 5");
  process.exit(2);
}

// Whoever ends this ends all that it has started, too.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));
const folder = mkdtempSync(join(tmpdir(), "sealpost-repeat-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const failures: string[] = [];
const rows: Row[] = [];
for (let n = 1; n <= times; n++) rows.push(await runOnce(n, n > times - busy));
console.table(rows);
for (const failure of failures) console.log(failure);
if (failures.length > 0) process.exitCode = 1;

async function runOnce(n: number, isBusy: boolean): Promise<Row> {
  const neighbours = isBusy ? [node(SPIN), node(SPIN), node(SYNC, join(folder, "synced"))] : [];
  const report = join(folder, `${n}.json`);
  const reporters = ["--reporter=dot", "--reporter=json", `--outputFile.json=${report}`];
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const startedAt = performance.now();
  const child = spawn(process.execPath, [vitest, "run", `--mode=${values.mode}`, ...reporters], {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
  });
  const end = () => child.kill();
  process.on("exit", end);
  const [exit] = (await once(child, "exit")) as [number | null];
  process.off("exit", end);
  const minutes = (performance.now() - startedAt) / 60_000;
  for (const one of neighbours) one.kill("SIGKILL");
  const { numPassedTests, numFailedTests, numPendingTests, testResults } = existsSync(report)
    ? JSON.parse(readFileSync(report, "utf8"))
    : { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, testResults: [] };
  const broken = testResults.flatMap((file: FileResult) => [
    ...(file.status === "failed" && file.assertionResults.length === 0 ? [file.name] : []),
    ...file.assertionResults
      .filter(({ status }) => status === "failed")
      .map(({ fullName }) => `${file.name}: ${fullName}`),
  ]);
  failures.push(...broken.map((name: string) => `run ${n}: ${name}`));
  if (exit !== 0 && broken.length === 0) failures.push(`run ${n}: exit ${exit}`);
  return {
    beside: isBusy ? "two spinning, one syncing" : "nothing",
    minutes: minutes.toFixed(1),
    exit,
    passed: numPassedTests,
    failed: numFailedTests,
    skipped: numPendingTests,
  };
}

type FileResult = {
  readonly name: string;
  readonly status: string;
  readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
};

/** Ends with this process at the latest: a neighbour must not outlive its run. */
function node(script: string, ...args: string[]): ChildProcess {
  const child = spawn(process.execPath, ["-e", script, ...args], { stdio: "ignore" });
  process.on("exit", () => child.kill("SIGKILL"));
  return child;
}
