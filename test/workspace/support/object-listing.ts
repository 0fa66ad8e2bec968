// What is in an object store, all of it, and without asking it: tests see everything that they have opened here.
import { readdir } from "node:fs/promises";
import { join, relative } from "node:path";
import { ListObjectsV2Command, S3Client } from "@aws-sdk/client-s3";
import * as files from "../../../src/workspace/objects/file-store.ts";
import type { ObjectStore } from "../../../src/workspace/objects/object-store.ts";
import type { S3Limits, S3Options } from "../../../src/workspace/objects/s3-connection.ts";
import * as s3 from "../../../src/workspace/objects/s3-store.ts";

const listers = new WeakMap<ObjectStore, () => Promise<string[]>>();

export async function openFileStore(folder: string): Promise<ObjectStore> {
  const store = await files.openFileStore(folder);
  listers.set(store, () => keysBelow(join(folder, "keys")));
  return store;
}

export function openS3Store(options: S3Options, limits: Partial<S3Limits> = {}): ObjectStore {
  const store = s3.openS3Store(options, limits);
  listers.set(store, () => keysInBucket(options));
  return store;
}

/** In their order. */
export async function keysIn(store: ObjectStore, prefix = ""): Promise<string[]> {
  const keys = await listers.get(store)!();
  return keys.filter((key) => key.startsWith(prefix)).sort();
}

/** The key of an object's path from the folder of all. */
export function keyOf(path: string): string {
  return decodeURIComponent(path.replace(/=$/, "").replaceAll("+/", ""));
}

async function keysBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch((error) => {
    // A folder was removed meanwhile, with the last object in it.
    if (error.code === "ENOENT" && error.path !== folder) return null;
    throw error;
  });
  if (entries === null) return await keysBelow(folder);
  const paths = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));
  return paths.map((path) => keyOf(relative(folder, path)));
}

async function keysInBucket({
  bucket,
  endpoint,
  region,
  isPathStyle,
  ...credentials
}: S3Options): Promise<string[]> {
  const client = new S3Client({ endpoint: endpoint!, region, forcePathStyle: isPathStyle, credentials });
  const keys: string[] = [];
  let ContinuationToken: string | undefined;
  do {
    // Keys may have characters that XML cannot say.
    const input = {
      Bucket: bucket,
      EncodingType: "url",
      ...(ContinuationToken && { ContinuationToken }),
    } as const;
    const page: Awaited<ReturnType<typeof list>> = await list(input);
    const decoded = (key: string) =>
      page.EncodingType === "url" ? decodeURIComponent(key.replaceAll("+", " ")) : key;
    keys.push(...(page.Contents ?? []).map(({ Key = "" }) => decoded(Key)));
    ContinuationToken = page.NextContinuationToken;
  } while (ContinuationToken !== undefined);
  client.destroy();
  return keys;

  function list(input: ConstructorParameters<typeof ListObjectsV2Command>[0]) {
    return client.send(new ListObjectsV2Command(input));
  }
}
