import type { LeasedDelivery } from "./claim-sql.ts";
import type { Delivered } from "./deliver.ts";
import type { Recorded } from "./recorder.ts";

/** Told of everything that happens, for logs, metrics and tests. Must not throw. */
export type DispatchObserver = {
  readonly attemptRecorded: (delivery: LeasedDelivery, delivered: Delivered, recorded: Recorded) => void;
  /** Interrupted twice in a row: it may be posted only where nothing else is in flight. */
  readonly mustBeQuarantined: (deliveryId: string) => void;
  readonly letGo: (count: number) => void;
  readonly failed: (work: "claim" | "deliver" | "record" | "lanes", error: unknown) => void;
};

/** Tells both, one after the other. */
export function bothObservers(first: DispatchObserver, second: DispatchObserver): DispatchObserver {
  return {
    attemptRecorded: (delivery, delivered, recorded) => {
      first.attemptRecorded(delivery, delivered, recorded);
      second.attemptRecorded(delivery, delivered, recorded);
    },
    mustBeQuarantined: (deliveryId) => {
      first.mustBeQuarantined(deliveryId);
      second.mustBeQuarantined(deliveryId);
    },
    letGo: (count) => {
      first.letGo(count);
      second.letGo(count);
    },
    failed: (work, error) => {
      first.failed(work, error);
      second.failed(work, error);
    },
  };
}
