import type { IdempotencyClaim } from "../model/idempotency.ts";
import { TtlMap } from "../model/ttl-map.ts";
import { withDeadline } from "./deadline.ts";
import { type IdempotencyStore, LockWaitError } from "./idempotency.ts";
import {
  earlierResponse,
  type RecordWrite,
  recordedWrite,
  type Write,
  type WriteResult,
} from "./idempotent-write.ts";
import {
  LOCK_WAIT_IN_BATCH_MS,
  SLOW_NAMES_MAX,
  WRITES_PER_BATCH_MAX,
  WRITTEN_BYTES_PER_BATCH_MAX,
} from "./limits.ts";
import type { Transaction } from "./operation.ts";
import { Problem, TemporarilyUnavailable } from "./problems.ts";
import { type OperationResponse, toStoredResponse } from "./responses.ts";
import { TurnQueue } from "./turn-queue.ts";

/** A write that may share its transaction with others. */
export type BatchedWrite<Item> = Write & {
  /** What it asks for, or why that is refused. A repeat of what was answered gets that answer all the same. */
  readonly item: Item | Problem;
  /** Two with one name never share a transaction; null: it has none. */
  readonly name: string | null;
  /** What counts towards the size of a batch. */
  readonly bytes: number;
};

export type WriteBatches<Item> = {
  /** Claim, effect and stored response in one transaction with those of others. Rejects with what refuses this one. */
  add(write: BatchedWrite<Item>, waitMs: number): Promise<WriteResult>;
};

/** Responses, or why there are none, in the order of the items. A throw undoes the whole batch. */
export type PerformEach<Item = unknown> = (
  items: readonly Item[],
  tx: Transaction,
) => Promise<readonly (OperationResponse | Problem)[]>;

export type WriteBatchesOptions<Item> = {
  readonly store: IdempotencyStore;
  readonly recordWrite: RecordWrite;
  readonly performEach: PerformEach<Item>;
};

type Waiting<Item> = {
  readonly write: BatchedWrite<Item>;
  /** Held from the moment it leaves the queue until it is settled. */
  readonly names: readonly string[];
  readonly settle: (result: Promise<WriteResult>) => void;
  /** Its caller has stopped waiting. */
  isGone: boolean;
};

/** How long a name that was locked is tried alone from the start. */
const SLOW_FOR_MS = 60_000;
/** Writes that run alone at a time: what a failed batch is taken apart into, and those that wait for locks. */
const ALONE_MAX = 3;
const PATIENT_MAX = 2;

/**
 * Writes of one operation that come while a transaction runs go together in the next one (a group commit): one flush of
 * the disk for all. Accounts take turns, so that a flood of one leaves the others their places.
 *
 * Each is judged alone. When one cannot be, because of a lock that somebody holds for long or because the database
 * refuses it, the batch is taken apart and each runs alone; whoever meets a lock again then waits for it by itself.
 */
export function createWriteBatches<Item>(options: WriteBatchesOptions<Item>): WriteBatches<Item> {
  const { store } = options;
  const queue = new TurnQueue<Waiting<Item>>();
  const held = new Set<string>();
  const slow = new TtlMap<string, true>({ entriesMax: SLOW_NAMES_MAX, now: () => performance.now() });
  const alone = runLimited(ALONE_MAX, (waiting: Waiting<Item>) => run([waiting], LOCK_WAIT_IN_BATCH_MS));
  const patient = runLimited(PATIENT_MAX, (waiting: Waiting<Item>) => run([waiting], null));
  let isRunning = false;

  /** Runs batches until none can be made. */
  async function look(): Promise<void> {
    if (isRunning) return;
    isRunning = true;
    // What this turn of the event loop brings goes together.
    await new Promise(setImmediate);
    for (let batch = take(); batch.length > 0; batch = take()) await run(batch, LOCK_WAIT_IN_BATCH_MS);
    isRunning = false;
  }

  function take(): readonly Waiting<Item>[] {
    const batch: Waiting<Item>[] = [];
    let bytes = 0;
    queue.offer((waiting) => {
      if (waiting.isGone) return "gone";
      if (batch.length >= WRITES_PER_BATCH_MAX) return "stop";
      if (batch.length > 0 && bytes + waiting.write.bytes > WRITTEN_BYTES_PER_BATCH_MAX) return "stop";
      if (waiting.names.some((name) => held.has(name))) return "stays";
      for (const name of waiting.names) held.add(name);
      if (slow.has(waiting.names.at(-1)!)) patient(waiting);
      else batch.push(waiting);
      bytes += waiting.write.bytes;
      return "gone";
    });
    return batch;
  }

  async function run(batch: readonly Waiting<Item>[], lockWaitMs: number | null): Promise<void> {
    const wanted = batch.filter(({ isGone }) => !isGone);
    for (const { names, isGone } of batch) if (isGone) for (const name of names) held.delete(name);
    if (wanted.length === 0) return;
    try {
      const writes = wanted.map(({ write }) => write);
      const work = (tx: Transaction) => perform(tx, writes);
      const outcomes = await (lockWaitMs === null
        ? store.transaction(work)
        : store.transactionWithin(lockWaitMs, work));
      for (const [index, waiting] of wanted.entries()) end(waiting, settled(outcomes[index]!));
    } catch (error) {
      if (wanted.length > 1 && !(error instanceof TemporarilyUnavailable)) wanted.forEach(alone);
      else if (error instanceof LockWaitError) for (const waiting of wanted) wait(waiting);
      else for (const waiting of wanted) end(waiting, Promise.reject(error));
    }
  }

  function wait(waiting: Waiting<Item>): void {
    slow.set(waiting.names.at(-1)!, true, SLOW_FOR_MS);
    patient(waiting);
  }

  function end({ names, settle }: Waiting<Item>, result: Promise<WriteResult>): void {
    for (const name of names) held.delete(name);
    settle(result);
    look();
  }

  async function perform(
    tx: Transaction,
    writes: readonly BatchedWrite<Item>[],
  ): Promise<readonly (WriteResult | Problem)[]> {
    const states = await store.claimAll(
      tx,
      writes.map(({ claim }) => claim),
    );
    const outcomes = writes.map(({ claim, item }, index) => {
      const earlier = refused(() => earlierResponse(states[index]!, claim));
      if (earlier instanceof Problem) return earlier;
      if (earlier !== null) return { response: earlier, isReplayed: true };
      return item instanceof Problem ? item : null;
    });
    const fresh = writes.filter((_, index) => outcomes[index] === null);
    if (fresh.length === 0) return outcomes as (WriteResult | Problem)[];
    const responses = await options.performEach(
      fresh.map(({ item }) => item as Item),
      tx,
    );
    const done: { claim: IdempotencyClaim; response: ReturnType<typeof toStoredResponse> }[] = [];
    for (const [index, write] of fresh.entries()) {
      const response = responses[index]!;
      if (response instanceof Problem) continue;
      await options.recordWrite(tx, recordedWrite(write, response));
      done.push({ claim: write.claim, response: toStoredResponse(response, write.holdsSecret) });
    }
    if (done.length > 0) await store.completeAll(tx, done);
    let next = 0;
    return outcomes.map((outcome) => {
      if (outcome !== null) return outcome;
      const response = responses[next++]!;
      return response instanceof Problem ? response : { response, isReplayed: false };
    });
  }

  return {
    add: (write, waitMs) => {
      let waiting: Waiting<Item>;
      const result = new Promise<WriteResult>((settle) => {
        waiting = { write, names: namesOf(write), settle, isGone: false };
        queue.add(write.claim.accountId, waiting);
      });
      look();
      return withDeadline(waitMs, "the transaction", result).finally(() => {
        waiting.isGone = true;
      });
    },
  };
}

/** Its key, and what its operation calls it. The last one is what its locks are known by. */
function namesOf<Item>({ claim, name }: BatchedWrite<Item>): readonly string[] {
  const { accountId, keyId, idempotencyKey, operationKey } = claim;
  const key = JSON.stringify([accountId, keyId, idempotencyKey]);
  return name === null ? [key] : [key, JSON.stringify([operationKey, accountId, name])];
}

/** What `read` returns, or the problem that it throws. */
function refused<T>(read: () => T): T | Problem {
  try {
    return read();
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
}

function settled(outcome: WriteResult | Problem): Promise<WriteResult> {
  return outcome instanceof Problem ? Promise.reject(outcome) : Promise.resolve(outcome);
}

/** Does the work for each item, at most so many at a time. `work` never rejects. */
function runLimited<T>(runningMax: number, work: (item: T) => Promise<void>): (item: T) => void {
  const waiting: T[] = [];
  let running = 0;
  async function next(): Promise<void> {
    if (running >= runningMax || waiting.length === 0) return;
    running++;
    await work(waiting.shift()!);
    running--;
    next();
  }
  return (item) => {
    waiting.push(item);
    next();
  };
}
