// A database that goes away and comes back, stands still, or lets nobody in.
import { equal, ok } from "node:assert/strict";
import pg from "pg";
import { migrate } from "../../../src/base/database/migrate.ts";
import { patience } from "../../support/time-limits.ts";
import { ask } from "../harness/api-client.ts";
import type { Cluster } from "../harness/cluster.ts";
import { type EndOfServer, OwnPostgres } from "../harness/own-postgres.ts";
import {
  countsOf,
  expectAtMost,
  expectSafe,
  type Place,
  type Scenario,
  until,
  wait,
  withCluster,
} from "../harness/scenario.ts";

const BACK_MS_MAX = 5_000;
const SLOTS_BACK_MS_MAX = 10_000;
const API_MS_MAX = 5_000;
const RSS_GROWTH_MAX = 50_000_000;

/** A server of its own, since others must not share the fault. */
export async function withPostgres<T>(
  options: Parameters<typeof OwnPostgres.start>[0],
  play: (postgres: OwnPostgres) => Promise<T>,
): Promise<T> {
  const postgres = await OwnPostgres.start(options);
  try {
    await migrate({ databaseUrl: postgres.url });
    return await play(postgres);
  } finally {
    await postgres.close();
  }
}

/** Accounts that are published for all the time, and the API beside them. */
async function startTraffic(cluster: Cluster, perSecond: number) {
  const accounts: string[] = [];
  for (let n = 0; n < 4; n++) {
    await cluster.receiver.behave(`/${n}`, { jitterMs: 200 });
    accounts.push((await cluster.createAccount(`/${n}`)).accountId);
  }
  const key = await cluster.createApiKey(accounts[0]!, ["webhooks:read"]);
  const { url, process } = await cluster.startApi();
  const publishing = new AbortController();
  const published = cluster.producer.run(perSecond, accounts, publishing.signal);
  await cluster.receiver.waitFor(10);
  return {
    api: process,
    askApi: () => ask(url, key, "/v1/webhooks/endpoint"),
    stop: async () => {
      publishing.abort();
      await published;
    },
  };
}

/** Milliseconds from a moment until the next arrival. */
async function untilNextArrival(cluster: Cluster, sinceMs: number): Promise<number> {
  const [next] = await cluster.receiver.waitFor(1, ({ atMs }) => atMs >= sinceMs);
  return next!.atMs - sinceMs;
}

function expectUnharmed(cluster: Cluster): void {
  for (const process of cluster.processes) {
    equal(process.hasEnded, false, "a process has ended");
    equal(process.errors, "");
  }
}

async function playRestarts(place: Place, ways: readonly EndOfServer[], rounds: number) {
  return await withPostgres({}, (postgres) =>
    withCluster(place, { databaseUrl: postgres.url, dispatchers: 2 }, async (cluster) => {
      const traffic = await startTraffic(cluster, 20);
      let inFlight = 0;
      let backMsMax = 0;
      let apiMsMax = 0;
      let refused = 0;
      for (let n = 0; n < rounds; n++) {
        for (const way of ways) {
          await wait(place.chance.between(200, 800));
          inFlight += await cluster.countLeased();
          await postgres.end(way);
          const downUntil = performance.now() + place.chance.between(500, 2_000);
          while (performance.now() < downUntil) {
            const { status, code, tookMs } = await traffic.askApi();
            expectAway(status, code);
            refused++;
            apiMsMax = Math.max(apiMsMax, tookMs);
            await wait(100);
          }
          await postgres.startAgain();
          backMsMax = Math.max(backMsMax, await untilNextArrival(cluster, Date.now()));
          await until(async () => (await traffic.askApi()).status === 200);
        }
      }
      await traffic.stop();
      const drainedMs = await cluster.drain(60_000);
      const verdict = await cluster.check();
      expectSafe(verdict);
      expectUnharmed(cluster);
      ok(refused > 0);
      equal(verdict.succeeded, verdict.published);
      expectAtMost(verdict.duplicated, inFlight + verdict.unanswered, "duplicates");
      expectAtMost(backMsMax, patience(BACK_MS_MAX), "ms until the first delivery");
      expectAtMost(apiMsMax, patience(API_MS_MAX), "ms until the API answers 503");
      return {
        restarts: rounds * ways.length,
        ...countsOf(verdict),
        "in flight at ends": inFlight,
        "first delivery ms": backMsMax,
        "API 503 ms": apiMsMax,
        "drained ms": drainedMs,
      };
    }),
  );
}

function expectAway(status: number, code: string | null): void {
  equal(`${status} ${code}`, "503 temporarily_unavailable");
}

export const restarted: Scenario = {
  name: "database-restarted",
  fault: "PostgreSQL restarted under load: fast, immediate, kill -9",
  play: (place) => playRestarts(place, ["fast", "immediate", "kill"], place.scale === "quick" ? 1 : 7),
};

export const frozen: Scenario = {
  name: "database-frozen",
  fault: "PostgreSQL hangs: it takes no connection and answers nothing",
  play: (place) =>
    withPostgres({}, (postgres) =>
      withCluster(place, { databaseUrl: postgres.url, dispatchers: 1 }, async (cluster) => {
        const traffic = await startTraffic(cluster, 20);
        const [dispatcher] = cluster.dispatchers;
        const rssBefore = await dispatcher!.rssBytes();
        await postgres.freeze();
        const frozenUntil = performance.now() + (place.scale === "quick" ? 8_000 : 60_000);
        let apiMsMax = 0;
        while (performance.now() < frozenUntil) {
          const { status, code, tookMs } = await traffic.askApi();
          expectAway(status, code);
          apiMsMax = Math.max(apiMsMax, tookMs);
        }
        const rssGrowth = (await dispatcher!.rssBytes()) - rssBefore;
        postgres.thaw();
        const backMs = await untilNextArrival(cluster, Date.now());
        await traffic.stop();
        const drainedMs = await cluster.drain(60_000);
        const verdict = await cluster.check();
        expectSafe(verdict);
        expectUnharmed(cluster);
        equal(verdict.succeeded, verdict.published);
        expectAtMost(backMs, patience(BACK_MS_MAX), "ms until the first delivery");
        expectAtMost(apiMsMax, patience(API_MS_MAX), "ms until the API answers 503");
        expectAtMost(rssGrowth, RSS_GROWTH_MAX, "bytes that the dispatcher grew by");
        return {
          ...countsOf(verdict),
          "first delivery ms": backMs,
          "API 503 ms": apiMsMax,
          "RSS growth MB": Math.round(rssGrowth / 1_000_000),
          "drained ms": drainedMs,
        };
      }),
    ),
};

/** Takes every connection that there is, and goes on taking those that become free. */
async function takeAllSlots(databaseUrl: string): Promise<() => Promise<void>> {
  const taken: pg.Client[] = [];
  const state = { isTaking: true };
  const take = async (): Promise<boolean> => {
    const client = new pg.Client({ connectionString: databaseUrl });
    client.on("error", () => undefined);
    const isIn = await client.connect().then(
      () => true,
      () => false,
    );
    if (isIn) taken.push(client);
    return isIn;
  };
  while (await take());
  const watching = (async () => {
    while (state.isTaking) if (!(await take())) await wait(50);
  })();
  return async () => {
    state.isTaking = false;
    await watching;
    await Promise.all(taken.map((client) => client.end()));
  };
}

export const noSlots: Scenario = {
  name: "no-connection-slots",
  fault: "no connection slot is left, at the start of a dispatcher and later",
  play: (place) =>
    withPostgres({ settings: { max_connections: "40" } }, (postgres) =>
      withCluster(place, { databaseUrl: postgres.url, dispatchers: 0 }, async (cluster) => {
        const { accountId } = await cluster.createAccount();
        await cluster.producer.publishMany(5, accountId);
        const letGoAtStart = await takeAllSlots(postgres.url);
        const dispatcher = cluster.spawn(["dispatch"]);
        await wait(3_000);
        equal(dispatcher.hasEnded, false, dispatcher.errors);
        await letGoAtStart();
        const startMs = await untilNextArrival(cluster, Date.now());
        await cluster.drain(30_000);

        await cluster.producer.publishMany(1, accountId);
        const letGo = takeAllSlots(postgres.url);
        await cluster.pool.query(
          "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'sealpost%'",
        );
        const letAllGo = await letGo;
        await wait(3_000);
        equal(dispatcher.hasEnded, false, dispatcher.errors);
        await letAllGo();
        const freeAt = Date.now();
        await cluster.producer.publishMany(5, accountId);
        const againMs = await untilNextArrival(cluster, freeAt);
        await cluster.drain(30_000);
        const verdict = await cluster.check();
        expectSafe(verdict);
        equal(verdict.succeeded, verdict.published);
        equal(dispatcher.errors, "");
        expectAtMost(startMs, patience(SLOTS_BACK_MS_MAX), "ms until the first delivery after the start");
        expectAtMost(againMs, patience(SLOTS_BACK_MS_MAX), "ms until the first delivery");
        return { ...countsOf(verdict), "first delivery at start ms": startMs, "first delivery ms": againMs };
      }),
    ),
};
