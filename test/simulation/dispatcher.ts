import type { ClaimRequest, Leased, Recording } from "./rows.ts";

/** A lease that a dispatcher has, and what it does with it. */
export type Holding = {
  readonly leased: Leased;
  readonly token: number;
  readonly claimedAt: number;
  readonly leaseUntil: number;
  /** Null: not posted yet. */
  post: { readonly startedAt: number; readonly end: () => void } | null;
};

/** One process: what it holds is gone when it dies, and what it says may come at any time when it was only stopped. */
export class Dispatcher {
  readonly isInQuarantine: boolean;
  holdings: Holding[] = [];
  outbox: { readonly recording: Recording; readonly giveUpAt: number }[] = [];
  /** A claim whose answer was lost. */
  unanswered: { readonly ids: readonly number[]; readonly request: ClaimRequest } | null = null;

  constructor(isInQuarantine: boolean) {
    this.isInQuarantine = isInQuarantine;
  }

  die(): void {
    for (const { post } of this.holdings) post?.end();
    this.holdings = [];
    this.outbox = [];
    this.unanswered = null;
  }
}
