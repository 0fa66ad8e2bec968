// A dispatcher as `dispatch` runs it, but that nothing is counted or logged: what observing is measured against.
import { once } from "node:events";
import { pino } from "pino";
import {
  type DispatchProcessOptions,
  openDispatcherPools,
  startDispatching,
} from "../../../src/app/dispatch-process.ts";
import { createEgress } from "../../../src/app/egress.ts";
import { readConfig } from "../../../src/base/config/config.ts";
import type { MetricsRegistry } from "../../../src/base/metrics/registry.ts";
import type { DispatchObserver } from "../../../src/delivery/attempt-observers.ts";
import { createProcessMetrics } from "../../../src/delivery/process-metrics.ts";

const nothing = () => undefined;
const uncounted = { of: () => ({ add: nothing, observe: nothing, set: nothing }), clear: nothing };
const registry: MetricsRegistry = {
  counter: () => uncounted,
  histogram: () => uncounted,
  gauge: () => uncounted,
  addProcess: nothing,
  onRead: nothing,
  declared: [],
  read: async () => "",
};
const observer: DispatchObserver = {
  attemptRecorded: nothing,
  mustBeQuarantined: nothing,
  overflowed: nothing,
  failed: (work, error) => console.error(work, error),
};

const config = readConfig(process.env);
const metrics = createProcessMetrics(registry);
const options: DispatchProcessOptions = {
  config,
  egress: createEgress(config),
  databaseUrl: config.databaseUrl ?? "",
  secretsKey: config.secretsKey?.export() ?? Buffer.alloc(0),
  log: pino({ level: "silent" }),
  random: Math.random,
  observer,
  metrics,
};
const pools = openDispatcherPools(options, metrics.database);
const dispatching = startDispatching(options, pools);
process.send?.({ ready: true });
await once(process, "SIGTERM");
await dispatching.stop();
await pools.end();
process.disconnect?.();
