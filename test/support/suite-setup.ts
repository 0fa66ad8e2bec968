// vitest global setup: says what runs, how long that takes and what is left out; measures how slow the machine is, for
// the tests' time limits.
import { once } from "node:events";
import { globSync, mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import type { TestProject } from "vitest/node";
import { SLOWNESS_FILE_VARIABLE, slowness } from "./time-limits.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The configuration's mode, and how long its tests took on so many cores. */
    suite: { readonly mode: string; readonly minutes: number; readonly cores: number };
    /** Requests that a fuzz test makes of each operation. */
    fuzzRuns: number;
    /** Random histories of accounts that move. */
    moveHistories: number;
  }
}

/** Below, a machine is as it usually is beside the suite. */
const NOTABLE_SLOWNESS = 1.5;

/** Measures in a thread of its own from now on; `stop` says how slow it was at worst. */
export async function watchSlowness(): Promise<{ stop(): Promise<number> }> {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-slowness-"));
  const file = join(folder, "slowness");
  const probe = new Worker(new URL("./slowness-probe.ts", import.meta.url), { workerData: { file } });
  let worst = 1;
  probe.on("message", (measured: number) => {
    worst = Math.max(worst, measured);
  });
  await once(probe, "message");
  process.env[SLOWNESS_FILE_VARIABLE] = file;
  return {
    stop: async () => {
      await probe.terminate();
      delete process.env[SLOWNESS_FILE_VARIABLE];
      rmSync(folder, { recursive: true });
      return worst;
    },
  };
}

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const watch = await watchSlowness();
  const { mode, minutes, cores } = project.getProvidedContext().suite;
  const now = slowness();
  const pace = now === 1 ? "as fast as usual" : `${now} times slower than usual, and so are the time limits`;
  console.log(
    `These tests take about ${Math.ceil(minutes)} minutes on ${cores} cores. This machine has ` +
      `${availableParallelism()} and is ${pace}: expect ${Math.ceil(minutes * now)} minutes.`,
  );
  return async () => {
    const worst = await watch.stop();
    if (mode === "test") console.log(leftOut());
    if (worst >= NOTABLE_SLOWNESS) console.log(slownessNotice(worst));
  };
}

function leftOut(): string {
  const files = globSync("test/**/*.slow.test.ts").length;
  return (
    `Left out: ${files} files, and the tests shown as skipped, which take long or need other programs than Node ` +
    "and npm: faults, kills, upgrades, moves, browsers, proxies, S3, other languages. `npm run test:all` runs them."
  );
}

function slownessNotice(worst: number): string {
  return (
    `This machine was up to ${worst} times slower than usual. If a test has failed, and on a time, it may have been ` +
    "the machine: run that file by itself (npx vitest run FILE) before you look for a fault."
  );
}
