import { TtlMap } from "../base/model/caches.ts";
import { settlesWithin, withDeadline } from "./deadline.ts";
import { earlierResponse, LockWaitError, type Write, type WriteResult } from "./idempotent-write.ts";
import {
  LOCK_WAIT_IN_BATCH_MS,
  LOCKS_NOTED_MAX,
  WRITE_BYTES_IN_BATCH_MAX,
  WRITES_PER_BATCH_MAX,
  WRITTEN_BYTES_PER_BATCH_MAX,
} from "./limits.ts";
import type { Earlier } from "./operation.ts";
import { Problem, TemporarilyUnavailable } from "./problems.ts";
import type { OperationResponse } from "./responses.ts";

/** What becomes of an item that is offered: it goes, stays where it is, or is left with all that come after it. */
export type Offered = "gone" | "stays" | "stop";

/** Items of several owners: each owner's in the order in which they came, and the owners in turn (round robin). */
export class TurnQueue<Item> {
  readonly #queues = new Map<string, Set<Item>>();

  add(owner: string, item: Item): void {
    const own = this.#queues.get(owner);
    if (own === undefined) this.#queues.set(owner, new Set([item]));
    else own.add(item);
  }

  /** Offers one item of each owner after the other, until all were offered or one is answered with "stop". */
  offer(take: (item: Item) => Offered): void {
    const turns = new Map([...this.#queues].map(([owner, items]) => [owner, items.values()]));
    while (turns.size > 0) {
      for (const [owner, left] of turns) {
        const offered = this.#offerNext(owner, left, take);
        if (offered === "stop") return;
        if (offered === "stays") turns.delete(owner);
      }
    }
  }

  /** The owner's next item that goes; "stays": none does. */
  #offerNext(owner: string, left: Iterator<Item>, take: (item: Item) => Offered): Offered {
    for (let next = left.next(); !next.done; next = left.next()) {
      const offered = take(next.value);
      if (offered === "stop") return "stop";
      if (offered === "stays") continue;
      const own = this.#queues.get(owner)!;
      own.delete(next.value);
      // Whoever had a turn is the last next time.
      this.#queues.delete(owner);
      if (own.size > 0) this.#queues.set(owner, own);
      return "gone";
    }
    return "stays";
  }
}

/** Does the work for each item, at most so many at a time, owners in turn. `work` never rejects. */
export function inTurns<Item>(
  runningMax: number,
  work: (item: Item) => Promise<void>,
): (owner: string, item: Item) => void {
  const queue = new TurnQueue<Item>();
  let running = 0;
  const startNext = () =>
    queue.offer((item) => {
      if (running >= runningMax) return "stop";
      running++;
      work(item).then(() => {
        running--;
        startNext();
      });
      return "gone";
    });
  return (owner, item) => {
    queue.add(owner, item);
    startNext();
  };
}

/** A write that may share its transaction with others. */
export type BatchedWrite<Item> = Write & {
  /** What it asks for, or why that is refused. A repeat of what was answered gets that answer all the same. */
  readonly item: Item | Problem;
  /** Two with one name never share a transaction; null: it has none. */
  readonly name: string | null;
  /** What counts towards the size of a batch. */
  readonly bytes: number;
};

/**
 * Claims, effects and stored responses in one transaction: what was done of each, or why it was not, in their order. A
 * throw undoes the whole batch.
 */
export type PerformEach<Item = unknown> = (
  writes: readonly BatchedWrite<Item>[],
  lockWaitMs: number,
) => Promise<readonly (OperationResponse | Problem | Earlier)[]>;

type Waiting<Item> = {
  readonly write: BatchedWrite<Item>;
  /** Held from the moment it leaves the queue until it is settled. */
  readonly names: readonly string[];
  readonly settle: (result: Promise<WriteResult>) => void;
  /** Its caller has stopped waiting. */
  isGone: boolean;
};

/** Those that may be in one batch; one batch runs after the other. */
type BatchQueue<Item> = { readonly queue: TurnQueue<Waiting<Item>>; isRunning: boolean };

/** How long a name that was locked is tried alone from the start, and its account kept from the others' batches. */
const NAME_LOCKED_FOR_MS = 60_000;
const ACCOUNT_CONTENDED_FOR_MS = 10_000;
/** Transactions at a time: for large writes and parts of failed batches, and for those that meet locks. */
const APART_MAX = 3;
const LOCKED_MAX = 2;
/** The next batch does not wait longer than this (for one whose connection is dead, say), with at most so many left. */
const LATE_AFTER_MS = 250;
const LATE_MAX = 2;

/**
 * Writes of one operation that come while a transaction runs go together in the next one (a group commit): one flush of
 * the disk for all. Accounts take turns, so that a flood of one leaves the others their places.
 *
 * Each is judged alone. When one cannot be, because of a lock that somebody holds for long or because the database
 * refuses it, the batch is taken apart by accounts, and what fails again into single writes. One that meets a lock then
 * tries again and again, in turn with others, until its caller is gone: to wait for one lock would hold a connection
 * that finds many others free.
 */
export function createWriteBatches<Item>(performEach: PerformEach<Item>) {
  const normal: BatchQueue<Item> = { queue: new TurnQueue(), isRunning: false };
  const contended: BatchQueue<Item> = { queue: new TurnQueue(), isRunning: false };
  const held = new Set<string>();
  const lockedNames = new TtlMap<string, true>(LOCKS_NOTED_MAX);
  const contendedAccounts = new TtlMap<string, true>(LOCKS_NOTED_MAX);
  const runApart = inTurns(APART_MAX, run);
  const runLocked = inTurns(LOCKED_MAX, run);
  let late = 0;

  /** Something came, or a name is free again. */
  function look(): void {
    for (const batches of [normal, contended]) if (!batches.isRunning) runBatches(batches);
  }

  async function runBatches(batches: BatchQueue<Item>): Promise<void> {
    batches.isRunning = true;
    // What this turn of the event loop brings goes together.
    await new Promise(setImmediate);
    for (let batch = take(batches); batch.length > 0; batch = take(batches)) {
      const running = run(batch);
      if (late >= LATE_MAX) await running;
      else if (!(await settlesWithin(LATE_AFTER_MS, running))) {
        late++;
        running.finally(() => late--);
      }
    }
    batches.isRunning = false;
  }

  function take({ queue }: BatchQueue<Item>): readonly Waiting<Item>[] {
    const batch: Waiting<Item>[] = [];
    let bytes = 0;
    queue.offer((waiting) => {
      const { write, names, isGone } = waiting;
      if (isGone) return "gone";
      if (batch.length >= WRITES_PER_BATCH_MAX) return "stop";
      if (names.some((name) => held.has(name))) return "stays";
      const goesApart = write.bytes > WRITE_BYTES_IN_BATCH_MAX;
      const isLocked = lockedNames.has(names.at(-1)!);
      if (!goesApart && !isLocked) {
        if (bytes + write.bytes > WRITTEN_BYTES_PER_BATCH_MAX) return "stop";
        bytes += write.bytes;
        batch.push(waiting);
      }
      for (const name of names) held.add(name);
      if (isLocked) runLocked(write.claim.accountId, [waiting]);
      else if (goesApart) runApart(write.claim.accountId, [waiting]);
      return "gone";
    });
    return batch;
  }

  /** Never rejects. */
  async function run(batch: readonly Waiting<Item>[]): Promise<void> {
    const { gone = [], wanted = [] } = Object.groupBy(batch, ({ isGone }) => (isGone ? "gone" : "wanted"));
    gone.forEach(release);
    if (wanted.length === 0) return;
    try {
      const writes = wanted.map(({ write }) => write);
      const outcomes = await performEach(writes, LOCK_WAIT_IN_BATCH_MS);
      for (const [index, waiting] of wanted.entries())
        end(waiting, resultOf(waiting.write, outcomes[index]!));
    } catch (error) {
      const [first] = wanted;
      if (wanted.length === 1 && error instanceof LockWaitError) runAgain(first!);
      else if (wanted.length === 1 || error instanceof TemporarilyUnavailable)
        for (const waiting of wanted) end(waiting, Promise.reject(error));
      else for (const part of partsOf(wanted)) runApart(part[0]!.write.claim.accountId, part);
    }
  }

  function runAgain(waiting: Waiting<Item>): void {
    const { accountId } = waiting.write.claim;
    lockedNames.set(waiting.names.at(-1)!, true, NAME_LOCKED_FOR_MS);
    contendedAccounts.set(accountId, true, ACCOUNT_CONTENDED_FOR_MS);
    runLocked(accountId, [waiting]);
  }

  function end(waiting: Waiting<Item>, result: Promise<WriteResult>): void {
    waiting.settle(result);
    release(waiting);
  }

  function release({ names }: Waiting<Item>): void {
    for (const name of names) held.delete(name);
    look();
  }

  /** Claim, effect and stored response in one transaction with those of others. Rejects with what refuses this one. */
  async function add(write: BatchedWrite<Item>, waitMs: number): Promise<WriteResult> {
    const { promise: result, resolve: settle } = Promise.withResolvers<WriteResult>();
    const waiting: Waiting<Item> = { write, names: namesOf(write), settle, isGone: false };
    const { accountId } = write.claim;
    (contendedAccounts.has(accountId) ? contended : normal).queue.add(accountId, waiting);
    look();
    try {
      return await withDeadline(waitMs, "the transaction", result);
    } finally {
      waiting.isGone = true;
    }
  }

  return { add };
}

/** Its key, and what its operation calls it. The last one is what its locks are known by. */
function namesOf<Item>({ claim, name }: BatchedWrite<Item>): readonly string[] {
  const { accountId, keyId, idempotencyKey, operationKey } = claim;
  const key = JSON.stringify([accountId, keyId, idempotencyKey]);
  return name === null ? [key] : [key, JSON.stringify([operationKey, accountId, name])];
}

async function resultOf(
  { claim }: Write,
  outcome: OperationResponse | Problem | Earlier,
): Promise<WriteResult> {
  if (outcome instanceof Problem) throw outcome;
  if (!("earlier" in outcome)) return { response: outcome, isReplayed: false };
  const response = earlierResponse(outcome.earlier, claim);
  // Whoever held the claim has let it go since.
  if (response === null) throw new Problem("idempotency_in_progress");
  return { response, isReplayed: true };
}

/** By account; those of one account one by one. */
function partsOf<Item>(batch: readonly Waiting<Item>[]): readonly (readonly Waiting<Item>[])[] {
  const parts = [...Map.groupBy(batch, ({ write }) => write.claim.accountId).values()];
  return parts.length > 1 ? parts : batch.map((waiting) => [waiting]);
}
