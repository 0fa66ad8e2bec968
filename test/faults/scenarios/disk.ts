// A disk with nothing left on it.

import { equal } from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, open, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { countsOf, expectSafe, type Scenario, until, wait, withCluster } from "../harness/scenario.ts";
import { withPostgres } from "./database.ts";

const run = promisify(execFile);
const DISK_MEGABYTES = 192;
/** Small files of its own log, so that a full disk is felt soon. */
const SETTINGS = { max_wal_size: "64MB", min_wal_size: "32MB", wal_recycle: "off" };

/** A disk of its own that can be filled. Null: this machine lets us mount none. */
async function mountDisk(): Promise<{ readonly folder: string; unmount(): Promise<void> } | null> {
  const folder = await mkdtemp("/tmp/sealpost-disk-");
  try {
    await run("mount", ["-t", "tmpfs", "-o", `size=${DISK_MEGABYTES}m`, "tmpfs", folder]);
  } catch {
    await rm(folder, { recursive: true });
    return null;
  }
  return {
    folder,
    unmount: async () => {
      await run("umount", ["-l", folder]);
      await rm(folder, { recursive: true });
    },
  };
}

/** Writes until nothing fits any more. */
async function fill(path: string): Promise<void> {
  const file = await open(path, "a");
  try {
    for (let bytes = 1_048_576; bytes >= 1; ) {
      const { bytesWritten } = await file.write(Buffer.alloc(bytes)).catch(() => ({ bytesWritten: 0 }));
      if (bytesWritten < bytes) bytes = Math.floor(bytes / 16);
    }
  } finally {
    await file.close();
  }
}

export const diskFull: Scenario = {
  name: "disk-full",
  fault: "the database's disk is full, whether or not the server survives that",
  play: async (place) => {
    const disk = await mountDisk();
    if (disk === null) return { "not played": "this machine lets us mount no disk of our own" };
    try {
      return await withPostgres({ dataDir: join(disk.folder, "db"), settings: SETTINGS }, (postgres) =>
        withCluster(place, { databaseUrl: postgres.url, dispatchers: 1 }, async (cluster) => {
          const { accountId } = await cluster.createAccount();
          const { publications } = cluster.producer;
          const publishing = new AbortController();
          // Big texts, so that the server needs new space all the time.
          const publish = async () => {
            while (!publishing.signal.aborted) await cluster.producer.publish(accountId, null, 60_000);
          };
          const published = Promise.all([publish(), publish()]);
          await cluster.receiver.waitFor(10);
          const filler = join(disk.folder, "filler");
          await fill(filler);
          const isFelt = () => publications.some((one) => one.wasInDoubt);
          const refilling = (async () => {
            while (!isFelt()) await fill(filler).then(() => wait(20));
          })();
          await refilling;
          await wait(place.scale === "quick" ? 1_500 : 20_000);
          const acknowledgedWhileFull = publications.filter((one) => one.acknowledgedAtMs !== null).length;
          const hasSurvived = postgres.isRunning;
          await rm(filler);
          if (!postgres.isRunning) await postgres.startAgain();
          const count = publications.length;
          await until(() => publications.length > count + 5);
          publishing.abort();
          await published;
          await cluster.drain(60_000);
          const verdict = await cluster.check();
          expectSafe(verdict);
          equal(verdict.succeeded, verdict.published);
          equal(cluster.processes[0]!.hasEnded, false);
          equal(cluster.processes[0]!.errors, "");
          return {
            ...countsOf(verdict),
            "acknowledged until it was freed": acknowledgedWhileFull,
            "server survived": String(hasSurvived),
          };
        }),
      );
    } finally {
      await disk.unmount();
    }
  },
};
