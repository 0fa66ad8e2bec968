import type { Pool } from "pg";
import type { Logger } from "pino";
import { createLogReader, type ReadLog, readingFrom } from "../base/database/log-reader.ts";
import type { ApiMetrics } from "../base/metrics/api-metrics.ts";

export type LogReadingOptions = {
  readonly pool: Pool;
  readonly logPool: Pool;
  /** Null: there is none, and lists are read from `logPool`. */
  readonly standbyPool: Pool | null;
  readonly metrics: ApiMetrics;
  readonly log: Logger;
  readonly resources: AsyncDisposableStack;
};

/** How lists of the log are read: from the standby while it serves, counted and told of in the log. */
export function startLogReading(options: LogReadingOptions): ReadLog {
  const { pool, logPool, standbyPool, metrics, log, resources } = options;
  const counted = (server: "primary" | "standby") => metrics.logReads.of({ server }).add();
  if (standbyPool === null) {
    return async (read) => {
      const value = await readingFrom(logPool)(read);
      counted("primary");
      return value;
    };
  }
  const reader = createLogReader({
    primary: logPool,
    position: pool,
    standby: standbyPool,
    onRead: counted,
    onFault: (why, err) => {
      metrics.standbyFaults.of({ why }).add();
      log.debug({ why, err }, "the standby did not serve");
    },
    onChange: (isUsed, why) => {
      if (isUsed) log.info("lists of the log are read from the standby");
      else log.warn({ why }, "lists of the log are read from the primary: the standby does not serve");
    },
  });
  resources.defer(() => reader.stop());
  return reader.read;
}
