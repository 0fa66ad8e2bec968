// The power goes, right after a commit.
import { equal } from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { countsOf, expectSafe, type Scenario, withCluster } from "../harness/scenario.ts";
import { withPostgres } from "./database.ts";

const PUBLISHER = fileURLToPath(new URL("../processes/publisher.ts", import.meta.url));

/** Resolves once it has published; `ids` are what it was told. */
async function startPublisher(
  databaseUrl: string,
  end: "commit" | "leave-open",
  accountId: string,
  analyses: readonly string[],
): Promise<{ readonly child: ChildProcess; readonly ids: readonly string[] }> {
  const child = fork(PUBLISHER, [databaseUrl, end, accountId, ...analyses], { execArgv: [] });
  const [ids] = (await once(child, "message")) as [readonly string[]];
  return { child, ids };
}

export const allKilled: Scenario = {
  name: "all-killed",
  fault: "kill -9 of the publisher, PostgreSQL, API and dispatchers right after a commit, and before one",
  play: (place) =>
    withPostgres({}, (postgres) =>
      withCluster(place, { databaseUrl: postgres.url, dispatchers: 0 }, async (cluster) => {
        const { accountId } = await cluster.createAccount();
        const neverCommitted: string[] = [];
        const rounds = place.scale === "quick" ? 1 : 20;
        for (let round = 0; round < rounds; round++) {
          await Promise.all([cluster.startDispatcher(), cluster.startDispatcher(), cluster.startApi()]);
          const named = (what: string) =>
            Array.from({ length: 60 }, (_, n) => `{"id":"${what}-${round}-${n}","status":"succeeded"}`);
          const uncommitted = await startPublisher(postgres.url, "leave-open", accountId, named("open"));
          const texts = named("committed");
          const triedAtMs = Date.now();
          const committed = await startPublisher(postgres.url, "commit", accountId, texts);
          // The publishers first: they are told nothing more.
          for (const { child } of [committed, uncommitted]) child.kill("SIGKILL");
          const ended = cluster.processes.filter((one) => !one.hasEnded).map((one) => one.kill());
          await Promise.all([...ended, postgres.end("kill")]);
          neverCommitted.push(...uncommitted.ids);
          for (const [n, text] of texts.entries()) {
            cluster.producer.publications.push({
              analysisId: JSON.parse(text).id,
              accountId,
              digest: createHash("sha256").update(text).digest("hex"),
              triedAtMs,
              acknowledgedAtMs: Date.now(),
              deliveryId: committed.ids[n]!,
              wasInDoubt: false,
            });
          }
          await postgres.startAgain();
        }
        await cluster.startDispatcher();
        const drainedMs = await cluster.drain(60_000);
        const verdict = await cluster.check();
        // Unexpected would be what was published and never committed.
        expectSafe(verdict);
        equal(verdict.succeeded, verdict.published);
        const sent = new Set(cluster.receiver.arrivals.map((arrival) => arrival.deliveryId));
        equal(neverCommitted.filter((id) => sent.has(id)).length, 0, "sent without a commit");
        return { kills: rounds, ...countsOf(verdict), "drained ms": drainedMs };
      }),
    ),
};
