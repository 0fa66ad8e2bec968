import type { RetryPolicy } from "../../src/delivery/schedule/retry-schedule.ts";
import type { Chance } from "./chance.ts";
import { FIRST_MOMENT, LEASE_MARGIN_MS, RETENTION_MS } from "./setting.ts";

/** The time of a history, in milliseconds since the epoch. It only moves when it is moved, and only on. */
export class Clock {
  now = FIRST_MOMENT;
  readonly #chance: Chance;
  readonly #policy: RetryPolicy;
  readonly #deadlineMs: number;

  constructor(chance: Chance, policy: RetryPolicy, deadlineMs: number) {
    this.#chance = chance;
    this.#policy = policy;
    this.#deadlineMs = deadlineMs;
  }

  /** A moment, a lease, a week: mostly little, and often to just about the moment at which something may happen. */
  pass(nextWakeAt: number): void {
    const chance = this.#chance;
    const how = chance.next();
    if (how < 0.5) this.now += chance.below(50);
    else if (how < 0.7) this.now += chance.below(4_000);
    else if (how < 0.77) this.now += chance.below(this.#deadlineMs + 2 * LEASE_MARGIN_MS);
    else if (how < 0.95) this.passTo(Math.floor(nextWakeAt) + chance.below(3) - 1);
    else if (how < 0.99) this.now += chance.below(this.#policy.windowMs / 2);
    else this.now += chance.below(RETENTION_MS);
  }

  /** Infinite: nothing will ever happen, and no time passes. */
  passTo(moment: number): void {
    if (Number.isFinite(moment)) this.now = Math.max(this.now, moment);
  }
}
