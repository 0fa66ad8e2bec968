import { constants } from "node:fs";
import { copyFile, link, mkdir, open, rename, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";

/**
 * Others may remove the folder while it is still empty, each time one of their own objects was its last. Node's `mkdir`
 * says then that it is missing, or that what is in its place is no folder.
 */
const TRIES_MAX = 100;

/**
 * Gives a finished file its name, replacing what has it. When it returns, the name is on disk, and so are the folders
 * that lead to it, whoever made them. @param path below `root`
 */
export async function putInPlace(file: string, root: string, path: string): Promise<void> {
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
export async function linkOrCopy(source: string, target: string): Promise<void> {
  try {
    await link(source, target);
  } catch (error) {
    if (!NO_LINK.has((error as NodeJS.ErrnoException).code ?? "")) throw error;
    await copyFile(source, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    await sync(target, "r+");
  }
}

/** Removes the folders above a removed file that are empty now. */
export async function pruneFolders(root: string, path: string): Promise<void> {
  for (const folder of foldersUp(root, path)) {
    const isGone = await rmdir(folder).then(
      () => true,
      (error: NodeJS.ErrnoException) => isAbsent(error),
    );
    // It is in use. What else may be wrong with it is found by who puts something there.
    if (!isGone) return;
  }
}

/** Brings a folder's names to the disk. One that somebody has removed meanwhile has none. */
export async function syncFolder(folder: string): Promise<void> {
  try {
    await sync(folder, "r");
  } catch (error) {
    if (!isAbsent(error)) throw error;
  }
}

async function sync(path: string, flags: string): Promise<void> {
  const handle = await open(path, flags);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export function isAbsent(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === "ENOENT";
}

/** Of an error that says so, null; any other goes on. */
export function nullIfAbsent(error: unknown): null {
  if (isAbsent(error)) return null;
  throw error;
}

/** The folders between `root` and the file at `path`, the innermost first. */
function foldersUp(root: string, path: string): string[] {
  const names = dirname(path).split("/");
  return names.map((_, index) => join(root, ...names.slice(0, names.length - index)));
}
