import type { Pool, PoolClient } from "pg";
import { abortableDelay, backoffMs } from "../schedule/backoff.ts";

/** As sealpost.sequence_events names it. */
const CHANNEL = "sealpost_feed";
/** A network that has forgotten the connection says nothing, so the database is asked now and then. */
const ASKED_EVERY_MS = 10_000;
const RECONNECT_BACKOFF = { baseMs: 100, maxMs: 5_000 };

export type FeedNewsOptions = {
  /** One connection of it is kept for as long as this listens. */
  readonly pool: Pool;
  readonly onNews: (accountIds: readonly string[]) => void;
  /** Listening has begun, at the start or again: what was told meanwhile has been missed. */
  readonly onListening: () => void;
  readonly onError: (error: unknown) => void;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

export type FeedNews = { stop(): Promise<void> };

/** Listens for accounts whose feeds have grown, until stopped; connects again when it has to. */
export function listenToFeed(options: FeedNewsOptions): FeedNews {
  const stopping = new AbortController();
  const listening = listenUntil(stopping.signal, options);
  return {
    stop: async () => {
      stopping.abort();
      await listening;
    },
  };
}

async function listenUntil(signal: AbortSignal, options: FeedNewsOptions): Promise<void> {
  for (let failures = 0; !signal.aborted; failures++) {
    try {
      await listenOnce(signal, {
        ...options,
        onListening: () => {
          failures = -1;
          options.onListening();
        },
      });
    } catch (error) {
      if (!signal.aborted) options.onError(error);
    }
    await abortableDelay(backoffMs(Math.max(failures, 0), RECONNECT_BACKOFF, options.random()), signal);
  }
}

/** Until stopped, or until the connection fails: then it throws. */
async function listenOnce(signal: AbortSignal, options: FeedNewsOptions): Promise<void> {
  const client = await options.pool.connect();
  const failed = new AbortController();
  const fail = () => failed.abort();
  client.on("end", fail);
  client.on("notification", ({ channel, payload = "" }) => {
    if (channel === CHANNEL) options.onNews(payload.split(" "));
  });
  try {
    await client.query(`listen ${CHANNEL}`);
    options.onListening();
    await askAgainAndAgain(client, AbortSignal.any([signal, failed.signal]));
    if (!signal.aborted) throw new Error("the connection that listens to the feed has ended");
  } finally {
    // Not to be used for anything else: it would go on listening.
    client.release(true);
  }
}

async function askAgainAndAgain(client: PoolClient, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await abortableDelay(ASKED_EVERY_MS, signal);
    if (!signal.aborted) await client.query("select");
  }
}
