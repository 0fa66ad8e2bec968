import type { Outcome } from "./outcomes.ts";

/** What the viewers of the delivery log read; `remedy` is what the receiver's owner can do about it. */
export type Explanation = {
  message: string;
  remedy: string;
  /** True where another webhook URL may be the remedy, which a delivery with a URL of its own cannot be given. */
  concernsUrl?: true;
};

export type Entry = Explanation & {
  /** The outcome of an attempt with this code; null where the code only ever ends a delivery. */
  outcome: Outcome | null;
  /** True where the failure is ours and not the receiver's; then an attempt that wrote nothing uses none up. */
  isOurs?: true;
};
