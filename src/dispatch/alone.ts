import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { INTERRUPTIONS_BEFORE_ALONE } from "../schedule/life.ts";
import { tryToBeAlone } from "../store/alone.ts";
import { claimDeliveries } from "../store/claim.ts";
import { createDispatchPool, isRefusedData } from "../store/pools.ts";
import { recordOutcomes } from "../store/record.ts";
import { deliver, releaseAfterFault } from "./deliver.ts";
import { createDelivering } from "./delivering.ts";
import { type DispatchObserver, LEASE_MARGIN_MS, START_WITHIN_MS } from "./dispatcher.ts";
import type { DispatchProcessOptions } from "./process.ts";
import { Recorder } from "./recorder.ts";

const CLAIM_RETRY_MS = 2_000;

/** `busy`: another process of the cluster is posting something alone. `not_due`: somebody else saw to it. */
export type AloneOutcome = "recorded" | "busy" | "not_due";

/**
 * Posts one delivery in a process where nothing else is in flight: one that was under way twice in a row when its
 * dispatcher died. If it is what killed them, it takes nobody along this time, and the claim after that abandons it.
 *
 * A process of its own, rather than an emptied dispatcher: a suspect whose receiver hangs would otherwise keep
 * everybody else waiting for a whole deadline.
 */
export async function deliverAlone(
  options: DispatchProcessOptions,
  deliveryId: string,
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
    return await deliverClaimed(options, deliveryId, pool, options.observer);
  } finally {
    // Ending the session frees the lock.
    lock.release(true);
    await pool.end();
  }
}

async function deliverClaimed(
  options: DispatchProcessOptions,
  deliveryId: string,
  pool: ReturnType<typeof createDispatchPool>,
  observer: DispatchObserver,
): Promise<AloneOutcome> {
  const delivering = createDelivering(options);
  const leaseMs = delivering.deadlineMs + LEASE_MARGIN_MS;
  const leaseToken = randomUUID();
  const recorder = new Recorder({
    write: (recordings) => recordOutcomes(pool, recordings),
    isRefusedData,
    onError: (error) => observer.failed("record", error),
  });
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
  if (delivery?.kind !== "leased" || databaseNowMs === null) return "not_due";
  delivering.clock.observe(databaseNowMs, askedAtMs, performance.now());
  const mayStart = () => performance.now() - askedAtMs < START_WITHIN_MS;
  const delivered = await deliver(delivery, delivering, mayStart).catch((error: unknown) => {
    observer.failed("deliver", error);
    return releaseAfterFault(delivery, delivering);
  });
  const recorded = await recorder.record(delivered.recording, askedAtMs + leaseMs);
  observer.attemptRecorded(delivery, delivered, recorded);
  await delivering.poster.close();
  return "recorded";
}
