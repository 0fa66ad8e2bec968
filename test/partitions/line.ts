// The network between a dispatcher, an API process and their database fails in every way, while another dispatcher
// goes on.
import { equal } from "node:assert/strict";
import type { Arrival } from "../faults/harness/arrival.ts";
import { HttpProducer } from "../faults/harness/http-producer.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Figures,
  type Scenario,
  until,
  wait,
  withCluster,
} from "../faults/harness/scenario.ts";
import { createAccounts } from "../faults/scenarios/feed.ts";
import type { Chance } from "../simulation/chance.ts";
import type { LineFault } from "../support/database-proxy.ts";
import { startDatabaseProxy } from "../support/database-proxy.ts";
import type { SealpostProcess } from "../support/sealpost-process.ts";

const FAULTS = {
  "from the database": () => ({ held: ["from"] }),
  "to the database": () => ({ held: ["to"] }),
  "both ways": () => ({ held: ["to", "from"] }),
  "half of the connections": (chance) => ({ held: ["to", "from"], strikes: () => chance.isTrue(0.5) }),
  slow: () => ({ lateMs: 300, pieceBytes: 200 }),
  forgotten: () => ({}),
} satisfies Record<string, (chance: Chance) => LineFault>;
type FaultName = keyof typeof FAULTS;
const QUICKLY: readonly FaultName[] = ["from the database", "half of the connections", "slow", "forgotten"];

/** A dispatcher waits 6 s for an answer that never comes, then up to 2 s, and connects anew. */
const BACK_MS_MAX = 10_000;
const ATTEMPTS_MAX = 8;

export const line: Scenario = {
  name: "line",
  fault:
    "between processes and their database nothing passes one way, or both, or on some connections, or slowly",
  play: (place) =>
    withCluster(place, { dispatchers: 1 }, async (cluster) => {
      const database = await startDatabaseProxy(cluster.databaseUrl);
      try {
        const behind = { DATABASE_URL: database.url };
        const dispatcher = await cluster.startDispatcher(behind);
        const api = cluster.spawn(["serve"], behind);
        await api.ready;
        const accounts = await createAccounts(cluster, ["analyses:publish"]);
        for (const n of accounts.keys()) await cluster.receiver.behave(`/${n}`, { jitterMs: 600 });
        const producer = new HttpProducer(accounts, () => api.url, []);
        const publishing = new AbortController();
        const published = Promise.all([
          producer.run(4, publishing.signal),
          cluster.producer.run(
            20,
            accounts.map(({ accountId }) => accountId),
            publishing.signal,
          ),
        ]);
        const attempts = () => metricOf(dispatcher, "attempts_total");
        const isMore = async (count: () => number | Promise<number>, than: number) => (await count()) > than;
        const backMs: Record<string, number> = {};
        let inFlight = 0;

        const strike = async (name: FaultName) => {
          await until(async () => (await metricOf(dispatcher, "attempts_in_flight")) > 1);
          const { acknowledged } = producer;
          inFlight += await metricOf(dispatcher, "attempts_in_flight");
          if (name === "forgotten") return database.forget();
          database.strike(FAULTS[name](place.chance));
          // Where nothing passes, for longer than the leases of before, and of claims whose answers are lost, which the
          // other dispatcher takes over; or for any time.
          if (name === "slow" || name === "half of the connections")
            await until(() => isMore(() => producer.acknowledged, acknowledged + 10));
          else if (place.scale === "quick" || place.chance.isTrue(0.5))
            for (let n = 0; n < 2; n++) await untilLeasesEnd();
          else await wait(place.chance.between(200, 9_000));
          database.letGo(() => place.chance.isTrue(0.5));
        };
        const untilBack = async (name: FaultName) => {
          const healedAt = performance.now();
          const since = () => Math.round(performance.now() - healedAt);
          const [acknowledged, ended] = [producer.acknowledged, await attempts()];
          const [api, dispatcher] = await Promise.all([
            until(() => isMore(() => producer.acknowledged, acknowledged), BACK_MS_MAX).then(since),
            until(() => isMore(attempts, ended), BACK_MS_MAX).then(since),
          ]);
          for (const [who, back] of Object.entries({ api, dispatcher })) {
            backMs[`${who} back ms, ${name}`] = back;
          }
        };
        /** Whatever is claimed now has ended, or was claimed anew. */
        const untilLeasesEnd = async () => {
          const { rows } = await cluster.pool.query<{ tokens: string[] }>(
            "select array_agg(lease_token) as tokens from sealpost.open_deliveries where lease_token is not null",
          );
          const left = "select from sealpost.open_deliveries where lease_token = any ($1) limit 1";
          await until(async () => (await cluster.pool.query(left, [rows[0]!.tokens])).rowCount === 0);
        };

        const names = place.scale === "quick" ? QUICKLY : (Object.keys(FAULTS) as FaultName[]);
        for (const name of names) {
          await strike(name);
          await untilBack(name);
        }
        publishing.abort();
        await published;
        const drainedMs = await cluster.drain(60_000);
        const { arrivals } = cluster.receiver;
        const verdict = await cluster.check([...cluster.producer.publications, ...producer.publications]);
        expectSafe(verdict);
        equal(verdict.succeeded, verdict.published);
        equal(verdict.atOnceMax, 1, "POSTs of one delivery at one time");
        expectAtMost(mostOf(arrivals), ATTEMPTS_MAX, "POSTs of one delivery");
        for (const { hasEnded, errors } of cluster.processes) equal(`${hasEnded} ${errors}`, "false ");
        return {
          faults: names.length,
          ...countsOf(verdict),
          "in flight at faults": inFlight,
          "at once": verdict.atOnceMax,
          "most POSTs of one": mostOf(arrivals),
          ...backMs,
          "drained ms": drainedMs,
        } satisfies Figures;
      } finally {
        await database.close();
      }
    }),
};

async function metricOf({ metricsUrl }: SealpostProcess, name: string): Promise<number> {
  const text = await (await fetch(`${metricsUrl}/metrics`)).text();
  const values = text.matchAll(new RegExp(`^sealpost_${name}(?:\\{.*\\})? (\\d+)$`, "gm"));
  return [...values].reduce((sum, [, value]) => sum + Number(value), 0);
}

function mostOf(arrivals: readonly Arrival[]): number {
  const counts = new Map<string, number>();
  for (const { deliveryId } of arrivals) counts.set(deliveryId, (counts.get(deliveryId) ?? 0) + 1);
  return Math.max(...counts.values());
}
