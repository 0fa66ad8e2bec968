// A reader of the feed, while many publish out of order and what makes the feed is killed over and over.
import { deepEqual, equal, ok } from "node:assert/strict";
import pg from "pg";
import { pullWebhooks } from "../../../src/signing/index.ts";
import { patience } from "../../support/time-limits.ts";
import type { Cluster } from "../harness/cluster.ts";
import {
  expectAtMost,
  type Place,
  quantile,
  type Scenario,
  until,
  wait,
  withCluster,
} from "../harness/scenario.ts";

const WRITERS = 24;
const ACCOUNTS = 3;

type Api = Awaited<ReturnType<Cluster["startApi"]>>;
type Account = Awaited<ReturnType<Cluster["createAccount"]>> & { readonly apiKey: string };

export const feedExactlyOnce: Scenario = {
  name: "feed-exactly-once",
  fault:
    "24 writers that commit out of order, roll back and are cut, beside an idle transaction, while whatever makes " +
    "the feed is killed: each committed event is read exactly once",
  play: (place) =>
    withCluster(place, {}, async (cluster) => {
      const accounts = await createAccounts(cluster);
      let apis: Api[] = await Promise.all([cluster.startApi(), cluster.startApi()]);
      const stopping = new AbortController();
      const reading = new AbortController();
      const urlOf = () => place.chance.pick(apis).url;
      const readers = accounts.map((account) => new Reader(account, urlOf, reading.signal));

      const idle = await openIdle(cluster, accounts[0]!);
      const writers = Array.from({ length: WRITERS }, (_, n) =>
        write(place, cluster, accounts, n, stopping.signal),
      );
      const kills = await killOverAndOver(
        place,
        cluster,
        async (api) => {
          apis = apis.filter((one) => one !== api);
          apis.push(await cluster.startApi());
        },
        () => apis,
      );
      stopping.abort();
      const committed = (await Promise.all(writers)).flat();
      await until(() => countOf(readers) >= committed.length, 60_000);

      // What was open all the time comes last, and only once.
      const late = await idle.commit();
      await until(() => countOf(readers) > committed.length, 30_000);
      reading.abort();
      await Promise.all(readers.map((reader) => reader.done));

      for (const [n, reader] of readers.entries()) {
        const own = [...committed, late].filter(({ accountId }) => accountId === accounts[n]!.accountId);
        equal(reader.ids.length, new Set(reader.ids).size, "an event was read twice");
        deepEqual([...reader.ids].sort(), own.map(({ id }) => id).sort(), "not what was committed");
      }
      const { rows } = await cluster.pool.query<{ n: number }>(
        "select count(*)::integer as n from sealpost.deliveries",
      );
      equal(rows[0]!.n, committed.length + 1, "the writers know of all that was committed");
      return { committed: committed.length + 1, kills, readers: ACCOUNTS };
    }),
};

export const feedWithoutDispatchers: Scenario = {
  name: "feed-without-dispatchers",
  fault:
    "every dispatcher is killed, beside idle transactions that have written, here and in another database of the " +
    "server: the feed goes on within a second",
  play: (place) =>
    withCluster(place, { dispatchers: 2 }, async (cluster) => {
      const [account] = await createAccounts(cluster);
      const api = await cluster.startApi();
      const idle = await openIdle(cluster, account!);
      const elsewhere = await openIdleElsewhere(place);
      const idleSince = performance.now();
      const reading = new AbortController();
      const reader = new Reader(account!, () => api.url, reading.signal);
      const readMs: number[] = [];
      const publishAndRead = async () => {
        const { deliveryId } = await cluster.producer.publish(account!.accountId);
        const committedAt = performance.now();
        await until(() => reader.ids.includes(deliveryId!));
        return performance.now() - committedAt;
      };
      await publishAndRead();
      await Promise.all(cluster.dispatchers.filter((one) => one !== api.process).map((one) => one.kill()));
      const firstMs = await publishAndRead();
      const idleMs = () => performance.now() - idleSince;
      while (readMs.length < 10 || idleMs() < place.minutes * 60_000) readMs.push(await publishAndRead());
      const openMinutes = Math.round(idleMs() / 6_000) / 10;
      reading.abort();
      await reader.done;
      await Promise.all([idle.commit(), elsewhere.end()]);
      // Until the lease of a killed one has run out.
      expectAtMost(firstMs, patience(1_500), "the first event after the kill");
      expectAtMost(quantile(readMs, 0.99), patience(1_000), "the lag");
      return {
        "open minutes": openMinutes,
        events: readMs.length,
        "first ms": Math.round(firstMs),
        "p50 ms": round(quantile(readMs, 0.5)),
        "p99 ms": round(quantile(readMs, 0.99)),
        "p99 ms at the end": round(quantile(readMs.slice(-100), 0.99)),
        "worst ms": round(quantile(readMs, 1)),
      };
    }),
};

const round = (ms: number | null) => (ms === null ? null : Math.round(ms));

export async function createAccounts(
  cluster: Cluster,
  scopes: readonly string[] = ["analyses:read"],
): Promise<readonly Account[]> {
  const accounts: Account[] = [];
  for (let n = 0; n < ACCOUNTS; n++) {
    const account = await cluster.createAccount(`/${n}`);
    accounts.push({ ...account, apiKey: await cluster.createApiKey(account.accountId, scopes) });
  }
  return accounts;
}

/** Reads an account's feed from whichever API there is, and begins again at its last cursor when that one is killed. */
export class Reader {
  readonly ids: string[] = [];
  readonly done: Promise<void>;

  constructor(account: Account, urlOf: () => string, signal: AbortSignal) {
    this.done = this.#read(account, urlOf, signal);
  }

  async #read({ apiKey, secret }: Account, urlOf: () => string, signal: AbortSignal): Promise<void> {
    let after: string | undefined;
    while (!signal.aborted) {
      const moving = new AbortController();
      const stop = AbortSignal.any([signal, moving.signal]);
      // Behind a load balancer the address would stay.
      const onRetry = () => moving.abort();
      const onCursor = (cursor: string) => {
        after = cursor;
      };
      const events = pullWebhooks({
        baseUrl: urlOf(),
        apiKey,
        secret,
        after,
        onCursor,
        signal: stop,
        onRetry,
      });
      for await (const { id } of events) this.ids.push(id);
    }
  }
}

function countOf(readers: readonly Reader[]): number {
  return readers.reduce((sum, { ids }) => sum + ids.length, 0);
}

type Written = { readonly accountId: string; readonly id: string };

/** Publishes in transactions of all kinds until told to stop. Resolves to what it knows to be committed. */
async function write(
  { chance }: Place,
  cluster: Cluster,
  accounts: readonly Account[],
  writer: number,
  signal: AbortSignal,
): Promise<Written[]> {
  const committed: Written[] = [];
  let client = await connect(cluster.databaseUrl);
  for (let nth = 0; !signal.aborted; nth++) {
    const kind = chance.pick(["commit", "commit", "commit", "rollback", "savepoint", "cut"] as const);
    await client.query("begin");
    // The ids of a transaction are as old as it is.
    if (chance.between(0, 3) === 0) await wait(chance.between(0, 50));
    const pending: Written[] = [];
    for (let more = chance.between(1, 3); more > 0; more--) {
      const { accountId } = chance.pick(accounts);
      pending.push({ accountId, id: await publish(client, accountId, `f-${writer}-${nth}-${more}`) });
    }
    if (kind === "savepoint") {
      await client.query("savepoint here");
      await publish(client, accounts[0]!.accountId, `f-${writer}-${nth}-0`);
      await client.query("rollback to savepoint here");
    }
    await wait(chance.between(0, 30));
    if (kind === "cut") {
      await client.end();
      client = await connect(cluster.databaseUrl);
    } else if (kind === "rollback") await client.query("rollback");
    else {
      await client.query("commit");
      committed.push(...pending);
    }
  }
  await client.end();
  return committed;
}

async function publish(client: pg.Client, accountId: string, analysisId: string): Promise<string> {
  const { rows } = await client.query<{ id: string }>("select sealpost.publish_analysis($1, $2) as id", [
    accountId,
    JSON.stringify({ id: analysisId, status: "succeeded" }),
  ]);
  return rows[0]!.id;
}

async function connect(databaseUrl: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on("error", () => undefined);
  await client.connect();
  return client;
}

/** A transaction that has published and stays open. */
async function openIdle(cluster: Cluster, { accountId }: Account): Promise<{ commit(): Promise<Written> }> {
  const client = await connect(cluster.databaseUrl);
  await client.query("begin");
  const id = await publish(client, accountId, "idle");
  return {
    commit: async () => {
      await client.query("commit");
      await client.end();
      return { accountId, id };
    },
  };
}

/** A transaction with an xid and a snapshot, in a database of its own on the same server. */
async function openIdleElsewhere(place: Place): Promise<pg.Client> {
  const client = await connect((await place.newDatabase()).url);
  await client.query("begin isolation level repeatable read");
  await client.query("select pg_current_xact_id()");
  return client;
}

/** For a few seconds, or a minute. Resolves to how many were killed. */
async function killOverAndOver(
  { chance, scale }: Place,
  cluster: Cluster,
  replaceApi: (killed: Api) => Promise<void>,
  apis: () => readonly Api[],
): Promise<number> {
  const endsAt = performance.now() + (scale === "quick" ? 3_000 : 60_000);
  let kills = 0;
  while (performance.now() < endsAt) {
    await wait(chance.between(300, 1_500));
    const victim = chance.pick(cluster.dispatchers);
    await victim.kill();
    kills++;
    const api = apis().find(({ process }) => process === victim);
    if (api === undefined) await cluster.startDispatcher();
    else await replaceApi(api);
  }
  ok(kills > 0, "nothing was killed");
  return kills;
}
