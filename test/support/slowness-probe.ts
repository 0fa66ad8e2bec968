// A thread that measures every second how long a fixed piece of work takes, and writes the slowness to a file.
import { renameSync, writeFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";

const ROUNDS = 10_000_000;
/** What the rounds took on an idle core of the reference machine, and alongside the suite. */
const IDLE_MS = 17;
const USUAL_MS = 2 * IDLE_MS;
const SLOWNESS_MAX = 20;

const FIRST_SAMPLES = 3;
const EVERY_MS = 1_000;
const REMEMBERED_MS = 60_000;
/** A single sample may be an outlier. */
const AVERAGED_SAMPLES = 3;

function work(): number {
  let state = 1;
  for (let round = 0; round < ROUNDS; round++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
  }
  return state;
}

function measureMs(): number {
  const startedAt = performance.now();
  work();
  return performance.now() - startedAt;
}

const { file } = workerData as { readonly file: string };
const lately: number[] = [];
const averages: { readonly at: number; readonly ms: number }[] = [];

function sample(): void {
  lately.push(measureMs());
  if (lately.length > AVERAGED_SAMPLES) lately.shift();
  const now = performance.now();
  averages.push({ at: now, ms: lately.reduce((sum, ms) => sum + ms, 0) / lately.length });
  while (averages[0]!.at < now - REMEMBERED_MS) averages.shift();
}

/** Replaced atomically, so that nobody reads half a number. */
function tell(): void {
  const ratio = Math.max(...averages.map(({ ms }) => ms)) / USUAL_MS;
  const slowness = Math.min(Math.max(ratio, 1), SLOWNESS_MAX).toFixed(1);
  writeFileSync(`${file}.new`, slowness);
  renameSync(`${file}.new`, file);
  parentPort?.postMessage(Number(slowness));
}

// Slow until it is compiled.
measureMs();
for (let n = 0; n < FIRST_SAMPLES; n++) sample();
tell();
for (;;) {
  await wait(EVERY_MS);
  sample();
  tell();
}
