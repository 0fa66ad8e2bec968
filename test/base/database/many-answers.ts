// Asks for 30 KB five thousand times, as dispatchers ask, and tells how many full collections that took.
import { constants, type PerformanceEntry, PerformanceObserver } from "node:perf_hooks";
import { setImmediate as nextTurn } from "node:timers/promises";
import { createDispatchPool } from "../../../src/base/database/pools.ts";

const ANSWERS = 5_000;
const WARM_UP = 1_000;

const pool = createDispatchPool({
  databaseUrl: process.argv[2] ?? "",
  connectionsMax: 2,
  applicationName: "test many answers",
  onError: (error) => console.error(error),
});
let fullCollections = 0;
const count = (collections: readonly PerformanceEntry[]) => {
  for (const collection of collections) {
    const { kind } = (collection as PerformanceEntry & { readonly detail: { readonly kind: number } }).detail;
    if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) fullCollections += 1;
  }
};
const observer = new PerformanceObserver((list) => count(list.getEntries()));
const text =
  "select i, repeat('x', 1000) || i as body from generate_series(1, 30) as i where $1::text is not null";
const ask = () => pool.query({ name: "many", text, values: ["y".repeat(1000)] });

for (let answers = 0; answers < WARM_UP; answers++) await ask();
observer.observe({ entryTypes: ["gc"] });
for (let answers = 0; answers < ANSWERS; answers += 2) await Promise.all([ask(), ask()]);
await nextTurn();
count(observer.takeRecords());
await pool.end();
console.log(JSON.stringify({ answers: ANSWERS, fullCollections }));
