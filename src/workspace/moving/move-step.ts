import type { ClientBase, Pool } from "pg";
import { inTransaction } from "../../store/transaction.ts";
import { isInPlace, newObjectKey } from "../model/object-keys.ts";
import { ObjectNotFoundError } from "../objects/object-errors.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import { giveUpKeys, reserveKeys, takeReserved } from "../store/loose-objects.ts";
import {
  continueMove,
  endMove,
  isStillAt,
  type KeySwitch,
  readMovePage,
  type StoredMove,
  switchKeys,
} from "../store/moves.ts";
import { lockStoragePrefix } from "../store/spaces.ts";

/** Copied at a time, before their rows are switched in one transaction. */
const OBJECTS_PER_STEP = 25;

export type Moving = {
  readonly pool: Pool;
  readonly objects: ObjectStore;
  /** A document has no object where its row says. Nothing can be moved; somebody has to look. */
  readonly onLost: (document: { readonly accountId: string; readonly documentId: string }) => void;
  readonly signal: AbortSignal;
};

/**
 * Moves the next objects: each is copied to its new key, then its row is switched, and with it the old key given up.
 * Killed anywhere, the row still says where the object is, and the next one to take this step begins it again; several
 * at once only copy in vain. Returns how many rows were switched.
 */
export async function advanceMove(moving: Moving, move: StoredMove): Promise<number> {
  const { pool, signal } = moving;
  const page = await readMovePage(pool, move, OBJECTS_PER_STEP);
  const wanted = page
    .filter((document) => !isInPlace(document.storageKey, document))
    .map((document) => ({ ...document, newKey: newObjectKey(document) }));
  const stored = wanted.filter(({ hasContent }) => hasContent);
  const newKeys = stored.map(({ newKey }) => newKey);
  if (newKeys.length > 0) await reserveKeys(pool, move.accountId, newKeys);
  try {
    const copied = await copyAll(moving, move, stored);
    signal.throwIfAborted();
    const switches = [...copied, ...wanted.filter(({ hasContent }) => !hasContent)];
    const isEnd = page.length < OBJECTS_PER_STEP;
    const afterId = page.at(-1)?.documentId ?? move.afterId;
    return await inTransaction(pool, async (tx) => {
      const { isStale, count } = await switchAll(tx, move, switches, newKeys);
      // Whoever renamed the space has asked for this again, and a reservation that has run out is made again.
      if (isStale) await continueMove(tx, move, move.afterId);
      else if (isEnd) await endMove(tx, move);
      else await continueMove(tx, move, afterId);
      return count;
    });
  } catch (error) {
    // If this fails too, they are given up when their time is over.
    if (newKeys.length > 0) await giveUpKeys(pool, move.accountId, newKeys).catch(() => undefined);
    throw error;
  }
}

/** Those whose objects are there. */
async function copyAll(
  { pool, objects, onLost, signal }: Moving,
  { accountId }: StoredMove,
  stored: readonly KeySwitch[],
): Promise<readonly KeySwitch[]> {
  const copies = await Promise.allSettled(
    stored.map(({ storageKey, newKey }) => objects.copy(storageKey, newKey, signal)),
  );
  const copied: KeySwitch[] = [];
  for (const [index, copy] of copies.entries()) {
    const document = stored[index]!;
    if (copy.status === "fulfilled") copied.push(document);
    else if (!(copy.reason instanceof ObjectNotFoundError)) throw copy.reason;
    // Otherwise somebody else has moved it meanwhile.
    else if (await isStillAt(pool, accountId, document)) {
      onLost({ accountId, documentId: document.documentId });
    }
  }
  return copied;
}

/** @param newKeys all that were reserved: those that no document gets are given up */
async function switchAll(
  tx: ClientBase,
  move: StoredMove,
  switches: readonly KeySwitch[],
  newKeys: readonly string[],
): Promise<{ isStale: boolean; count: number }> {
  const { accountId } = move;
  const storagePrefix = await lockStoragePrefix(tx, accountId, move.spaceId);
  const isStale = switches.some((one) => one.storagePrefix !== storagePrefix);
  const taken = isStale || newKeys.length === 0 ? null : await takeReserved(tx, accountId, newKeys);
  const possible = isStale ? [] : switches.filter((one) => !one.hasContent || taken?.has(one.newKey));
  const switched = possible.length === 0 ? new Set() : await switchKeys(tx, accountId, possible);
  const used = possible.filter(({ documentId }) => switched.has(documentId));
  const usedKeys = new Set(used.map(({ newKey }) => newKey));
  const unused = newKeys.filter((key) => !usedKeys.has(key));
  const left = used.filter(({ hasContent }) => hasContent).map(({ storageKey }) => storageKey);
  if (unused.length + left.length > 0) await giveUpKeys(tx, accountId, [...unused, ...left]);
  return { isStale: isStale || possible.length < switches.length, count: used.length };
}
