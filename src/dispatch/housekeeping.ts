import type { Pool } from "pg";
import { forgetAuditEntries } from "../store/audit-log.ts";
import { forgetIdempotencyKeys } from "../store/idempotency.ts";
import {
  countOpenOfDay,
  dropPartition,
  findPartitionsBefore,
  forgetAnalysesOfDay,
  makePartitions,
  type PartitionedTable,
} from "../store/partitions.ts";

const DAY_MS = 86_400_000;
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

/** Makes the days to come and drops those that are over. Every step is harmless to repeat. */
export async function keepHouse(
  pool: Pool,
  retention: Retention,
  nowMs: number,
  log: HouseLog,
): Promise<void> {
  const made = await makePartitions(pool);
  if (made > 0) log.made(made);
  await dropBefore(pool, "bodies", nowMs - retention.analysisRetentionMs - DAY_MS, log);
  await dropBefore(pool, "deliveries", nowMs - retention.logRetentionMs, log);
  await dropBefore(pool, "attempts", nowMs - retention.logRetentionMs, log);
  while ((await forgetIdempotencyKeys(pool, retention.idempotencyRetentionMs, FORGOTTEN_PER_STEP)) > 0);
  while ((await forgetAuditEntries(pool, retention.auditRetentionMs, FORGOTTEN_PER_STEP)) > 0);
}

async function dropBefore(
  pool: Pool,
  table: PartitionedTable,
  beforeMs: number,
  log: HouseLog,
): Promise<void> {
  for (const partition of await findPartitionsBefore(pool, table, new Date(beforeMs))) {
    const open = await countOpenOfDay(pool, partition.day);
    if (open > 0) {
      log.kept(partition.name, open);
      continue;
    }
    if (table === "deliveries") {
      while ((await forgetAnalysesOfDay(pool, partition.day, FORGOTTEN_PER_STEP)) > 0);
    }
    await dropPartition(pool, partition);
    log.dropped(partition.name);
  }
}
