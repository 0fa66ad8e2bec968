import type { Pool } from "pg";
import type { Logger } from "pino";
import type { FeedMetrics } from "../base/metrics/queue-metrics.ts";
import type { Tally } from "../base/metrics/registry.ts";
import { readFeedLag } from "../feed/feed-sql.ts";
import { type Sequencer, startSequencer } from "../feed/sequencer.ts";

/** Starts what gives events their places in the feed, in this process when it is its turn. */
export function startSequencing(pool: Pool, failed: Tally, log: Logger): Sequencer {
  return startSequencer(pool, (err) => {
    failed.add();
    log.warn({ err }, "a step of the feed failed; trying again");
  });
}

/** Sets the feed's gauge from the database, or clears it while it does not answer. Never rejects. */
export function createFeedGauge(pool: Pool, metrics: FeedMetrics): (isDatabaseUp: boolean) => Promise<void> {
  return async (isDatabaseUp) => {
    try {
      if (!isDatabaseUp) throw new Error("the database is unavailable");
      metrics.lag.of({}).set(await readFeedLag(pool));
    } catch {
      metrics.lag.clear();
    }
  };
}
