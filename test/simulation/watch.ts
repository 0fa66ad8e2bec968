import { type DeliveryStatus, hasEnded } from "../../src/base/model/statuses.ts";
import type { Delivery, Rows } from "./rows.ts";

/** Something happened that must never happen. */
class Violation extends Error {
  override readonly name = "Violation";
}

/** What the watch remembers of a delivery from one step to the next, besides what its row says. */
type Seen = {
  status: DeliveryStatus;
  attempts: number;
  /** Attempts logged of each run. */
  readonly inRun: Map<number, number>;
  /** No attempt of it may be leased before this moment. */
  notBefore: number;
  /** Ends of the leases under which a POST is under way. */
  readonly posting: Set<{ readonly leaseUntil: number }>;
  crashesInRun: number;
};

export type Cause = "step" | "replay";

const MOVES: Record<DeliveryStatus, readonly DeliveryStatus[]> = {
  pending: ["failed", "succeeded", "abandoned"],
  failed: ["succeeded", "abandoned"],
  succeeded: [],
  abandoned: [],
};
const WAKE_AFTER_MS = 15_000;
/** Twice in a crowd, once in quarantine. */
const CRASHES_MAX = 3;

/** Looks at every delivery that a step touched, and at every POST when it starts. */
export class Watch {
  readonly #rows: Rows;
  readonly #attemptsMax: number;
  readonly #seen: Seen[] = [];

  constructor(rows: Rows, attemptsMax: number) {
    this.#rows = rows;
    this.#attemptsMax = attemptsMax;
  }

  published(id: number): void {
    const { status, createdAt } = this.#rows.deliveries[id]!;
    this.#seen[id] = {
      status,
      attempts: 0,
      inRun: new Map(),
      notBefore: createdAt,
      posting: new Set(),
      crashesInRun: 0,
    };
  }

  leased(id: number, at: number): void {
    require(at >= this.#seen[id]!.notBefore, "leased before next_attempt_at");
  }

  /** Returns what ends the POST again: to be called when it is over, or its dispatcher is. */
  posts(id: number, at: number, leaseUntil: number): () => void {
    const { status } = this.#rows.deliveries[id]!;
    const { posting } = this.#seen[id]!;
    require(status !== "succeeded", "a succeeded delivery was sent again");
    for (const other of posting) require(other.leaseUntil <= at, "two POSTs at once, both with a lease");
    const post = { leaseUntil };
    posting.add(post);
    return () => posting.delete(post);
  }

  /** Its POST took the dispatcher along. */
  crashed(id: number): void {
    require(++this.#seen[id]!.crashesInRun <= CRASHES_MAX, "a poisonous delivery was posted once too often");
  }

  /** The time before which it may not be tried again, from now on. */
  dueAt(id: number, at: number): void {
    this.#seen[id]!.notBefore = at;
  }

  look(id: number, at: number, cause: Cause): void {
    const delivery = this.#rows.deliveries[id]!;
    const seen = this.#seen[id]!;
    if (delivery.status !== seen.status) this.#move(delivery, seen, cause);
    if (delivery.attempts.length !== seen.attempts) this.#countAttempts(delivery, seen);
    require(delivery.attemptsCount ===
      delivery.attempts.length, "attempts_count is not the number of attempts");
    const isOpen = !hasEnded(delivery.status);
    require(isOpen === (delivery.open !== null), "the open row does not go with the status");
    if (delivery.open === null) return;
    const { wakeAt, dueAt, lease, run } = delivery.open;
    require(run === delivery.run, "the open row is of another run");
    const isLeased = lease !== null && lease.until > at;
    const looksAt = isLeased ? lease.until : Math.max(at + WAKE_AFTER_MS, dueAt);
    require(wakeAt <= looksAt, "the promoter looks too late");
  }

  #move(delivery: Delivery, seen: Seen, cause: Cause): void {
    const isReplay = cause === "replay" && delivery.status === "pending" && seen.status !== "succeeded";
    const isMove = isReplay || MOVES[seen.status].includes(delivery.status);
    require(isMove, `status moved from ${seen.status} to ${delivery.status}`);
    seen.status = delivery.status;
    const killer = seen.crashesInRun === CRASHES_MAX && delivery.status === "abandoned";
    require(!killer || delivery.reason === "interrupted", "what kills was not abandoned for that");
    if (isReplay) seen.crashesInRun = 0;
  }

  #countAttempts(delivery: Delivery, seen: Seen): void {
    for (const { run, number } of delivery.attempts.slice(seen.attempts)) {
      const count = (seen.inRun.get(run) ?? 0) + 1;
      require(number === count, `attempt ${number} of a run is its ${count}. that counts`);
      require(count <= this.#attemptsMax, "more counted attempts than a run has");
      seen.inRun.set(run, count);
    }
    seen.attempts = delivery.attempts.length;
  }

  ended(): void {
    for (const { status, open } of this.#rows.deliveries) {
      require(hasEnded(status) && open === null, `a delivery never ended: it is ${status}`);
    }
  }
}

function require(isSo: boolean, otherwise: string): void {
  if (!isSo) throw new Violation(otherwise);
}
