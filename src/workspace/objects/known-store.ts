import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import type { Config } from "../../base/config/config.ts";
import { isUuid } from "../../base/model/formats.ts";
import { NEVER, unlessAborted } from "./body-reader.ts";
import { openFileStore } from "./file-store.ts";
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
export type StoreIds = {
  /** Null: none yet. */
  read(): Promise<string | null>;
  /** Makes what `findId` resolves with the id, where there is none yet. Returns the one that is. */
  settle(findId: () => Promise<string>): Promise<string>;
};

/**
 * A store that is opened when it is first asked for something, for who keeps no documents needs none; and away until it
 * is known to be the one that all processes use. In another one (a disk that is not mounted, another STATE_DIR or
 * bucket) every object would be missing, and what is to be removed would stay for ever.
 */
export function knownStore(open: () => Promise<ObjectStore>, ids: StoreIds): ObjectStore {
  let opening: Promise<Identity> | null = null;
  const opened = () => {
    opening ??= open().then(
      (store) => new Identity(store, ids),
      (error: unknown) => {
        // The next one to ask tries again.
        opening = null;
        throw error;
      },
    );
    return opening;
  };
  const checked = async (signal = NEVER): Promise<ObjectStore> => {
    const identity = await opened();
    await unlessAborted(() => identity.check(), signal);
    return identity.store;
  };
  // A missing object may be a store that is missing since.
  const reading = async <T>(work: (store: ObjectStore) => Promise<T>, signal = NEVER): Promise<T> => {
    const store = await checked(signal);
    try {
      return await work(store);
    } catch (error) {
      if (error instanceof ObjectNotFoundError) {
        const identity = await opened();
        await unlessAborted(() => identity.checkAgain(), signal);
      }
      throw error;
    }
  };
  return {
    put: async (key, body, sizeBytes, signal = NEVER, sharer) => {
      const identity = await opened();
      await unlessAborted(() => identity.establish(), signal);
      await identity.store.put(key, body, sizeBytes, signal, sharer);
    },
    get: (key, range, signal) => reading((store) => store.get(key, range, signal), signal),
    copy: (from, to, signal) => reading((store) => store.copy(from, to, signal), signal),
    remove: async (key, signal) => (await checked(signal)).remove(key, signal),
    stat: (key, signal) => reading((store) => store.stat(key, signal), signal),
    removeLeftovers: async (before, signal) => (await checked(signal)).removeLeftovers(before, signal),
    check: async (signal) => {
      await (await opened()).store.check(signal);
      await checked(signal);
    },
    close: async () => {
      const identity = await opening?.catch(() => null);
      await identity?.store.close();
    },
  };
}

class Identity {
  readonly store: ObjectStore;
  readonly #ids: StoreIds;
  #isKnown = false;
  #checking: Promise<void> | null = null;

  constructor(store: ObjectStore, ids: StoreIds) {
    this.store = store;
    this.#ids = ids;
  }

  /** Before the store is used; while nothing has been stored anywhere, any store will do. */
  async check(): Promise<void> {
    if (this.#isKnown) return;
    this.#checking ??= this.#compare().finally(() => {
      this.#checking = null;
    });
    await this.#checking;
  }

  async checkAgain(): Promise<void> {
    this.#isKnown = false;
    await this.check();
  }

  /** Before something is stored: what has the first object is the store of all. */
  async establish(): Promise<void> {
    await this.check();
    if (!this.#isKnown) await this.#settle();
  }

  async #compare(): Promise<void> {
    const id = await this.#ids.read();
    if (id !== null) await this.#expect(id);
  }

  async #settle(): Promise<void> {
    const id = await this.#ids.settle(async () => {
      const found = await this.#find();
      if (found !== null) return found;
      const id = randomUUID();
      const bytes = Buffer.from(`${id}\n`);
      await this.store.put(STORE_ID_KEY, Readable.from([bytes]), bytes.length);
      return id;
    });
    await this.#expect(id);
  }

  async #expect(id: string): Promise<void> {
    const found = await this.#find();
    if (found !== id) {
      const says = found === null ? "it has no id" : `its id is ${found}`;
      throw otherStore(`${says}, and that of the store with the documents is ${id}`);
    }
    this.#isKnown = true;
  }

  /** What the store says; null: nothing. */
  async #find(): Promise<string | null> {
    try {
      const { body } = await this.store.get(STORE_ID_KEY, { start: 0, end: ID_BYTES_MAX - 1 });
      const id = (await text(body)).trim();
      if (!isUuid(id)) throw otherStore(`its object ${STORE_ID_KEY} is no UUID`);
      return id;
    } catch (error) {
      if (error instanceof ObjectNotFoundError) return null;
      throw error;
    }
  }
}

function otherStore(found: string): ObjectStoreAwayError {
  const todo =
    "Is a disk not mounted, or does this process have another STATE_DIR or OBJECT_STORE_URL than the others? " +
    "To move documents to another store, see docs/objects.md";
  return new ObjectStoreAwayError("be used", new Error(`it is another one: ${found}. ${todo}`));
}

type StoreConfig = Pick<Config, "stateDir" | "objectStoreUrl" | "awsAccessKeyId" | "awsSecretAccessKey">;

/** The store that the configuration names: S3, or files below the state folder. */
export async function openObjectStore(config: StoreConfig): Promise<ObjectStore> {
  const { stateDir, objectStoreUrl, awsAccessKeyId, awsSecretAccessKey } = config;
  if (objectStoreUrl === null) return await openFileStore(join(stateDir, "objects"));
  // The client takes half a second and 40 MB to load: only who has S3 pays for it.
  const { openS3Store } = await import("./s3-store.ts");
  return openS3Store({
    ...objectStoreUrl,
    accessKeyId: awsAccessKeyId ?? "",
    secretAccessKey: awsSecretAccessKey ?? "",
  });
}
