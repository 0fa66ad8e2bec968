import { mkdtemp, readdir, rm, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { claimFolder } from "../../src/base/embedded/account.ts";

const PREFIX = "sealpost-test-";
const MEMORY_BYTES_MIN = 4 * 1024 ** 3;
/** A newer folder may belong to a server that is still starting. */
const LEFTOVER_AGE_MIN_MS = 10 * 60_000;

/**
 * A new folder for a server whose data may be lost: in memory if there is plenty, because creating a database writes
 * 400 files, which is much slower on a virtual machine's disk. Not the system's temporary folder, which for root is
 * often private. Nothing in it can be executed: /dev/shm may be mounted `noexec`.
 */
export async function makeThrowAwayFolder(): Promise<string> {
  const parent = (await hasRoomInMemory()) ? "/dev/shm" : "/tmp";
  await removeLeftovers(parent);
  return await mkdtemp(join(parent, PREFIX));
}

async function hasRoomInMemory(): Promise<boolean> {
  if (process.availableMemory() < MEMORY_BYTES_MIN) return false;
  const shared = await statfs("/dev/shm").catch(() => null);
  return shared !== null && shared.bavail * shared.bsize >= MEMORY_BYTES_MIN;
}

/** Removes the folders of killed test runs; their servers stop by themselves. */
async function removeLeftovers(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const folder = join(parent, name);
    if (!name.startsWith(PREFIX) || !(await isOld(folder))) continue;
    try {
      const claim = await claimFolder(join(folder, "run"), folder);
      await claim.release();
      await rm(folder, { recursive: true, force: true });
    } catch {
      // It is in use, or somebody else's.
    }
  }
}

async function isOld(folder: string): Promise<boolean> {
  const found = await stat(folder).catch(() => null);
  return found !== null && Date.now() - found.mtimeMs > LEFTOVER_AGE_MIN_MS;
}
