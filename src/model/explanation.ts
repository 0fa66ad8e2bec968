import type { Outcome } from "./outcomes.ts";

/** Shown in the delivery log; `remedy` is what the receiver's owner can do. */
export type Explanation = {
  message: string;
  remedy: string;
  /** True where the fix may be another webhook URL, which a delivery published with its own URL cannot get. */
  concernsUrl?: true;
  /** True where the receiver may have the wrong signing secret. */
  concernsSecret?: true;
};

export type Entry = Explanation & {
  /** The outcome of an attempt with this code; null if the code only ends deliveries. */
  outcome: Outcome | null;
  /** True where the failure is ours, not the receiver's; if nothing was written, the attempt does not count. */
  isOurs?: true;
};
