// Both object stores, as the tests of their contract open them.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ObjectStore } from "../../../src/workspace/objects/object-store.ts";
import { type S3Options, s3Limits } from "../../../src/workspace/objects/s3-connection.ts";
import { openFileStore, openS3Store } from "./object-listing.ts";
import { startS3Server } from "./s3-server.ts";

/** How a process of its own opens the same store. */
export type StoreAddress = { readonly folder: string } | { readonly s3: S3Options };

export type OpenStore = {
  readonly store: ObjectStore;
  readonly address: StoreAddress;
  /** Closes the store and takes everything away. */
  close(): Promise<void>;
};

export type StoreKind = {
  readonly name: string;
  /** "slow": of the second tier. */
  readonly tags: string[];
  /** At which sizes it does something else. */
  readonly partBytes: number;
  open(): Promise<OpenStore>;
};

/** S3's smallest part. */
const PART_BYTES = 5 * 1_024 * 1_024;

const files: StoreKind = {
  name: "the file system",
  tags: [],
  partBytes: 256 * 1_024,
  open: async () => {
    const folder = await mkdtemp(join(tmpdir(), "sealpost-objects-"));
    const store = await openFileStore(folder);
    const close = async () => {
      await store.close();
      await rm(folder, { recursive: true });
    };
    return { store, address: { folder }, close };
  },
};

const s3: StoreKind = {
  name: "S3",
  tags: ["slow"],
  partBytes: PART_BYTES,
  open: async () => {
    const folder = await mkdtemp(join(tmpdir(), "sealpost-s3-"));
    const server = await startS3Server(folder);
    const limits = { partBytes: PART_BYTES, copyPartBytes: PART_BYTES };
    const store = openS3Store(server.options, { ...s3Limits, ...limits });
    const close = async () => {
      await store.close();
      await server.close();
      await rm(folder, { recursive: true });
    };
    return { store, address: { s3: server.options }, close };
  },
};

export const storeKinds: readonly StoreKind[] = [files, s3];

/** For a process of its own. */
export async function openAt(address: StoreAddress): Promise<ObjectStore> {
  return "folder" in address ? await openFileStore(address.folder) : openS3Store(address.s3);
}

/** The same store, to be given a method of a test's. */
export function passedOn(store: ObjectStore): ObjectStore {
  return {
    put: (...args) => store.put(...args),
    get: (...args) => store.get(...args),
    copy: (...args) => store.copy(...args),
    remove: (...args) => store.remove(...args),
    stat: (...args) => store.stat(...args),
    list: (...args) => store.list(...args),
    removeLeftovers: (...args) => store.removeLeftovers(...args),
    check: (...args) => store.check(...args),
    close: () => store.close(),
  };
}
