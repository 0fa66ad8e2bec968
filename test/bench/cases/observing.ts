import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Bench } from "../bench.ts";
import { type BenchCase, type Figure, median } from "../figures.ts";
import { deliver } from "./throughput.ts";

const UNCOUNTED = fileURLToPath(new URL("../processes/uncounted-dispatcher.ts", import.meta.url));
/** Of four: without, with, with, without, so that a machine that slows down slows both down. */
const ROUNDS = 2;

export async function inTurn<Found>(measure: (isOn: boolean) => Promise<Found>) {
  const off: Found[] = [];
  const on: Found[] = [];
  for (let round = 0; round < ROUNDS; round++)
    for (const isOn of [false, true, true, false]) (isOn ? on : off).push(await measure(isOn));
  return { off, on };
}
const SCRAPE_EVERY_MS = 5_000;

type Found = { readonly perSecond: number; readonly cpu: number; readonly bytes: number };

export const observing: BenchCase<Bench> = {
  name: "observing",
  says:
    "What metrics (read every 5 s) and a log line for each attempt (LOG_LEVEL=debug, to a file) cost: the whole path " +
    "as in throughput, in turn with them and with a dispatcher that counts and logs nothing.",
  run: async (bench, tell) => {
    const { off, on } = await inTurn((isOn) => measure(bench, tell, isOn));
    const share = medianOf(on, "perSecond") / medianOf(off, "perSecond");
    const cpuShare = medianOf(on, "cpu") / medianOf(off, "cpu");
    return [
      { name: "deliveries, observed", value: medianOf(on, "perSecond"), unit: "/s" },
      { name: "deliveries, not observed", value: medianOf(off, "perSecond"), unit: "/s" },
      { name: "observed ÷ not observed", value: share, unit: "", goal: { atLeast: 0.9 } },
      { name: "CPU of the dispatcher, observed", value: medianOf(on, "cpu"), unit: "µs per delivery" },
      { name: "CPU of the dispatcher, not observed", value: medianOf(off, "cpu"), unit: "µs per delivery" },
      { name: "CPU, observed ÷ not observed", value: cpuShare, unit: "", goal: { atMost: 1.1 } },
      { name: "log", value: medianOf(on, "bytes"), unit: "bytes per delivery" },
    ] satisfies Figure[];
  },
};

async function measure(bench: Bench, tell: (line: string) => void, isObserved: boolean): Promise<Found> {
  const folder = await mkdtemp(join(tmpdir(), "sealpost-observing-"));
  const outputFile = join(folder, "log");
  const observed = { env: { LOG_LEVEL: "debug" }, outputFile, scrapeEveryMs: SCRAPE_EVERY_MS };
  const dispatcher = isObserved ? observed : { program: UNCOUNTED };
  const { measured, published } = await deliver(bench, {
    inFlight: bench.inFlightMax ?? 256,
    tell,
    dispatcher,
  });
  const bytes = isObserved ? (await stat(outputFile)).size / published : 0;
  await rm(folder, { recursive: true });
  tell(`${isObserved ? "observed" : "not observed"}: ${Math.round(measured.perSecond)}/s`);
  return { perSecond: measured.perSecond, cpu: measured.cpu.get("dispatcher") ?? Number.NaN, bytes };
}

function medianOf(found: readonly Found[], figure: keyof Found): number {
  return median(found.map((one) => one[figure]));
}
