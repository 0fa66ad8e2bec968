import { dayOf } from "../base/database/partitions.ts";
import type { DispatchObserver } from "./attempt-observers.ts";
import type { Claim, ClaimInput, LeasedDelivery } from "./claim-sql.ts";
import { type Delivered, type Delivering, deliver, releaseAfterFault } from "./deliver.ts";
import type { Recording } from "./record-sql.ts";
import { createRecorder } from "./recorder.ts";

/** A POST starts only while its claim is younger than this, so that it ends, recorded, within the lease. */
const START_WITHIN_MS = 3_000;

export type AttemptsOptions = {
  readonly delivering: Delivering;
  readonly claim: (input: Omit<ClaimInput, "at">) => Promise<Claim>;
  readonly write: (recordings: readonly Recording[]) => Promise<ReadonlySet<string>>;
  readonly observer: DispatchObserver;
  /** Whether this process posts one delivery at a time, so that a poisonous one harms no other. */
  readonly isInQuarantine: boolean;
};

/** `askedAtMs`, on the monotonic clock: the leases were taken then or later. */
export type Claimed = Claim & { readonly askedAtMs: number };

export type Attempts = ReturnType<typeof createAttempts>;

/** What every attempt goes through, in a crowd or in quarantine: claim → deliver → record. */
export function createAttempts(options: AttemptsOptions) {
  const { delivering, observer, isInQuarantine } = options;
  const { leaseMs } = delivering;
  const recorder = createRecorder({
    write: options.write,
    partOf: ({ deliveryId }) => dayOf(deliveryId),
    onError: (error) => observer.failed("record", error),
    random: delivering.random,
  });

  return {
    recorder,

    /**
     * Leases what is due of these, and corrects the clock by the answer. When it rejects, rows may be leased all the
     * same: asking again with the same token gets them back, where they would otherwise count as interrupted.
     */
    async claim(deliveryIds: readonly string[], leaseToken: string, bytesMax: number): Promise<Claimed> {
      const attemptsMax = delivering.policy.attempts;
      const asked = { deliveryIds, leaseToken, leaseMs, bytesMax, isInQuarantine, attemptsMax };
      const askedAtMs = performance.now();
      const claimed = await options.claim(asked);
      const { databaseNowMs } = claimed;
      if (databaseNowMs !== null) delivering.clock.observe(databaseNowMs, askedAtMs, performance.now());
      return { ...claimed, askedAtMs };
    },

    /** Resolves once the outcome is recorded, or its lease is over. `onDelivered` is called in between. */
    async run(
      delivery: LeasedDelivery,
      askedAtMs: number,
      onDelivered: (delivered: Delivered) => void = () => undefined,
    ): Promise<void> {
      const mayStart = () => performance.now() - askedAtMs < START_WITHIN_MS;
      const delivered = await deliver(delivery, delivering, mayStart).catch((error: unknown) => {
        observer.failed("deliver", error);
        return releaseAfterFault(delivery, delivering);
      });
      onDelivered(delivered);
      const recorded = await recorder.record(delivered.recording, askedAtMs + leaseMs);
      observer.attemptRecorded(delivery, delivered, recorded);
    },
  };
}
