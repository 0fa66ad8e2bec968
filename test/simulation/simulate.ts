// npm run simulate -- [--seed N] [--histories N]: one history step by step, or many and what happened in them.
import { parseArgs } from "node:util";
import { History } from "./history.ts";
import { playHistories } from "./tally.ts";

const { values } = parseArgs({ options: { seed: { type: "string" }, histories: { type: "string" } } });

if (values.seed !== undefined && values.histories === undefined) tell(Number(values.seed));
else playMany(Number(values.seed ?? 1), Number(values.histories ?? 100_000));

function tell(seed: number): void {
  const history = new History(seed, (operation) => console.log(JSON.stringify(operation)));
  try {
    history.play();
    console.log("No violation.");
  } catch (error) {
    console.log(String(error));
    process.exitCode = 1;
  }
  for (const delivery of history.rows.deliveries) console.log(JSON.stringify(delivery));
}

function playMany(firstSeed: number, count: number): void {
  const startedAt = performance.now();
  const tally = playHistories(firstSeed, count);
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  console.log(`${count} histories from seed ${firstSeed} in ${seconds} s, no violation.`);
  for (const [name, times] of [...tally].sort()) console.log(`${String(times).padStart(9)} ${name}`);
}
