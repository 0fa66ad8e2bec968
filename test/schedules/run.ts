// npm run schedules -- [--runs N] [--seed S] [--prove]
//
// Plays N random schedules (default: 100,000) of lanes, claims and records, of the recorder alone, and of writes that
// share transactions. With --prove it takes their guards out of a copy of the project, one after the other, and exits 0
// when each was missed.
import { parseArgs } from "node:util";
import { proveSchedules } from "./prove.ts";
import { type PartName, playSchedules, SHARES } from "./schedules.ts";

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "100000" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    prove: { type: "boolean", default: false },
  },
});
const { runs, seed, prove } = values;
console.log(`seed ${seed}`);
process.exitCode = prove ? await proveSchedules(Number(seed), console.log) : await play();

async function play(): Promise<number> {
  for (const [part, share] of Object.entries(SHARES)) {
    const count = Math.round(Number(runs) * share);
    const startedAt = performance.now();
    try {
      await playSchedules(part as PartName, count, Number(seed));
    } catch (error) {
      console.log(part, error);
      return 1;
    }
    const seconds = Math.round((performance.now() - startedAt) / 100) / 10;
    console.log(`${part}: ${count} schedules in ${seconds} s, no violation`);
  }
  return 0;
}
