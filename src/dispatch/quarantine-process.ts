import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { INTERRUPTIONS_BEFORE_ALONE } from "../schedule/life.ts";
import { claimDeliveries } from "../store/claim.ts";
import { createDispatchPool, isRefusedData } from "../store/pools.ts";
import { tryToBeAlone } from "../store/quarantine.ts";
import { recordOutcomes } from "../store/record.ts";
import { type Delivering, deliver, releaseAfterFault } from "./deliver.ts";
import { createDelivering } from "./delivering.ts";
import { type DispatchObserver, LEASE_MARGIN_MS, START_WITHIN_MS } from "./dispatcher.ts";
import type { DispatchProcessOptions } from "./process.ts";
import { Recorder } from "./recorder.ts";

const CLAIM_RETRY_MS = 2_000;

/** `busy`: another process of the cluster is posting something alone, and nothing was done here. */
export type AloneOutcome = "done" | "busy";

/**
 * Posts deliveries one after the other in a process where nothing else is in flight: such as were under way twice in a
 * row when their dispatcher died. If one is what killed them, it takes nobody along this time, and the claim after that
 * abandons it.
 *
 * A process of its own, rather than an emptied dispatcher: a suspect whose receiver hangs would otherwise keep
 * everybody else waiting for a whole deadline. One for many, rather than one for each: a dispatcher that dies twice
 * with a thousand in flight leaves a thousand suspects, and a process takes half a second to start.
 *
 * @param asked once aborted, none but the one that is being posted is
 */
export async function deliverAlone(
  options: DispatchProcessOptions,
  deliveryIds: readonly string[],
  asked: AbortSignal,
): Promise<AloneOutcome> {
  const pool = createDispatchPool({
    databaseUrl: options.databaseUrl,
    connectionsMax: 2,
    applicationName: "sealpost dispatch alone",
    onError: (err) => options.log.warn({ err }, "a database connection broke"),
  });
  const lock = await pool.connect();
  try {
    if (!(await tryToBeAlone(lock))) return "busy";
    const delivering = createDelivering(options);
    const recorder = new Recorder({
      write: (recordings) => recordOutcomes(pool, recordings),
      partOf: ({ deliveryId }) => deliveryId,
      isRefusedData,
      onError: (error) => options.observer.failed("record", error),
    });
    for (const deliveryId of deliveryIds) {
      if (asked.aborted) break;
      await deliverOne(deliveryId, { pool, delivering, recorder, observer: options.observer });
    }
    await delivering.poster.close();
    return "done";
  } finally {
    // Ending the session frees the lock.
    lock.release(true);
    await pool.end();
  }
}

type Means = {
  readonly pool: ReturnType<typeof createDispatchPool>;
  readonly delivering: Delivering;
  readonly recorder: Recorder;
  readonly observer: DispatchObserver;
};

async function deliverOne(deliveryId: string, means: Means): Promise<void> {
  const { pool, delivering, recorder, observer } = means;
  const leaseMs = delivering.deadlineMs + LEASE_MARGIN_MS;
  const leaseToken = randomUUID();
  const claim = () =>
    claimDeliveries(pool, {
      deliveryIds: [deliveryId],
      leaseToken,
      leaseMs,
      bytesMax: Number.MAX_SAFE_INTEGER,
      isAlone: true,
      interruptionsBeforeAlone: INTERRUPTIONS_BEFORE_ALONE,
      attemptsMax: delivering.policy.attempts,
      at: null,
    });
  let askedAtMs = performance.now();
  // A lost answer may have leased it, and a lease that is left behind here abandons the delivery: once more.
  const { deliveries, databaseNowMs } = await claim().catch(async (error: unknown) => {
    observer.failed("claim", error);
    await wait(CLAIM_RETRY_MS);
    askedAtMs = performance.now();
    return await claim();
  });
  const [delivery] = deliveries;
  // Not due, or gone: somebody else saw to it.
  if (delivery?.kind !== "leased" || databaseNowMs === null) return;
  delivering.clock.observe(databaseNowMs, askedAtMs, performance.now());
  const mayStart = () => performance.now() - askedAtMs < START_WITHIN_MS;
  const delivered = await deliver(delivery, delivering, mayStart).catch((error: unknown) => {
    observer.failed("deliver", error);
    return releaseAfterFault(delivery, delivering);
  });
  const recorded = await recorder.record(delivered.recording, askedAtMs + leaseMs);
  observer.attemptRecorded(delivery, delivered, recorded);
}
