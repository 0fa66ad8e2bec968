import type { Pool } from "pg";
import { DAY_MS } from "../model/time.ts";
import { forgetAuditEntries } from "../store/audit-log.ts";
import { forgetIdempotencyKeys } from "../store/idempotency.ts";
import {
  countOpenOfDay,
  dropPartition,
  findPartitionsOlderThan,
  forgetAnalysesOfDay,
  type LogPlace,
  makePartitions,
  type PartitionedTable,
} from "../store/partitions.ts";
import { forgetReplay } from "../store/replays.ts";

const FORGOTTEN_PER_STEP = 1_000;

export type Retention = {
  /** Analyses stay readable this long, their bodies a day longer: a day's partition goes when its last hour may go. */
  readonly analysisRetentionMs: number;
  readonly logRetentionMs: number;
  readonly auditRetentionMs: number;
  readonly idempotencyRetentionMs: number;
};

export type HouseLog = {
  readonly made: (count: number) => void;
  readonly dropped: (partition: string) => void;
  /** An old day that still has open deliveries stays; somebody has to look. */
  readonly kept: (partition: string, openDeliveries: number) => void;
};

export type HouseWork = {
  readonly retention: Retention;
  /**
   * The moment that ages are counted from. Null: the database's clock, so that no dispatcher whose own clock is a month
   * ahead takes the month away.
   */
  readonly at: Date | null;
  /** Ends the work between two steps, and a step that waits for others at once. */
  readonly signal: AbortSignal;
  readonly log: HouseLog;
};

/** Makes the days to come and drops those that are over. Every step is harmless to repeat. */
export async function keepHouse(pool: Pool, work: HouseWork): Promise<void> {
  const { retention, signal } = work;
  const made = await makePartitions(pool);
  if (made > 0) work.log.made(made);
  await repeat(signal, () =>
    forgetIdempotencyKeys(pool, retention.idempotencyRetentionMs, FORGOTTEN_PER_STEP),
  );
  await repeat(signal, () => forgetAuditEntries(pool, retention.auditRetentionMs, FORGOTTEN_PER_STEP));
  // With the log: what they replayed can be seen there no longer. One has up to 100,000 items, and is a step.
  await repeat(signal, () => forgetReplay(pool, retention.logRetentionMs));
  // Last, because a day that somebody's long transaction holds fails, and everything behind it with it.
  await dropOlderThan(pool, "bodies", retention.analysisRetentionMs + DAY_MS, work);
  await dropOlderThan(pool, "deliveries", retention.logRetentionMs, work);
  await dropOlderThan(pool, "attempts", retention.logRetentionMs, work);
}

async function dropOlderThan(
  pool: Pool,
  table: PartitionedTable,
  retentionMs: number,
  { at, signal, log }: HouseWork,
): Promise<void> {
  for (const partition of await findPartitionsOlderThan(pool, table, retentionMs, at)) {
    if (signal.aborted) return;
    const open = await countOpenOfDay(pool, partition.day);
    if (open > 0) {
      log.kept(partition.name, open);
      continue;
    }
    if (table === "deliveries") {
      await forgetAnalyses(pool, partition.day, signal);
    }
    await dropPartition(pool, partition, signal);
    log.dropped(partition.name);
  }
}

async function forgetAnalyses(pool: Pool, day: Date, signal: AbortSignal): Promise<void> {
  let place: LogPlace | null = null;
  do place = await forgetAnalysesOfDay(pool, day, place, FORGOTTEN_PER_STEP);
  while (place !== null && !signal.aborted);
}

/** Until a step finds nothing more to do. */
async function repeat(signal: AbortSignal, step: () => Promise<number>): Promise<void> {
  while (!signal.aborted && (await step()) > 0);
}
