import { mkdtemp, readdir, rm, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { claimFolder } from "../../src/postgres/ownership.ts";

const PREFIX = "sealpost-test-";
const MEMORY_BYTES_MIN = 4 * 1024 ** 3;
/** A younger folder may belong to a server that is just starting and does not answer yet. */
const LEFTOVER_AGE_MIN_MS = 10 * 60_000;

/**
 * A new folder for a server whose data may be lost: in memory where there is plenty, as making a database writes 400
 * files, which took 10 to 20 times as long on a virtual machine's disk. Not the system's temporary folder: for
 * root that is often a private one. Nothing in it can be run: /dev/shm may be mounted `noexec`.
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

/** What test runs left that were killed: their servers ended by themselves, their folders did not. */
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
