// Everything at once, for as long as one likes.
import { equal } from "node:assert/strict";
import type { TestAccount } from "../harness/cluster.ts";
import { Nemesis } from "../harness/nemesis.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Figures,
  type Place,
  withCluster,
} from "../harness/scenario.ts";
import { withPostgres } from "./database.ts";

const DISPATCHERS = 3;
const ACCOUNTS = 8;
const PER_SECOND = 40;

/** Kills, freezes, restarts, receivers in trouble, replays and rotations for so long; then everything must end. */
export async function playEverything(
  place: Place,
  seed: number,
  forMs: number,
  tell: (line: string) => void,
): Promise<Figures> {
  return await withPostgres({}, (postgres) =>
    withCluster(place, { databaseUrl: postgres.url, dispatchers: DISPATCHERS }, async (cluster) => {
      const accounts: TestAccount[] = [];
      for (let n = 0; n < ACCOUNTS; n++) {
        await cluster.receiver.behave(`/${n}`, { jitterMs: 50 * n });
        accounts.push(await cluster.createAccount(`/${n}`));
      }
      const publishing = new AbortController();
      const published = cluster.producer.run(
        PER_SECOND,
        accounts.map(({ accountId }) => accountId),
        publishing.signal,
      );
      await cluster.receiver.waitFor(20);
      const nemesis = new Nemesis(cluster, postgres, accounts, seed, tell);
      await nemesis.run(forMs);
      await nemesis.repair(DISPATCHERS);
      publishing.abort();
      await published;
      tell(`${await cluster.countOpen()} deliveries are open; nothing more is broken`);
      const drainedMs = await cluster.drain(600_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      expectAtMost(verdict.duplicated, nemesis.inFlight + verdict.unanswered, "duplicates");
      for (const process of cluster.dispatchers) equal(process.errors, "");
      return {
        seed,
        "minutes of faults": Math.round(forMs / 6_000) / 10,
        ...nemesis.done,
        ...countsOf(verdict),
        "in flight at faults": nemesis.inFlight,
        "abandoned for": JSON.stringify(verdict.abandoned),
        "drained ms": drainedMs,
      };
    }),
  );
}
