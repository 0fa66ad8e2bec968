import type { LeasedDelivery } from "./claim-sql.ts";
import type { Delivered } from "./deliver.ts";
import type { Recorded } from "./recorder.ts";

/** Told of everything that happens, for logs, metrics and tests. Must not throw. */
export type DispatchObserver = {
  readonly attemptRecorded: (delivery: LeasedDelivery, delivered: Delivered, recorded: Recorded) => void;
  /** Interrupted twice in a row: it may be posted only where nothing else is in flight. */
  readonly mustBeQuarantined: (deliveryId: string) => void;
  readonly letGo: (count: number) => void;
  readonly claimed: (asked: number, leased: number, tookMs: number) => void;
  readonly failed: (work: "claim" | "deliver" | "record" | "lanes", error: unknown) => void;
};

/** Tells each of them, in order, what it wants to know. */
export function tellAll(observers: readonly Partial<DispatchObserver>[]): DispatchObserver {
  const tell = (one: (observer: Partial<DispatchObserver>) => void) => observers.forEach(one);
  return {
    attemptRecorded: (...told) => tell((one) => one.attemptRecorded?.(...told)),
    mustBeQuarantined: (...told) => tell((one) => one.mustBeQuarantined?.(...told)),
    letGo: (...told) => tell((one) => one.letGo?.(...told)),
    claimed: (...told) => tell((one) => one.claimed?.(...told)),
    failed: (...told) => tell((one) => one.failed?.(...told)),
  };
}
