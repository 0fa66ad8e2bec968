// API processes that are killed while many publish over HTTP, whose transactions are shared.
import { equal, ok } from "node:assert/strict";
import type { Cluster } from "../harness/cluster.ts";
import { openHeldCommits } from "../harness/held-commits.ts";
import { type HttpCustomer, HttpProducer } from "../harness/http-producer.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Scenario,
  until,
  wait,
  withCluster,
} from "../harness/scenario.ts";

const IN_FLIGHT = 64;
const ACCOUNTS = 4;

type Api = Awaited<ReturnType<Cluster["startApi"]>>;

export const publishingKilled: Scenario = {
  name: "publishing-killed",
  fault: "kill -9 of API processes while 64 requests publish: before a commit, after one, and at any moment",
  play: (place) =>
    withCluster(place, {}, async (cluster) => {
      const commits = await openHeldCommits(cluster.databaseUrl);
      let apis: readonly Api[] = await startTwo(cluster);
      const customers = await createCustomers(cluster);
      const { publications } = cluster.producer;
      const producer = new HttpProducer(customers, () => place.chance.pick(apis).url, publications);
      const publishing = new AbortController();
      const published = producer.run(IN_FLIGHT, publishing.signal);
      // A request that is refused ends the wait, too.
      const untilMoreAcknowledged = (count = 1) => {
        const wanted = producer.acknowledged + count;
        return Promise.race([until(() => producer.acknowledged >= wanted), published]);
      };

      // The worst moments: everything is written but the end of the transaction; then the same, and it is committed.
      for (const finish of [commits.end, commits.letGo]) {
        await untilMoreAcknowledged(IN_FLIGHT);
        await commits.hold();
        await commits.waitForCommits(apis.length);
        await Promise.all(apis.map(({ process }) => process.kill()));
        await finish();
        apis = await startTwo(cluster);
      }

      const kills = place.scale === "quick" ? 1 : 40;
      for (let n = 0; n < kills; n++) {
        if (apis.length < 2) apis = [...apis, await cluster.startApi()];
        await untilMoreAcknowledged();
        await wait(place.chance.between(0, 300));
        const victim = place.chance.pick(apis);
        await victim.process.kill();
        apis = apis.filter((api) => api !== victim);
      }
      await untilMoreAcknowledged();
      publishing.abort();
      await published;
      await commits.close();
      const drainMs = place.scale === "quick" ? 60_000 : 600_000;
      const drainedMs = await cluster.drain(drainMs);
      expectSafe(await cluster.check());
      ok(producer.found > 0, "nothing was committed without an answer");

      const repeated = await producer.repeat(IN_FLIGHT);
      await cluster.drain(drainMs);
      const verdict = await cluster.check();
      expectSafe(verdict);
      equal(verdict.succeeded, verdict.published);
      expectAtMost(verdict.duplicated, verdict.unanswered, "duplicates");
      return {
        kills: kills + 4,
        ...countsOf(verdict),
        doubled: verdict.doubled,
        "cut off": producer.cut,
        "committed without an answer": producer.found,
        "in progress": producer.inProgress,
        repeated,
        "drained ms": drainedMs,
      };
    }),
};

function startTwo(cluster: Cluster) {
  return Promise.all([cluster.startApi(), cluster.startApi()]);
}

async function createCustomers(cluster: Cluster): Promise<readonly HttpCustomer[]> {
  const customers: HttpCustomer[] = [];
  for (let n = 0; n < ACCOUNTS; n++) {
    const { accountId } = await cluster.createAccount(`/${n}`);
    customers.push({ accountId, apiKey: await cluster.createApiKey(accountId, ["analyses:publish"]) });
  }
  return customers;
}
