import type { DispatchObserver } from "./dispatcher.ts";

/** Tells both, one after the other. */
export function bothObservers(first: DispatchObserver, second: DispatchObserver): DispatchObserver {
  return {
    attemptRecorded: (delivery, delivered, recorded) => {
      first.attemptRecorded(delivery, delivered, recorded);
      second.attemptRecorded(delivery, delivered, recorded);
    },
    mustGoAlone: (deliveryId) => {
      first.mustGoAlone(deliveryId);
      second.mustGoAlone(deliveryId);
    },
    letGo: (count) => {
      first.letGo(count);
      second.letGo(count);
    },
    claimed: (asked, leased, tookMs) => {
      first.claimed(asked, leased, tookMs);
      second.claimed(asked, leased, tookMs);
    },
    failed: (work, error) => {
      first.failed(work, error);
      second.failed(work, error);
    },
  };
}
