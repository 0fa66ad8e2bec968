import { setTimeout as delay } from "node:timers/promises";
import type { Pool } from "pg";
import * as moves from "./moves-sql.ts";

export type Waiting = {
  readonly waitMaxMs: number;
  /** Told at first (null), and then for whom it waits. */
  readonly onWait: (whom: string | null) => void;
  /** What is thrown when that has taken too long. */
  readonly tooLong: (seconds: number, whom: string) => Error;
};

/** Looks again and again until there is nothing to wait for. */
export async function waitFor(
  { waitMaxMs, onWait, tooLong }: Waiting,
  everyMs: number,
  look: () => Promise<readonly string[]>,
): Promise<void> {
  onWait(null);
  const startedAtMs = performance.now();
  for (;;) {
    const [first, ...others] = await look();
    if (first === undefined) return;
    const waited = others.length === 0 ? first : `${first}, and ${others.length} more`;
    if (performance.now() - startedAtMs > waitMaxMs) throw tooLong(Math.round(waitMaxMs / 1_000), waited);
    onWait(waited);
    await delay(everyMs);
  }
}

export const LOOK_EVERY_MS = 100;

/** Waits for transactions that may not know what has just been committed. */
export async function untilTransactionsEnd(pool: Pool, waiting: Waiting): Promise<void> {
  const older = await moves.findOlderTransactions(pool);
  await waitFor(waiting, LOOK_EVERY_MS, async () =>
    (await moves.findStillOpen(pool, older)).map(
      ({ pid, role, application }) =>
        `a transaction that was open before (pid ${pid}, role ${role}, application "${application}")`,
    ),
  );
  const xid = await moves.readNextTransactionId(pool);
  await waitFor(waiting, LOOK_EVERY_MS, async () =>
    (await moves.findPrepared(pool, xid)).map((gid) => `the prepared transaction "${gid}"`),
  );
}
