// A disk with nothing left on it.

import { equal } from "node:assert/strict";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { fill, mountDisk } from "../../support/small-disk.ts";
import { countsOf, expectSafe, type Scenario, until, wait, withCluster } from "../harness/scenario.ts";
import { withPostgres } from "./database.ts";

const DISK_MEGABYTES = 192;
/** Small files of its own log, so that a full disk is felt soon. */
const SETTINGS = { max_wal_size: "64MB", min_wal_size: "32MB", wal_recycle: "off" };

export const diskFull: Scenario = {
  name: "disk-full",
  fault: "the database's disk is full, whether or not the server survives that",
  play: async (place) => {
    const disk = await mountDisk(DISK_MEGABYTES);
    if (disk === null) return { "not played": "this machine lets us mount no disk of our own" };
    try {
      return await withPostgres({ dataDir: join(disk.folder, "db"), settings: SETTINGS }, (postgres) =>
        withCluster(place, { databaseUrl: postgres.url, dispatchers: 1 }, async (cluster) => {
          const { accountId } = await cluster.createAccount();
          const api = await cluster.startApi();
          const isReady = async () => (await fetch(new URL("/readyz", api.url))).status === 200;
          equal(await isReady(), true);
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
          await until(async () => !(await isReady()));
          await wait(place.scale === "quick" ? 1_500 : 20_000);
          const acknowledgedWhileFull = publications.filter((one) => one.acknowledgedAtMs !== null).length;
          const hasSurvived = postgres.isRunning;
          await rm(filler);
          if (!postgres.isRunning) await postgres.startAgain();
          await until(isReady);
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
