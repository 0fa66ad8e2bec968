import type { Pool } from "pg";
import type { Logger } from "pino";
import type { Config } from "../base/config/config.ts";
import { type Retention, writeRetention } from "../base/database/cells.ts";
import { deleteOldRows, type OldRows } from "../base/database/old-rows.ts";
import {
  countOpenOfDay,
  dropPartition,
  expireOpenOfDay,
  findPartitionsOlderThan,
  forgetAnalysesOfDay,
  type LogPlace,
  makePartitions,
  type PartitionedTable,
} from "../base/database/partitions.ts";
import { forgetStorageCounts } from "../base/database/storage.ts";
import { DAY_MS } from "../base/model/time.ts";
import { forgetErasures } from "../delivery/erase-sql.ts";
import { forgetAnsweredLanes, forgetReceivers } from "../delivery/receivers-sql.ts";
import { ACTIVITY_KEPT_MS } from "../log/activity-sql.ts";

const FORGOTTEN_PER_STEP = 1_000;
/** An address that nobody has confirmed, once no link to it is good any more. */
const UNCONFIRMED_KEPT_MS = 7 * DAY_MS;
/** Counts of requests, after the end of their window. */
const COUNTS_KEPT_MS = 3_600_000;

const AUDIT_RETENTION_DAYS = 365;

/** As configured. */
export function retentionOf({ analysisRetentionSeconds, logRetentionDays }: Config): Retention {
  return {
    analysisRetentionMs: analysisRetentionSeconds * 1_000,
    logRetentionMs: logRetentionDays * DAY_MS,
    auditRetentionMs: AUDIT_RETENTION_DAYS * DAY_MS,
    idempotencyRetentionMs: DAY_MS,
  };
}

/**
 * How long a day is kept after its end, in the order in which it goes: a delivery last, by which the rest is found to
 * be erased. A body is kept a day longer than its analysis can be read.
 */
export function daysKeptMs({ analysisRetentionMs, logRetentionMs }: Retention) {
  const bodies = analysisRetentionMs + DAY_MS;
  const log = Math.max(logRetentionMs, bodies);
  return { bodies, feed: bodies, attempts: log, deliveries: log };
}

export type HouseWork = {
  readonly retention: Retention;
  /**
   * The moment that ages are counted from. Null: the database's clock, so that a dispatcher whose own clock is a month
   * ahead does not delete the month.
   */
  readonly at: Date | null;
  /** Ends the work between two steps; a step that waits for a lock ends at once. */
  readonly signal: AbortSignal;
  readonly log: Pick<Logger, "info" | "warn">;
};

/** Creates upcoming partitions and drops expired ones, and deletes whatever else is past its retention. Idempotent. */
export async function keepHouse(pool: Pool, work: HouseWork): Promise<void> {
  const { retention, signal } = work;
  await writeRetention(pool, retention);
  const made = await makePartitions(pool);
  if (made > 0) work.log.info({ count: made }, "made partitions");
  const { idempotencyRetentionMs, auditRetentionMs, logRetentionMs } = retention;
  const deleteOld = (table: OldRows, keptMs: number, rowsMax = FORGOTTEN_PER_STEP) =>
    repeat(signal, () => deleteOldRows(pool, table, keptMs, rowsMax));
  await deleteOld("idempotency_keys", idempotencyRetentionMs);
  await deleteOld("audit_log", auditRetentionMs);
  // The log has nothing left that they signed.
  await deleteOld("signing_secrets", logRetentionMs);
  await repeat(signal, () => forgetAnsweredLanes(pool));
  await repeat(signal, () => forgetReceivers(pool));
  // Until no backup that is kept as long as the log brings the analyses back.
  await repeat(signal, () => forgetErasures(pool, logRetentionMs));
  // Whoever has not come for so long reads under its name as under a new one.
  await deleteOld("feed_consumers", logRetentionMs);
  await deleteOld("notices", logRetentionMs);
  await deleteOld("notice_mails", logRetentionMs);
  await deleteOld("notice_recipients", UNCONFIRMED_KEPT_MS);
  await deleteOld("console_sessions", DAY_MS);
  await deleteOld("api_keys", logRetentionMs);
  await deleteOld("rate_limits", COUNTS_KEPT_MS);
  await deleteOld("activity", ACTIVITY_KEPT_MS + DAY_MS);
  await forgetStorageCounts(pool);
  // As old as the log: what they replayed is no longer seen there. One has up to 100,000 items, so each is a step.
  await deleteOld("replays", logRetentionMs, 1);
  // Last, because a day that a long transaction holds fails, and everything after it.
  const days = daysKeptMs(retention);
  for (const table of Object.keys(days) as PartitionedTable[]) {
    await dropOlderThan(pool, table, days[table], work);
  }
}

async function dropOlderThan(
  pool: Pool,
  table: PartitionedTable,
  retentionMs: number,
  { at, signal, log }: HouseWork,
): Promise<void> {
  for (const partition of await findPartitionsOlderThan(pool, table, retentionMs, at)) {
    if (signal.aborted) return;
    const { name, day } = partition;
    if (table === "bodies") await repeat(signal, () => expireOpenOfDay(pool, day, FORGOTTEN_PER_STEP));
    // Nothing that is still open needs its place in the feed.
    const openDeliveries = table === "feed" ? 0 : await countOpenOfDay(pool, day);
    if (openDeliveries > 0) {
      log.warn({ partition: name, openDeliveries }, "an old partition stays: it still has open deliveries");
      continue;
    }
    if (table === "deliveries") {
      let place: LogPlace | null = null;
      do place = await forgetAnalysesOfDay(pool, day, place, FORGOTTEN_PER_STEP);
      while (place !== null && !signal.aborted);
    }
    await dropPartition(pool, partition, signal);
    log.info({ partition: name }, "dropped a partition");
  }
}

/** Repeats the step until it finds nothing more to do. */
export async function repeat(signal: AbortSignal, step: () => Promise<number>): Promise<void> {
  while (!signal.aborted && (await step()) > 0);
}
