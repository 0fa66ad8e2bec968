import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createAccount } from "../../../src/accounts/accounts-sql.ts";
import { sequenceEvents } from "../../../src/feed/feed-sql.ts";
import { SECRETS_KEY } from "../../support/installation.ts";
import { analysisText } from "../analysis.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import type { BenchCase } from "../figures.ts";
import { cpuMicroseconds, memoryMib } from "../measuring/processes.ts";
import { pidOf } from "../processes/asking.ts";
import { seedLog } from "../seeding.ts";

const DELIVERIES = 200_000;
const DAYS = 5;
const WATCH_EVERY_MS = 100;
const SEQUENCER_LEASE_MS = 1_000;
const MAIN = fileURLToPath(new URL("../../../src/main.ts", import.meta.url));

export const move: BenchCase<Bench> = {
  name: "move",
  says:
    "`account move` of an account with 200,000 deliveries of 5 days, each with its analysis, an attempt, a body of " +
    "1 KB and its place in the feed, to another database of the same server.",
  run: async (bench, tell) => {
    const source = await bench.server.createDatabase();
    const target = await bench.server.createDatabase();
    const { accountId } = await createAccount(source.pool, "Large", SECRETS_KEY);
    const deliveries = DELIVERIES * bench.scale;
    await seedLog(source.pool, [accountId], {
      firstDaysAgo: 1,
      days: DAYS,
      deliveries,
      largeAccountId: accountId,
      body: analysisText("seeded", 0),
    });
    await fillFeed(source);
    const moved = await moveWatched(source, target, accountId);
    const rows = await countRows(target, accountId);
    tell(`${rows} rows; closed for ${(moved.closedMs / 1_000).toFixed(1)} s of ${moved.tookMs / 1_000} s`);
    await source.drop();
    await target.drop();
    const closedSeconds = moved.closedMs / 1_000;
    return [
      { name: "closed for writing", value: closedSeconds, unit: "s" },
      { name: "deliveries", value: deliveries / closedSeconds, unit: "/s" },
      { name: "rows", value: rows / closedSeconds, unit: "/s" },
      { name: "RSS of the command, a tenth of it copied", value: moved.earlyRssMib, unit: "MiB" },
      { name: "RSS of the command, at most", value: moved.peakRssMib, unit: "MiB" },
      { name: "CPU of the command", value: (100 * moved.cpuMs) / moved.tookMs, unit: "% of a core" },
    ];
  },
};

/** As the processes of a cell would have done it when it was published. */
async function fillFeed({ pool }: BenchDatabase): Promise<void> {
  const holder = randomUUID();
  while ((await sequenceEvents(pool, holder, SEQUENCER_LEASE_MS)).isFull);
}

type Moved = {
  readonly tookMs: number;
  /** From when publications are refused until the target takes them. */
  readonly closedMs: number;
  readonly earlyRssMib: number;
  readonly peakRssMib: number;
  readonly cpuMs: number;
};

/** The real command in a process of its own. */
async function moveWatched(source: BenchDatabase, target: BenchDatabase, accountId: string): Promise<Moved> {
  const key = SECRETS_KEY.toString("base64");
  const startedAtMs = performance.now();
  const folder = mkdtempSync(join(tmpdir(), "sealpost-move-"));
  const keyFile = join(folder, "key");
  writeFileSync(keyFile, key);
  const there = ["--cell", "c2", "--to", target.url, "--target-secrets-key-file", keyFile];
  const child = spawn(process.execPath, [MAIN, "account", "move", "--account", accountId, ...there], {
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      DATABASE_URL: source.url,
      SECRETS_KEY: key,
    },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const said = new Map<string, number>();
  createInterface(child.stderr).on("line", (line) => said.set(line, performance.now()));
  let cpuMs = 0;
  const rss: number[] = [];
  const watch = setInterval(() => {
    try {
      rss.push(memoryMib(pidOf(child)).now);
      cpuMs = cpuMicroseconds(pidOf(child)) / 1_000;
    } catch {
      // It has just ended.
    }
  }, WATCH_EVERY_MS);
  const [code] = await once(child, "close");
  rmSync(folder, { recursive: true });
  clearInterval(watch);
  if (code !== 0) throw new Error(`account move has ended with ${code}: ${[...said.keys()].join("\n")}`);
  const atOf = (start: string) => [...said].find(([line]) => line.startsWith(start))?.[1] ?? Number.NaN;
  return {
    tookMs: performance.now() - startedAtMs,
    closedMs: atOf("finishing") - atOf("closing the account"),
    earlyRssMib: Math.max(...rss.slice(0, Math.ceil(rss.length / 10))),
    peakRssMib: Math.max(...rss),
    cpuMs,
  };
}

async function countRows({ pool }: BenchDatabase, accountId: string): Promise<number> {
  const tables = ["deliveries", "analyses", "attempts", "bodies", "feed"];
  const counts = tables.map((table) => `(select count(*) from sealpost.${table} where account_id = $1)`);
  const { rows } = await pool.query<{ n: number }>(`select (${counts.join(" + ")})::float8 as n`, [
    accountId,
  ]);
  return rows[0]!.n;
}
