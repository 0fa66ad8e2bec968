import type { ClientBase, Pool } from "pg";
import { deleteAll, inPages } from "../../base/database/account-rows.ts";
import { inTransaction } from "../../base/database/transaction.ts";
import { repeat } from "../../base/model/backoff.ts";
import { DAY_MS } from "../../base/model/time.ts";
import { ALL_SPACES, isInPlace, newObjectKey, prefixEnd } from "../model/documents.ts";
import { STORE_ID_KEY } from "../objects/known-store.ts";
import {
  isObjectKey,
  ObjectNotFoundError,
  type ObjectStore,
  ObjectStoreAwayError,
} from "../objects/object-store.ts";
import { deleteGone } from "../store/bin.ts";
import { readDocument } from "../store/documents.ts";
import {
  AROUND_DOCUMENTS,
  countLoose,
  deleteDocuments,
  FROM_DOCUMENTS,
  forgetErased,
  letLooseGo,
  readLooseKeys,
  readStoragePrefixes,
  readStoredDocuments,
} from "../store/erasing.ts";
import { byTurns } from "../store/lists.ts";
import { claimLoose, forgetLoose, releaseKeys, reserveKeys, takeReserved } from "../store/loose-objects.ts";
import {
  claimMove,
  continueMove,
  endMove,
  type KeySwitch,
  moveLater,
  postponeMove,
  readMovePage,
  type StoredMove,
  switchKeys,
} from "../store/moves.ts";
import { lockStoragePrefix } from "../store/spaces.ts";

/**
 * Removes objects that no document has and that nobody can bring to one any more: old ones of what was moved, and what
 * uploads and moves left behind. A step of the next accounts behind `afterAccountId`; returns the last of them, or null
 * where there was nothing to remove.
 */
export async function removeLoose(
  { pool, objects }: { readonly pool: Pool; readonly objects: ObjectStore },
  afterAccountId: string,
  signal: AbortSignal,
): Promise<{ readonly accountId: string } | null> {
  const due = await claimLoose(pool, afterAccountId, OBJECTS_PER_STEP);
  const removals = due.map(async (loose) => {
    await objects.remove(loose.storageKey, signal);
    await forgetLoose(pool, loose);
  });
  await Promise.allSettled(removals);
  await Promise.all(removals);
  return due.toSorted((a, b) => (a.accountId < b.accountId ? -1 : 1)).at(-1) ?? null;
}

/**
 * Deletes what the workspace has of an account that is erased, its objects first: killed anywhere, the rows that are
 * left say which are still there. An upload or a copy that is under way, which has reserved its key, may yet bring its
 * object: that key is kept for a day, for `removeLoose`, and as many are `left`. `gone`: whether there was anything.
 */
export async function eraseWorkspace(
  { pool, objects }: { readonly pool: Pool; readonly objects: ObjectStore },
  accountId: string,
  onPage: (what: string) => void,
): Promise<{ readonly gone: number; readonly left: number }> {
  const removeAll = async (keys: readonly string[]) => {
    if (keys.length > 0) onPage("objects");
    await Promise.all(keys.map((key) => objects.remove(key)));
  };
  let gone = await deleteAll(pool, FROM_DOCUMENTS, accountId, onPage);
  gone += await inPages(async () => {
    const page = await readStoredDocuments(pool, accountId, OBJECTS_PER_STEP);
    await removeAll(page.filter(({ hasContent }) => hasContent).map(({ storageKey }) => storageKey));
    // One that has been moved meanwhile comes again.
    await deleteDocuments(pool, accountId, page);
    return page.length;
  });
  let after = "";
  await inPages(async () => {
    const keys = (await readLooseKeys(pool, accountId, after, OBJECTS_PER_STEP)).map((one) => one.storageKey);
    await removeAll(keys);
    gone += await letLooseGo(pool, accountId, keys);
    after = keys.at(-1) ?? after;
    return keys.length;
  });
  gone += await removeUnknown(pool, objects, accountId, () => onPage("objects that no row knows"));
  gone += await deleteAll(pool, AROUND_DOCUMENTS, accountId, onPage);
  await forgetErased(pool);
  return { gone, left: await countLoose(pool, accountId) };
}

/**
 * Removes what is left where the account's spaces have, had or will have their objects: a database that was restored
 * to an earlier time does not know what was stored or moved since. Returns how many.
 */
async function removeUnknown(
  pool: Pool,
  objects: ObjectStore,
  accountId: string,
  onEach: () => void,
): Promise<number> {
  const ends = new Set(
    (await readStoragePrefixes(pool, accountId)).map((one) => prefixEnd(one.storagePrefix)),
  );
  let count = 0;
  if (ends.size === 0) return count;
  for await (const folder of objects.list(ALL_SPACES, "folders")) {
    if (!ends.has(prefixEnd(folder))) continue;
    for await (const key of objects.list(folder, "keys")) {
      if (!isObjectKey(key)) continue;
      onEach();
      await objects.remove(key);
      count++;
    }
  }
  return count;
}

/** Copied at a time, before their rows are switched in one transaction. */
const OBJECTS_PER_STEP = 25;
/** Of an object that is missing: somebody has eight days to restore it. One that cannot be copied is tried for ever. */
const LOST_TRIES_MAX = 200;

export type Moving = {
  readonly pool: Pool;
  readonly objects: ObjectStore;
  /** How long the old object of what was moved is kept. */
  readonly keptMs: number;
  /** A document has no object where its row says, told each time that it is looked for; somebody has to look. */
  readonly onLost: (document: { readonly accountId: string; readonly documentId: string }) => void;
  /** An object cannot be copied, though the store is there. It is tried again. */
  readonly onUncopied: (error: ObjectStoreAwayError) => void;
  readonly signal: AbortSignal;
};

/**
 * Moves the next objects: each is copied to its new key, then its row is switched, and with it the old key released.
 * Killed anywhere, the row still says where the object is, and the next one to take this step begins it again; several
 * at once only copy in vain. Returns how many rows were switched.
 */
export async function advanceMove(moving: Moving, move: StoredMove): Promise<number> {
  const { pool, signal } = moving;
  const page = await readMovePage(pool, move, OBJECTS_PER_STEP);
  const wanted = page
    .filter((document) => !isInPlace(document.storage_key, document))
    .map((document) => ({ ...document, newKey: newObjectKey(document) }));
  const stored = wanted.filter(({ has_content }) => has_content);
  const newKeys = stored.map(({ newKey }) => newKey);
  // The account is erased, and this move with it.
  if ((await reserveKeys(pool, move, newKeys, 0, null)).length < newKeys.length) return 0;
  try {
    const { copied, failed, lost } = await copyAll(moving, move, stored);
    signal.throwIfAborted();
    const switches = [...copied, ...wanted.filter(({ has_content }) => !has_content)];
    const isTriedAgain = failed.length > 0 || (lost.length > 0 && move.failures + 1 < LOST_TRIES_MAX);
    return await inTransaction(pool, async (tx) => {
      const { isStale, count } = await switchAll(tx, moving, move, switches, newKeys);
      // Whoever renamed the space has asked for this again, and a reservation that has run out is made again.
      if (isStale) await continueMove(tx, move, move.afterId);
      else if (move.documentId !== null && isTriedAgain) await postponeMove(tx, move);
      else {
        const left = [...failed, ...lost].map(({ id }) => id);
        if (move.documentId === null) await moveLater(tx, move.accountId, move.id, left);
        if (page.length < OBJECTS_PER_STEP) await endMove(tx, move);
        else await continueMove(tx, move, page.at(-1)!.id);
      }
      return count;
    });
  } catch (error) {
    // If this fails too, they are released when their time is over.
    await releaseKeys(pool, move, { keys: newKeys }).catch(() => undefined);
    throw error;
  }
}

/** @throws ObjectStoreAwayError when nothing can be copied because the store is away */
async function copyAll(moving: Moving, move: StoredMove, stored: readonly KeySwitch[]) {
  const { pool, objects, onLost, onUncopied, signal } = moving;
  const { accountId } = move;
  const copies = await Promise.allSettled(
    stored.map(({ storage_key, newKey }) => objects.copy(storage_key, newKey, signal)),
  );
  signal.throwIfAborted();
  const [copied, failed, lost]: [KeySwitch[], KeySwitch[], KeySwitch[]] = [[], [], []];
  const errors: ObjectStoreAwayError[] = [];
  for (const [index, copy] of copies.entries()) {
    const document = stored[index]!;
    if (copy.status === "fulfilled") copied.push(document);
    else if (copy.reason instanceof ObjectStoreAwayError) {
      failed.push(document);
      errors.push(copy.reason);
    } else if (!(copy.reason instanceof ObjectNotFoundError)) throw copy.reason;
    else {
      const now = await readDocument(pool, accountId, move.spaceId, document.id);
      // Somebody else has moved it meanwhile, or it is gone.
      if (now?.storage_key !== document.storage_key) continue;
      lost.push(document);
      onLost({ accountId, documentId: document.id });
    }
  }
  // Whatever the store has there: an outage is no fault of an object's.
  if (errors.length > 0 && copied.length === 0) {
    await objects.stat(STORE_ID_KEY, signal).catch((error: unknown) => {
      if (!(error instanceof ObjectNotFoundError)) throw error;
    });
  }
  for (const error of errors) onUncopied(error);
  return { copied, failed, lost };
}

/** @param newKeys all that were reserved: those that no document gets are released */
async function switchAll(
  tx: ClientBase,
  { keptMs }: Moving,
  move: StoredMove,
  switches: readonly KeySwitch[],
  newKeys: readonly string[],
): Promise<{ isStale: boolean; count: number }> {
  const { accountId } = move;
  const space = await lockStoragePrefix(tx, accountId, move.spaceId);
  const isStale = switches.some((one) => one.storagePrefix !== space?.storagePrefix);
  const reserved = await takeReserved(tx, accountId, isStale ? [] : newKeys);
  const taken = new Set(reserved.map(({ storageKey }) => storageKey));
  const possible = isStale ? [] : switches.filter((one) => !one.has_content || taken.has(one.newKey));
  const switched = await switchKeys(tx, accountId, possible);
  const used = possible.filter(({ id }) => switched.has(id));
  const usedKeys = new Set(used.map(({ newKey }) => newKey));
  await releaseKeys(tx, move, { keys: newKeys.filter((key) => !usedKeys.has(key)) });
  const left = used.filter(({ has_content }) => has_content);
  const keys = left.map(({ storage_key }) => storage_key);
  await releaseKeys(tx, move, { keys, bytes: left.map(({ file_size }) => file_size), keptMs });
  return { isStale: isStale || possible.length < switches.length, count: used.length };
}

/** How soon a rename is noticed. */
const LOOK_EVERY_MS = 5_000;
const REMOVE_EVERY_MS = 10_000;
const CLEAN_EVERY_MS = 3_600_000;
/** Nobody else takes a step that is being taken; one that failed, or whose process died, is taken again then. */
const STEP_LEASE_MS = 30_000;
/** What a put has not gone on with for so long. */
const UNFINISHED_KEPT_MS = DAY_MS;

type MoverWork = "move" | "remove" | "delete" | "clean";

export type MoverOptions = Pick<Moving, "pool" | "objects" | "keptMs" | "onLost"> & {
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly onError: (work: MoverWork, error: unknown) => void;
  /** Absent: five seconds. */
  readonly lookEveryMs?: number;
};

/**
 * Brings objects to where the names say, removes what nobody needs, and deletes what leaves the bin. Any number of
 * processes may run one: the rows of `workspace.moves` are the truth, and each step is one process's. Jobs of
 * graphile-worker were the other way: they would have to be kept in step with rows that are needed all the same.
 * Returns what stops it.
 */
export function startMover(options: MoverOptions): () => Promise<void> {
  const { pool, objects, keptMs, now, onLost, onError, lookEveryMs = LOOK_EVERY_MS } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  const onUncopied = (error: Error) => onError("move", error);
  const claim = byTurns((after) => claimMove(pool, after, STEP_LEASE_MS));
  const removeNext = byTurns((after) => removeLoose({ pool, objects }, after, signal));
  const deleteNext = byTurns((after) => deleteGone(pool, after));
  const removeEveryMs = Math.min(REMOVE_EVERY_MS, 10 * lookEveryMs);

  const loop = (work: MoverWork, everyMs: number, step: () => Promise<boolean>) =>
    repeat(everyMs, signal, step, (error) => onError(work, error));

  const loops = Promise.all([
    loop("move", lookEveryMs, async () => {
      const move = await claim();
      if (move === null) return false;
      await advanceMove({ pool, objects, keptMs, onLost, onUncopied, signal }, move);
      return true;
    }),
    loop("remove", removeEveryMs, async () => (await removeNext()) !== null),
    loop("delete", removeEveryMs, async () => (await deleteNext()) !== null),
    loop("clean", CLEAN_EVERY_MS, async () => {
      await forgetErased(pool);
      await objects.removeLeftovers(new Date(now() - UNFINISHED_KEPT_MS), signal);
      return false;
    }),
  ]);
  return async () => {
    stopping.abort();
    await loops;
  };
}
