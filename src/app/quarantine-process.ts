import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { createDispatchPool, isRefusedData } from "../base/database/pools.ts";
import { tryToLockTable } from "../base/database/table-lock.ts";
import type { DispatchObserver } from "../delivery/attempt-observers.ts";
import { type Attempts, createAttempts } from "../delivery/attempts.ts";
import { claimDeliveries } from "../delivery/claim-sql.ts";
import { createDelivering } from "../delivery/deliver.ts";
import { recordOutcomes } from "../delivery/record-sql.ts";
import type { DispatchProcessOptions } from "./dispatch-process.ts";

const CLAIM_RETRY_MS = 2_000;

/** `busy`: another quarantine process of the cluster is at work, and nothing was done here. */
export type QuarantineOutcome = "done" | "busy";

/**
 * Posts deliveries that were in flight twice in a row when their dispatcher died, one after the other, in a process
 * where nothing else is in flight. If one of them is what kills processes, it takes no other along this time, and the
 * next claim abandons it.
 *
 * A process of its own, not an emptied dispatcher: one hanging receiver would keep everybody else waiting for a whole
 * deadline. One process for many, not one for each: a dispatcher that dies twice with a thousand in flight sends a
 * thousand into quarantine, and a process takes half a second to start.
 *
 * @param asked once aborted, no further delivery is started
 */
export async function deliverInQuarantine(
  options: Omit<DispatchProcessOptions, "metrics">,
  deliveryIds: readonly string[],
  asked: AbortSignal,
): Promise<QuarantineOutcome> {
  const pool = createDispatchPool({
    databaseUrl: options.databaseUrl,
    cell: options.config.cell,
    connectionsMax: 2,
    applicationName: "sealpost dispatch alone",
    onError: (err) => options.log.warn({ err }, "a database connection broke"),
  });
  const lock = await pool.connect();
  try {
    if (!(await tryToLockTable(lock, "quarantine_lock"))) return "busy";
    const delivering = createDelivering(options);
    const attempts = createAttempts({
      delivering,
      claim: (input) => claimDeliveries(pool, { ...input, at: null }),
      write: (recordings) => recordOutcomes(pool, recordings),
      isRefusedData,
      observer: options.observer,
      isInQuarantine: true,
    });
    for (const deliveryId of deliveryIds) {
      if (asked.aborted) break;
      await postOne(deliveryId, attempts, options.observer);
    }
    await delivering.poster.close();
    return "done";
  } finally {
    // Ending the session frees the lock.
    lock.release(true);
    await pool.end();
  }
}

async function postOne(deliveryId: string, attempts: Attempts, observer: DispatchObserver): Promise<void> {
  const leaseToken = randomUUID();
  const claim = () => attempts.claim([deliveryId], leaseToken, Number.MAX_SAFE_INTEGER);
  // Once more: a lost answer may have leased it, and a lease that is left behind here abandons the delivery.
  const { deliveries, askedAtMs } = await claim().catch(async (error: unknown) => {
    observer.failed("claim", error);
    await wait(CLAIM_RETRY_MS);
    return await claim();
  });
  const [delivery] = deliveries;
  // Otherwise it is not due, or gone: somebody else saw to it.
  if (delivery?.kind === "leased") await attempts.run(delivery, askedAtMs);
}
