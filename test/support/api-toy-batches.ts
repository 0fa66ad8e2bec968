import { LockWaitError } from "../../src/http/idempotent-write.ts";
import type { Earlier, Transaction } from "../../src/http/operation.ts";
import { Problem } from "../../src/http/problems.ts";
import { type OperationResponse, toStoredResponse } from "../../src/http/responses.ts";
import { createWriteBatches } from "../../src/http/write-batches.ts";
import { createToyIdempotencyStore, type ToyIdempotencyStore, toyTx } from "./api-toy-stores.ts";

/** Longer than a test may take. */
export const FOR_EVER_MS = 10_000_000;

type Asked = {
  readonly account?: string;
  readonly key?: string;
  readonly name?: string | null;
  readonly bytes?: number;
  readonly waitMs?: number;
  /** Refused before it is written. */
  readonly problem?: Problem;
};

/**
 * Batches over the toy store; a write waits for ever unless it says for how long. An item is its text; whatever the
 * database would do to one is in these sets.
 */
export function openBatches(
  change: (store: ToyIdempotencyStore) => Partial<ToyIdempotencyStore> = () => ({}),
) {
  const toy = createToyIdempotencyStore();
  const store = { ...toy, ...change(toy) };
  const world = {
    toy,
    /** What was performed together, each time, failed ones included. */
    batches: [] as (readonly string[])[],
    /** What took effect: committed, in order. */
    effects: [] as string[],
    /** Names whose locks somebody else holds. */
    locked: new Set<string>(),
    /** Items that the database refuses, and what it throws. */
    poison: new Map<string, Error>(),
    /** Items refused one by one. */
    refused: new Set<string>(),
    /** What a batch waits for before it ends. */
    gate: async (_items: readonly string[]): Promise<void> => {},
  };
  const perform = async (items: readonly string[], tx: Transaction) => {
    world.batches.push(items);
    await world.gate(items);
    for (const item of items) {
      const error = world.poison.get(item);
      if (error !== undefined) throw error;
      if (!world.locked.has(item)) continue;
      await new Promise(setImmediate);
      throw new LockWaitError("held");
    }
    return items.map((item) => {
      if (world.refused.has(item)) return new Problem("box_sealed");
      world.effects.push(item);
      toyTx(tx).undo.push(() => world.effects.splice(world.effects.lastIndexOf(item), 1));
      return { status: 201, headers: {}, body: Buffer.from(item), etag: null };
    });
  };
  const batches = createWriteBatches<string>((writes) => {
    const claims = writes.map(({ claim }) => claim);
    return store.claimedTogether(claims, async (tx, states) => {
      const outcomes: (Problem | Earlier | OperationResponse | null)[] = writes.map(({ item }, index) => {
        const earlier = states[index]!;
        if (earlier.state !== "claimed") return { earlier };
        return item instanceof Problem ? item : null;
      });
      const fresh = writes.filter((_, index) => outcomes[index] === null);
      const items = fresh.map(({ item }) => item as string);
      const performed = items.length === 0 ? [] : await perform(items, tx);
      const completed = fresh.flatMap(({ claim }, index) => {
        const response = performed[index]!;
        if (response instanceof Problem) return [];
        return [{ claim, response: toStoredResponse(response, false) }];
      });
      let next = 0;
      return { result: outcomes.map((outcome) => outcome ?? performed[next++]!), completed };
    });
  });
  let keys = 0;
  const add = async (item: string, asked: Asked = {}): Promise<string> => {
    const { account = "a", key = `key-${++keys}`, name = item, bytes = 100, waitMs = FOR_EVER_MS } = asked;
    const { response, isReplayed } = await batches.add(
      {
        claim: {
          accountId: account,
          keyId: "k",
          idempotencyKey: key,
          operationKey: "boxes.post",
          fingerprint: Buffer.from(item),
        },
        size: 1,
        holdsSecret: false,
        isExempt: false,
        caller: { keyId: "k", isStaff: false, userId: null, scopes: new Set() },
        requestId: "r",
        details: () => ({ item }),
        judgeRepeat: null,
        item: asked.problem ?? item,
        name,
        bytes,
      },
      waitMs,
    );
    return `${isReplayed ? "again " : ""}${response.body}`;
  };
  return { ...world, world, add };
}
