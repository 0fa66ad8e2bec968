// vitest global setup: prints how long the suite takes, and measures how slow the machine is, for its time limits.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import type { TestProject } from "vitest/node";
import { SLOWNESS_FILE_VARIABLE, slowness } from "./time-limits.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** How long the tests of this configuration took on so many cores. */
    suite: { readonly minutes: number; readonly cores: number };
    /** Requests that a fuzz test makes of each operation. */
    fuzzRuns: number;
  }
}

/** Below, a machine is as it usually is beside the suite. */
const NOTABLE_SLOWNESS = 1.5;

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-slowness-"));
  const file = join(folder, "slowness");
  const probe = new Worker(new URL("./slowness-probe.ts", import.meta.url), { workerData: { file } });
  let worst = 1;
  probe.on("message", (measured: number) => {
    worst = Math.max(worst, measured);
  });
  await once(probe, "message");
  process.env[SLOWNESS_FILE_VARIABLE] = file;

  const { minutes, cores } = project.getProvidedContext().suite;
  const now = slowness();
  const pace = now === 1 ? "as fast as usual" : `${now} times slower than usual, and so are the time limits`;
  console.log(
    `All tests take about ${Math.ceil(minutes)} minutes on ${cores} cores. This machine has ` +
      `${availableParallelism()} and is ${pace}: expect ${Math.ceil(minutes * now)} minutes.`,
  );
  return async () => {
    await probe.terminate();
    if (worst >= NOTABLE_SLOWNESS) console.log(slownessNotice(worst));
    rmSync(folder, { recursive: true });
  };
}

function slownessNotice(worst: number): string {
  return (
    `This machine was up to ${worst} times slower than usual. If a test has failed, and on a time, it may have been ` +
    "the machine: run that file by itself (npx vitest run FILE) before you look for a fault."
  );
}
