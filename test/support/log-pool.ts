import type { Pool } from "pg";
import { createApiPool, type PoolOptions, readingGauges, readingLog } from "../../src/base/database/pools.ts";

type Options = Pick<PoolOptions, "connectionsMax" | "onQuery">;

/** What `serve` reads the log with, on connections of its own; `onQuery` is told of the reads alone. */
export function openLogPool(databaseUrl: string, { connectionsMax, onQuery }: Options): Pool {
  const pool = openPool(databaseUrl, connectionsMax);
  return Object.assign(readingLog(pool, onQuery), { end: () => pool.end() });
}

/** What `dispatch` reads its gauges with. */
export function openGaugePool(databaseUrl: string): Pool {
  const pool = openPool(databaseUrl, 1);
  return Object.assign(readingGauges(pool), { end: () => pool.end() });
}

function openPool(databaseUrl: string, connectionsMax: number): Pool {
  return createApiPool({
    databaseUrl,
    connectionsMax,
    applicationName: "test planning",
    onError: () => undefined,
  });
}
