import { opendir, stat } from "node:fs/promises";
import { join } from "node:path";
import { nullIfAbsent } from "./file-folders.ts";
import { folderBelow, keyOf } from "./file-paths.ts";
import type { ListedObject, ObjectFacts } from "./object-store.ts";
import { PAGE_OBJECTS_MAX } from "./object-store.ts";

/** Entries of a folder that are held at a time. */
const ENTRIES_HELD = 256;

/** The objects below `root` whose keys begin with `prefix`, page by page. */
export async function* listFiles(
  root: string,
  prefix: string,
  signal: AbortSignal,
): AsyncGenerator<readonly ListedObject[]> {
  let page: ListedObject[] = [];
  for await (const path of filesBelow(root, folderBelow(prefix))) {
    signal.throwIfAborted();
    const key = keyOf(path);
    if (!key?.startsWith(prefix)) continue;
    const facts = await factsOf(join(root, path)).catch(nullIfAbsent);
    // Removed since.
    if (facts === null) continue;
    page.push({ key, ...facts });
    if (page.length < PAGE_OBJECTS_MAX) continue;
    yield page;
    page = [];
  }
  if (page.length > 0) yield page;
}

export async function factsOf(file: string): Promise<ObjectFacts> {
  const { size, ctime } = await stat(file);
  // A copy is a link and has its object's mtime; ctime is when a name was last given to it.
  return { sizeBytes: size, storedAt: ctime };
}

/** Paths from `root`. Reads a folder as it goes, because one may have a million entries. */
async function* filesBelow(root: string, folder: string): AsyncGenerator<string> {
  const entries = await opendir(join(root, folder), { bufferSize: ENTRIES_HELD }).catch(nullIfAbsent);
  for await (const entry of entries ?? []) {
    const path = folder === "." ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) yield* filesBelow(root, path);
    else yield path;
  }
}
