import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import {
  access,
  copyFile,
  type FileHandle,
  link,
  mkdir,
  open,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
  unlink,
  writeFile,
} from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { Readable } from "node:stream";
import { BodyReader, NEVER, objectBody, unlessAborted } from "./body-reader.ts";
import {
  type ByteRange,
  checkObjectKey,
  ObjectNotFoundError,
  ObjectRangeError,
  type ObjectStore,
  ObjectStoreAwayError,
} from "./object-store.ts";

/**
 * Others may remove the folder while it is still empty, each time one of their own objects was its last. Node's `mkdir`
 * says then that it is missing, or that what is in its place is no folder.
 */
const TRIES_MAX = 100;

/**
 * Gives a finished file its name, replacing what has it. When it returns, the name is on disk, and so are the folders
 * that lead to it, whoever made them. @param path below `root`
 */
async function putInPlace(file: string, root: string, path: string): Promise<void> {
  const target = join(root, path);
  for (let tries = 1; ; tries++) {
    try {
      await mkdir(dirname(target), { recursive: true, mode: 0o700 });
      await rename(file, target);
      break;
    } catch (error) {
      const isGone = isAbsent(error) || (error as NodeJS.ErrnoException).code === "ENOTDIR";
      if (!isGone || tries === TRIES_MAX) throw error;
    }
  }
  for (const folder of foldersUp(root, path)) await syncFolder(folder);
  await syncFolder(root);
}

/** File systems that have no hard links, do not want this one, or have as many of the file as they can. */
const NO_LINK = new Set(["EPERM", "EMLINK", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EACCES"]);

/** Gives `source`, which nobody writes to, a second name; or else a copy, cheap where the file system shares blocks. */
async function linkOrCopy(source: string, target: string): Promise<void> {
  try {
    await link(source, target);
  } catch (error) {
    if (!NO_LINK.has((error as NodeJS.ErrnoException).code ?? "")) throw error;
    await copyFile(source, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    await sync(target, "r+");
  }
}

/** Removes the folders above a removed file that are empty now. */
async function pruneFolders(root: string, path: string): Promise<void> {
  for (const folder of foldersUp(root, path)) {
    const isGone = await rmdir(folder).then(() => true, isAbsent);
    // It is in use. What else may be wrong with it is found by who puts something there.
    if (!isGone) return;
  }
}

/** Brings a folder's names to the disk. One that somebody has removed meanwhile has none. */
async function syncFolder(folder: string): Promise<void> {
  await sync(folder, "r").catch(nullIfAbsent);
}

async function sync(path: string, flags: string): Promise<void> {
  await using handle = await open(path, flags);
  await handle.sync();
}

function isAbsent(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === "ENOENT";
}

/** Of an error that says so, null; any other goes on. */
function nullIfAbsent(error: unknown): null {
  if (isAbsent(error)) return null;
  throw error;
}

/** The folders between `root` and the file at `path`, the innermost first. */
function foldersUp(root: string, path: string): string[] {
  const names = dirname(path).split("/");
  return names.map((_, index) => join(root, ...names.slice(0, names.length - index)));
}

// How keys become paths below the store's folder. Names are kept readable for who looks into a backup:
// - `a-z`, `0-9`, `_`, `-`, and a dot between two of them, stand for themselves; every other byte of UTF-8 is `%` and
//   two digits. So no two keys share a path where capitals, accents or trailing dots do not count, and none leaves the
//   folder.
// - An object's name ends with `=`, so it is no folder's.
// - A longer name goes on in a folder: `…+/…`. File systems take 255 bytes, encrypted ones 143.

/** Up to 120 characters; an encoded byte is not cut in two. */
const PIECES = /.{1,120}(?<!%.?)/g;
const GOES_ON = "+";
const IS_OBJECT = "=";

/** The object's path, from the store's folder. */
export function pathOf(key: string): string {
  return `${folderOf(key)}${IS_OBJECT}`;
}

/** The key of a path from the store's folder, of an object or of a folder. */
function keyOf(path: string): string | null {
  try {
    return decodeURIComponent(path.replace(/=$/, "").replaceAll(`${GOES_ON}/`, ""));
  } catch {
    return null;
  }
}

function folderOf(key: string): string {
  return key.split("/").map(encode).join("/");
}

function encode(segment: string): string {
  const bytes = [...Buffer.from(segment)].map(encodeByte).join("");
  const encoded = bytes.replace(/(?<![a-z0-9_-])\.|\.(?![a-z0-9_-])/g, "%2e");
  return (encoded.match(PIECES) ?? []).join(`${GOES_ON}/`);
}

function encodeByte(byte: number): string {
  const character = String.fromCharCode(byte);
  return /[a-z0-9_.-]/.test(character) ? character : `%${byte.toString(16).padStart(2, "0")}`;
}

/** Bytes read or written at a time. */
const BLOCK_BYTES = 256 * 1_024;

/** What an open file has from `start` to `end` inclusive. The stream owns the handle. */
function fileBody(handle: FileHandle, { start, end }: ByteRange, asked: string): Readable {
  let position = start;
  return objectBody({
    next: async () => {
      if (position > end) return null;
      const block = Buffer.allocUnsafeSlow(Math.min(BLOCK_BYTES, end + 1 - position));
      try {
        const { bytesRead } = await handle.read(block, 0, block.length, position);
        if (bytesRead === 0) throw new Error(`the file ends at ${position}, before ${end}`);
        position += bytesRead;
        return block.subarray(0, bytesRead);
      } catch (error) {
        throw new ObjectStoreAwayError(asked, error);
      }
    },
    close: () => handle.close(),
  });
}

const READ_AND_WRITE = constants.R_OK | constants.W_OK | constants.X_OK;

export async function hasFileStore(folder: string): Promise<boolean> {
  const facts = () => stat(join(folder, "keys")).catch(nullIfAbsent);
  return (await asking(`use the folder ${folder}`, facts)) !== null;
}

/** Objects as files of one folder, on a disk of this machine. Any number of processes may use it. */
export async function openFileStore(folder: string): Promise<ObjectStore> {
  // In `root` are finished objects only, to which nothing writes: that is why a copy may be a hard link.
  // `unfinished` is on the same file system, so that a file is renamed from there to here.
  const [root, unfinished] = [join(folder, "keys"), join(folder, "unfinished")];
  for (const each of [root, unfinished]) {
    await asking(`use the folder ${each}`, () => mkdir(each, { recursive: true, mode: 0o700 }));
  }
  // A file system that keeps only what it was told to would have no \`root\` after a loss of power.
  for (const each of [folder, dirname(folder)])
    await asking(`use the folder ${each}`, () => syncFolder(each));

  /** Runs `work` with a path of its own in `unfinished`, where nothing stays. */
  async function withDraft(work: (draft: string) => Promise<void>): Promise<void> {
    const draft = join(unfinished, randomUUID());
    try {
      await work(draft);
    } finally {
      // Also after a rename: one to another name of the same file (a second copy) does nothing. What cannot be removed
      // is left over.
      await rm(draft, { force: true }).catch(() => undefined);
    }
  }

  /** Tells an object that is not there from a disk that is not there. */
  async function unlessAbsent<T>(key: string, asked: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!isAbsent(error)) throw new ObjectStoreAwayError(asked, error);
      await asking(asked, () => Promise.all([access(root), access(unfinished)]));
      throw new ObjectNotFoundError(key, { cause: error });
    }
  }

  return {
    async put(key, body, sizeBytes, signal = NEVER) {
      checkObjectKey(key);
      const reader = new BodyReader(body, sizeBytes);
      const asked = `store ${JSON.stringify(key)}`;
      await withDraft(async (draft) => {
        await writeBody(draft, reader, { sizeBytes, asked, signal });
        signal.throwIfAborted();
        await asking(asked, () => putInPlace(draft, root, pathOf(key)));
      });
    },

    async get(key, range = null, signal = NEVER) {
      checkObjectKey(key);
      signal.throwIfAborted();
      const asked = `read ${JSON.stringify(key)}`;
      const handle = await unlessAbsent(key, asked, () => open(join(root, pathOf(key)), "r"));
      try {
        const { size } = await asking(asked, () => handle.stat());
        const part = range && partOf(range, size, key);
        const body = fileBody(handle, part ?? { start: 0, end: size - 1 }, asked);
        return { sizeBytes: size, range: part, body };
      } catch (error) {
        await handle.close();
        throw error;
      }
    },

    async copy(from, to, signal = NEVER) {
      checkObjectKey(from);
      checkObjectKey(to);
      signal.throwIfAborted();
      const asked = `copy ${JSON.stringify(from)} to ${JSON.stringify(to)}`;
      const copying = withDraft(async (draft) => {
        await unlessAbsent(from, asked, () => linkOrCopy(join(root, pathOf(from)), draft));
        signal.throwIfAborted();
        await asking(asked, () => putInPlace(draft, root, pathOf(to)));
      });
      // A disk that hangs cannot be told to stop.
      await unlessAborted(() => copying, signal);
    },

    async remove(key, signal = NEVER) {
      checkObjectKey(key);
      signal.throwIfAborted();
      const path = pathOf(key);
      return await asking(`remove ${JSON.stringify(key)}`, async () => {
        const wasThere = (await unlinkIfThere(join(root, path))) === true;
        if (wasThere) await syncFolder(dirname(join(root, path)));
        else await access(root);
        // Also of one whose removal was cut off before that: folders have names in them.
        await pruneFolders(root, path);
        return wasThere;
      });
    },

    async stat(key, signal = NEVER) {
      checkObjectKey(key);
      signal.throwIfAborted();
      const asked = `look for ${JSON.stringify(key)}`;
      const { size } = await unlessAbsent(key, asked, () => stat(join(root, pathOf(key))));
      return { sizeBytes: size };
    },

    async *list(folder, what, signal = NEVER) {
      const asked = `list ${JSON.stringify(folder)}`;
      await asking(asked, () => access(root));
      const found = pathsBelow(join(root, folderOf(folder)), what, asked, signal);
      for await (const path of found) {
        const key = keyOf(relative(root, path));
        if (key !== null) yield key + (what === "keys" ? "" : "/");
      }
    },

    async removeLeftovers(before, signal = NEVER) {
      const asked = "remove what was left behind";
      let count = 0;
      for (const name of await asking(asked, () => readdir(unfinished))) {
        signal.throwIfAborted();
        const file = join(unfinished, name);
        count += await asking(asked, async () => {
          // ctime: when it was last written to, or made as a link to what is copied. What is under way is young.
          const facts = await stat(file).catch(nullIfAbsent);
          return facts && facts.ctime < before && (await unlinkIfThere(file)) ? 1 : 0;
        });
      }
      return count;
    },

    async check(signal = NEVER) {
      signal.throwIfAborted();
      await asking(`use the folder ${root}`, () => access(root, READ_AND_WRITE));
      await withDraft(async (draft) => {
        await asking(`write to the folder ${unfinished}`, () => writeFile(draft, "", { mode: 0o600 }));
      });
    },

    async close() {},
  };
}

async function* pathsBelow(
  folder: string,
  what: "keys" | "folders",
  asked: string,
  signal: AbortSignal,
): AsyncGenerator<string> {
  signal.throwIfAborted();
  // One that is gone had its last object removed meanwhile.
  const entries = await asking(asked, () => readdir(folder, { withFileTypes: true }).catch(nullIfAbsent));
  for (const entry of entries ?? []) {
    const path = join(folder, entry.name);
    const goesOn = entry.isDirectory() && (what === "keys" || path.endsWith(GOES_ON));
    if (goesOn) yield* pathsBelow(path, what, asked, signal);
    else if (entry.isDirectory() === (what === "folders")) yield path;
  }
  // If it is empty, a removal was cut off.
  if (what === "keys") await rmdir(folder).catch(() => undefined);
}

/** Writes the whole body to a new file, and brings it to the disk. */
async function writeBody(
  file: string,
  reader: BodyReader,
  { sizeBytes, asked, signal }: { sizeBytes: number; asked: string; signal: AbortSignal },
): Promise<void> {
  await using handle = await asking(asked, () => open(file, "wx", 0o600));
  const block = Buffer.allocUnsafeSlow(Math.min(BLOCK_BYTES, sizeBytes));
  for (let leftBytes = sizeBytes; leftBytes > 0; ) {
    const part = block.subarray(0, Math.min(block.length, leftBytes));
    await reader.fill(part, signal);
    await asking(asked, () => handle.writeFile(part));
    leftBytes -= part.length;
  }
  await reader.end(signal);
  await asking(asked, () => handle.sync());
}

/** What of `range` there is. */
function partOf({ start, end }: ByteRange, sizeBytes: number, key: string): ByteRange {
  if (start >= sizeBytes) throw new ObjectRangeError(key, start);
  return { start, end: Math.min(end, sizeBytes - 1) };
}

/** Null: there was none. */
async function unlinkIfThere(file: string): Promise<true | null> {
  return await unlink(file).then(() => true as const, nullIfAbsent);
}

async function asking<T>(asked: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new ObjectStoreAwayError(asked, error);
  }
}
