import type { Pool } from "pg";
import type { Logger } from "pino";
import { createFeedLag } from "../base/metrics/queue-metrics.ts";
import type { MetricsRegistry, Tally } from "../base/metrics/registry.ts";
import { listenToFeed, readFeedLag } from "../feed/feed-sql.ts";
import { type Sequencer, startSequencer } from "../feed/sequencer.ts";
import type { AccountNews } from "../http/account-news.ts";
import type { Sampled } from "./monitoring.ts";

/** Starts what gives events their places in the feed, in this process when it is its turn. */
export function startSequencing(pool: Pool, failed: Tally, log: Logger): Sequencer {
  return startSequencer(pool, (err) => {
    failed.add();
    log.warn({ err }, "a step of the feed failed; trying again");
  });
}

export function sampleFeed(pool: Pool, registry: MetricsRegistry): Sampled {
  const lag = createFeedLag(registry);
  return { gauges: [lag], read: async () => lag.of({}).set(await readFeedLag(pool)) };
}

/**
 * Starts what gives events their places, and what tells this process's readers of them. Returns what ends both.
 * @param listening its pool has one connection, which is kept
 */
export function startFeed(
  pool: Pool,
  failed: Tally,
  log: Logger,
  news: AccountNews,
  listening: Pick<Parameters<typeof listenToFeed>[0], "pool" | "random">,
): () => Promise<void> {
  const sequencer = startSequencing(pool, failed, log);
  const listener = listenToFeed({
    ...listening,
    onNews: (accountIds) => news.tell(accountIds),
    onPublished: () => sequencer.tell(),
    onListening: () => news.tellAll(),
    onError: (err) => {
      failed.add();
      log.warn({ err }, "listening to the feed failed; connecting again");
    },
  });
  return async () => void (await Promise.all([sequencer.stop(), listener.stop()]));
}
