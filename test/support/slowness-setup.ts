// vitest's global setup: says how long the suite takes, and measures for its time limits how slow the machine is.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { SLOWNESS_FILE_VARIABLE, slowness } from "./time-limits.ts";

/** `npm test` as it was last measured on an otherwise idle machine. */
const MEASURED = { minutes: 5.7, cores: 2 };

export async function setup(): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-slowness-"));
  const file = join(folder, "slowness");
  const probe = new Worker(new URL("./slowness-probe.ts", import.meta.url), { workerData: { file } });
  await once(probe, "message");
  process.env[SLOWNESS_FILE_VARIABLE] = file;

  const { minutes, cores } = MEASURED;
  const minutesNow = Math.ceil(minutes * slowness());
  console.log(
    `All tests take about ${Math.ceil(minutes)} minutes on ${cores} cores. Here are ${availableParallelism()}, ` +
      `${slowness()} times slower than usual now: about ${minutesNow} minutes, with time limits to match.`,
  );
  return async () => {
    await probe.terminate();
    rmSync(folder, { recursive: true });
  };
}
