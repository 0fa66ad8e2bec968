// Somebody who takes as much as he can get, beside accounts that do nothing unusual.
import type { Bench } from "../../bench.ts";
import type { BenchDatabase } from "../../database.ts";
import type { Figure } from "../../figures.ts";
import type { AskedProcess } from "../../processes/asking.ts";

/** What a flood has to work with. */
export type Ground = {
  readonly bench: Bench;
  readonly database: BenchDatabase;
  readonly dispatcherPid: number;
  /** The dispatcher's STATE_DIR. */
  readonly stateDir: string;
  /** A process of its own: the one that publishes for the healthy accounts must not be slowed down by it. */
  readonly publisher: AskedProcess;
  /** Accounts that nothing healthy is published for: those of the first `silentHosts` hosts. */
  readonly accountIds: readonly string[];
  readonly silentHosts: number;
};

export type Flood = {
  readonly name: string;
  /** There is nothing here that could keep the healthy accounts from noticing it. */
  readonly isControl?: true;
  /** Lays ready what it needs, before anything is measured. The receivers are timing. */
  readonly prepare: (ground: Ground) => Promise<PreparedFlood>;
};

export type PreparedFlood = {
  /** Begins, and does not wait for what it has begun. */
  start(): Promise<void>;
  /** Ends it; returns what there is to say of it. */
  stop(): Promise<readonly Figure[]>;
};

/** How much of what was published, or replayed, for the accounts has been delivered. */
export async function countDelivered(
  { pool }: BenchDatabase,
  accountIds: readonly string[],
): Promise<number> {
  const { rows } = await pool.query<{ delivered: number }>(
    `/* bench */ select count(*)::integer as delivered from sealpost.deliveries
     where account_id = any ($1) and status = 'succeeded'`,
    [accountIds],
  );
  return rows[0]?.delivered ?? 0;
}
