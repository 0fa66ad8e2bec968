import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import type { Config } from "../../base/config/config.ts";
import { isUuid } from "../../base/model/formats.ts";
import { NEVER, unlessAborted } from "./body-reader.ts";
import { hasFileStore, openFileStore } from "./file-store.ts";
import { ObjectNotFoundError, type ObjectStore, ObjectStoreAwayError } from "./object-store.ts";

/**
 * Reads an object that may be moved between the reading of its row and its own: then the row says where it is now.
 * @param key what the row said
 * @param findKey what the row says now; null: there is no row any more
 * @throws ObjectNotFoundError: it is not where its row says
 */
export async function readMovedObject<T>(
  key: string,
  read: (key: string) => Promise<T>,
  findKey: () => Promise<string | null>,
): Promise<T> {
  for (let keyNow = key; ; ) {
    try {
      return await read(keyNow);
    } catch (error) {
      if (!(error instanceof ObjectNotFoundError)) throw error;
      const found = await findKey();
      if (found === null || found === keyNow) throw error;
      keyNow = found;
    }
  }
}

/** Under which a store says which one it is. Who copies all objects copies it with them: the copy is the same store. */
export const STORE_ID_KEY = "store-id";
const ID_BYTES_MAX = 100;

/** What all processes know of the store together. */
type StoreIds = {
  /** Null: none yet. */
  read(): Promise<string | null>;
  /** Makes what `findId` resolves with the id, where there is none yet. Returns the one that is. */
  settle(findId: () => Promise<string>): Promise<string>;
};

/**
 * A store that is opened when it is first asked for something, for who keeps no documents needs none; and away until it
 * is known to be the one that all processes use. In another one (a disk that is not mounted, another STATE_DIR or
 * bucket) every object would be missing, and what is to be removed would stay for ever.
 * @param open `isNew`: nothing has been stored anywhere
 */
export function knownStore(open: (isNew: boolean) => Promise<ObjectStore>, ids: StoreIds): ObjectStore {
  let opening: Promise<ObjectStore> | null = null;
  let isKnown = false;
  let checking: Promise<void> | null = null;

  function opened(): Promise<ObjectStore> {
    const openWhatIs = async () => open((await ids.read()) === null);
    opening ??= openWhatIs().catch((error: unknown) => {
      // The next one to ask tries again.
      opening = null;
      throw error;
    });
    return opening;
  }

  async function expect(id: string): Promise<void> {
    const found = await findId(await opened());
    if (found !== id) {
      const says = found === null ? "it has no id" : `its id is ${found}`;
      throw otherStore(`${says}, and that of the store with the documents is ${id}`);
    }
    isKnown = true;
  }

  /** Before the store is used; while nothing has been stored anywhere, any store will do. */
  async function check(): Promise<void> {
    if (isKnown) return;
    const comparing = () => ids.read().then((id) => (id === null ? undefined : expect(id)));
    checking ??= comparing().finally(() => {
      checking = null;
    });
    await checking;
  }

  /** Before something is stored: what has the first object is the store of all. */
  async function establish(): Promise<void> {
    await check();
    if (isKnown) return;
    const store = await opened();
    await expect(await ids.settle(async () => (await findId(store)) ?? (await giveId(store))));
  }

  async function checked(signal = NEVER): Promise<ObjectStore> {
    const store = await opened();
    await unlessAborted(check, signal);
    return store;
  }

  /** A missing object may be a store that is missing since. */
  async function checkAgain(signal: AbortSignal): Promise<void> {
    isKnown = false;
    await unlessAborted(check, signal);
  }

  async function reading<T>(work: (store: ObjectStore) => Promise<T>, signal = NEVER): Promise<T> {
    const store = await checked(signal);
    try {
      return await work(store);
    } catch (error) {
      if (error instanceof ObjectNotFoundError) await checkAgain(signal);
      throw error;
    }
  }

  return {
    put: async (key, body, sizeBytes, signal = NEVER, sharer) => {
      const store = await opened();
      await unlessAborted(establish, signal);
      await store.put(key, body, sizeBytes, signal, sharer);
    },
    get: (key, range, signal) => reading((store) => store.get(key, range, signal), signal),
    copy: (from, to, signal) => reading((store) => store.copy(from, to, signal), signal),
    remove: async (key, signal = NEVER) => {
      const wasThere = await (await checked(signal)).remove(key, signal);
      if (!wasThere) await checkAgain(signal);
      return wasThere;
    },
    stat: (key, signal) => reading((store) => store.stat(key, signal), signal),
    list: async function* (folder, what, signal) {
      yield* (await checked(signal)).list(folder, what, signal);
    },
    removeLeftovers: async (before, signal) => (await checked(signal)).removeLeftovers(before, signal),
    check: async (signal) => {
      await (await opened()).check(signal);
      await checked(signal);
    },
    close: async () => {
      const store = await opening?.catch(() => null);
      await store?.close();
    },
  };
}

/** What the store says; null: nothing. */
async function findId(store: ObjectStore): Promise<string | null> {
  try {
    const { body } = await store.get(STORE_ID_KEY, { start: 0, end: ID_BYTES_MAX - 1 });
    const id = (await text(body)).trim();
    if (!isUuid(id)) throw otherStore(`its object ${STORE_ID_KEY} is not a UUID`);
    return id;
  } catch (error) {
    if (error instanceof ObjectNotFoundError) return null;
    throw error;
  }
}

async function giveId(store: ObjectStore): Promise<string> {
  const id = randomUUID();
  const bytes = Buffer.from(`${id}\n`);
  await store.put(STORE_ID_KEY, Readable.from([bytes]), bytes.length);
  return id;
}

function otherStore(found: string): ObjectStoreAwayError {
  const todo =
    "Is a disk not mounted, or does this process have another STATE_DIR or OBJECT_STORE_URL than the others? " +
    "To move documents to another store, see docs/objects.md";
  return new ObjectStoreAwayError("be used", new Error(`it is another one: ${found}. ${todo}`));
}

/**
 * The store that the configuration names: S3, or files below the state folder. Only a new one has its folders made: in
 * the place of a disk that is away they would be taken for it by who has known it before.
 */
export async function openObjectStore(
  config: Pick<Config, "stateDir" | "objectStoreUrl" | "awsAccessKeyId" | "awsSecretAccessKey">,
  isNew = true,
): Promise<ObjectStore> {
  const { stateDir, objectStoreUrl, awsAccessKeyId, awsSecretAccessKey } = config;
  if (objectStoreUrl === null) {
    const folder = join(stateDir, "objects");
    if (!isNew && !(await hasFileStore(folder))) throw otherStore(`there is none in the folder ${folder}`);
    return await openFileStore(folder);
  }
  // The client takes half a second and 40 MB to load: only who has S3 pays for it.
  const { openS3Store } = await import("./s3-store.ts");
  return openS3Store({
    ...objectStoreUrl,
    accessKeyId: awsAccessKeyId ?? "",
    secretAccessKey: awsSecretAccessKey ?? "",
  });
}
