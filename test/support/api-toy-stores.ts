import type { ClaimState, IdempotencyClaim, StoredResponse } from "../../src/base/model/idempotency.ts";
import { type ApiKey, digestSecret, formatApiKey } from "../../src/http/api-keys.ts";
import type { IdempotencyStore } from "../../src/http/idempotent-write.ts";
import type { Transaction } from "../../src/http/operation.ts";
import type { CountRequest } from "../../src/http/rate-limits.ts";

/** A transaction of the toy stores: undone in reverse if it does not commit. */
type ToyTx = { readonly undo: (() => void)[]; readonly release: (() => void)[] };

/** The kernel only passes transactions on, so nothing behind the types is needed here. */
export const toyTx = (tx: Transaction): ToyTx => tx as unknown as ToyTx;

type Entry =
  | { readonly kind: "completed"; readonly fingerprint: Buffer; readonly response: StoredResponse }
  | { readonly kind: "calling"; readonly token: string; readonly leaseMs: number; readonly renewals: number };

type Done = { readonly claim: IdempotencyClaim; readonly response: StoredResponse };

export type ToyIdempotencyStore = IdempotencyStore & {
  /** The same for many writes, as an operation does that takes them together. */
  claimedTogether<T>(
    claims: readonly IdempotencyClaim[],
    work: (
      tx: Transaction,
      states: readonly ClaimState[],
    ) => Promise<{ readonly result: T; readonly completed: readonly Done[] }>,
  ): Promise<T>;
  readonly entries: Map<string, Entry>;
  /** Transactions that were committed. */
  commits(): number;
};

/** Claims, stored responses and rollback as the interface requires, in memory. */
export function createToyIdempotencyStore(): ToyIdempotencyStore {
  const entries = new Map<string, Entry>();
  const locked = new Set<string>();
  let commits = 0;

  const put = (tx: Transaction, id: string, entry: Entry): void => {
    const before = entries.get(id);
    entries.set(id, entry);
    toyTx(tx).undo.push(() => (before ? entries.set(id, before) : entries.delete(id)));
  };

  function look(claim: IdempotencyClaim): ClaimState {
    const id = idOf(claim);
    const entry = entries.get(id);
    if (entry?.kind === "completed") {
      return { state: "completed", fingerprint: entry.fingerprint, response: entry.response };
    }
    return entry || locked.has(id) ? { state: "in_progress" } : { state: "claimed" };
  }

  function lock(tx: Transaction, claim: IdempotencyClaim): ClaimState {
    const found = look(claim);
    if (found.state !== "claimed") return found;
    locked.add(idOf(claim));
    toyTx(tx).release.push(() => locked.delete(idOf(claim)));
    return found;
  }

  const store: ToyIdempotencyStore = {
    entries,
    commits: () => commits,
    claimedTransaction: (claim, work) =>
      store.claimedTogether([claim], async (tx, [state]) => {
        const { result, completed } = await work(tx, state!);
        return { result, completed: completed === null ? [] : [completed] };
      }),
    claimedTogether: (claims, work) =>
      store.transaction(async (tx) => {
        const { result, completed } = await work(
          tx,
          claims.map((claim) => lock(tx, claim)),
        );
        for (const { claim, response } of completed) {
          put(tx, idOf(claim), { kind: "completed", fingerprint: claim.fingerprint, response });
        }
        return result;
      }),
    transaction: async (work) => {
      const tx: ToyTx = { undo: [], release: [] };
      try {
        const result = await work(tx as unknown as Transaction);
        commits++;
        return result;
      } catch (error) {
        for (const step of tx.undo.reverse()) step();
        throw error;
      } finally {
        for (const step of tx.release) step();
      }
    },
    claimCall: async (tx, claim, lease) => {
      const found = look(claim);
      if (found.state === "claimed") put(tx, idOf(claim), { kind: "calling", ...lease, renewals: 0 });
      return found;
    },
    renewCall: async (tx, claim, lease) => {
      const entry = entries.get(idOf(claim));
      if (entry?.kind === "calling" && entry.token === lease.token) {
        put(tx, idOf(claim), { ...entry, renewals: entry.renewals + 1 });
      }
    },
    completeCall: async (tx, { claim, response }, token) => {
      const entry = entries.get(idOf(claim));
      if (entry?.kind !== "calling" || entry.token !== token) return false;
      put(tx, idOf(claim), { kind: "completed", fingerprint: claim.fingerprint, response });
      return true;
    },
    releaseCall: async (_tx, claim, token) => {
      const entry = entries.get(idOf(claim));
      if (entry?.kind === "calling" && entry.token === token) entries.delete(idOf(claim));
    },
  };
  return store;
}

function idOf({ accountId, keyId, idempotencyKey }: IdempotencyClaim): string {
  return JSON.stringify([accountId, keyId, idempotencyKey]);
}

/** Counts requests in windows that never end on their own. */
export function createToyCounter(): {
  readonly count: CountRequest;
  reset(): void;
  of(bucket: string): number;
} {
  const counts = new Map<string, number>();
  return {
    count: async (bucket, policy) => {
      const requests = (counts.get(bucket) ?? 0) + 1;
      counts.set(bucket, requests);
      return { requests, resetMs: policy.windowSeconds * 1000 - 1 };
    },
    reset: () => counts.clear(),
    of: (bucket) => counts.get(bucket) ?? 0,
  };
}

export type ToyKeys = {
  find(digest: Buffer): Promise<ApiKey | null>;
  /** Makes a key and gives its text. */
  add(key: Partial<ApiKey> & { readonly keyClass?: "live" | "test" }): string;
};

export function createToyKeys(): ToyKeys {
  const keys = new Map<string, ApiKey>();
  return {
    find: async (digest) => keys.get(digest.toString("hex")) ?? null,
    add: ({ keyClass = "test", ...key }) => {
      const text = formatApiKey("svc", keyClass, Buffer.alloc(32, keys.size + 1));
      keys.set(digestSecret(text).toString("hex"), {
        id: `key-${keys.size + 1}`,
        accountId: null,
        userId: null,
        scopes: new Set(),
        expiresAt: null,
        revokedAt: null,
        ...key,
      });
      return text;
    },
  };
}
