// The primary is cut off from its synchronous standby, which takes over, and goes on answering those who have not
// noticed.
import { equal, ok } from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { ask } from "../faults/harness/api-client.ts";
import { HttpProducer } from "../faults/harness/http-producer.ts";
import { Producer } from "../faults/harness/producer.ts";
import {
  countsOf,
  expectSafe,
  type Figures,
  type Place,
  type Scenario,
  until,
  withCluster,
} from "../faults/harness/scenario.ts";
import { createAccounts } from "../faults/scenarios/feed.ts";
import { type DatabaseProxy, type LineFault, startDatabaseProxy } from "../support/database-proxy.ts";
import { type ReplicatedServer, startReplicatedServers } from "../support/replicated-servers.ts";
import { patientSignal } from "../support/time-limits.ts";

export type FailoverOptions = {
  readonly isSynchronous?: boolean;
  /** Of the primary. */
  readonly settings?: Readonly<Record<string, string>>;
};

const ACKNOWLEDGED_BEFORE = 60;
/** A process that is not ready probes again each second: some of that. */
const UNREADY_LOOKS = 30;
const CUTS: readonly LineFault[] = [
  { held: ["to", "from"] },
  // The standby gets everything, and the primary does not hear of it.
  { held: ["to"] },
  { held: ["from"] },
  { lateMs: 300, pieceBytes: 2_000 },
];

const WAITING = "from pg_stat_activity where wait_event = 'SyncRep'";
/** What ends a commit's wait for the standby, and leaves it committed on the primary alone. */
const ENDS: Readonly<Record<string, (primary: ReplicatedServer) => Promise<unknown>>> = {
  cancelled: ({ pool }) => pool.query(`select pg_cancel_backend(pid) ${WAITING}`),
  terminated: ({ pool }) => pool.query(`select pg_terminate_backend(pid) ${WAITING}`),
  crashed: (primary) => primary.crash(),
};

export const failover: Scenario = {
  name: "failover",
  fault: "a primary that is cut off from its synchronous standby, replaced by it, and still answers",
  play: (place) => playFailover(place, {}),
};

export async function playFailover(place: Place, options: FailoverOptions): Promise<Figures> {
  const { isSynchronous = true, settings = {} } = options;
  const lines: DatabaseProxy[] = [];
  const openLine = async (url: string) => {
    const opened = await startDatabaseProxy(url);
    lines.push(opened);
    return opened;
  };
  const lineTo = async (url: string) => (await openLine(url)).url;
  const servers = await startReplicatedServers({ isSynchronous, settings, lineTo });
  try {
    // The address that follows the primary, and one that does not.
    const [address, left] = [await openLine(servers.primary.url), await openLine(servers.primary.url)];
    return await playOn(place, servers, { between: lines[0]!, address, left, isSynchronous });
  } finally {
    for (const opened of lines) await opened.close();
    await servers.stop();
  }
}

type Lines = Record<"between" | "address" | "left", DatabaseProxy> & { readonly isSynchronous: boolean };

async function playOn(
  place: Place,
  { primary, standby }: Record<"primary" | "standby", ReplicatedServer>,
  { between, address, left, isSynchronous }: Lines,
): Promise<Figures> {
  return await withCluster(place, { databaseUrl: address.url, dispatchers: 1 }, async (cluster) => {
    const stale = { DATABASE_URL: left.url };
    await cluster.startDispatcher(stale);
    const { url } = await cluster.startApi();
    const isolated = cluster.spawn(["serve"], stale);
    await isolated.ready;
    const accounts = await createAccounts(cluster, ["analyses:read", "analyses:publish"]);
    const { accountId: changed } = await cluster.createAccount("/changed");
    const changing = await cluster.createApiKey(changed, ["webhooks:write"]);
    const accountIds = accounts.map(({ accountId }) => accountId);
    const publishing = new AbortController();
    const both = new HttpProducer(accounts.slice(0, 2), () => place.chance.pick([url, isolated.url]), []);
    const onlyIsolated = new HttpProducer(accounts.slice(2), () => isolated.url, []);
    const bySql = [cluster.producer, new Producer(left.url, "left")] as const;
    const published = Promise.all([
      both.run(8, publishing.signal),
      onlyIsolated.run(4, publishing.signal),
      ...bySql.map((producer) => producer.run(20, accountIds, publishing.signal)),
    ]);
    const publications = () => [
      ...both.publications,
      ...onlyIsolated.publications,
      ...bySql.flatMap((producer) => producer.publications),
    ];
    const acknowledged = () => publications().filter((one) => one.acknowledgedAtMs !== null).length;
    const untilMore = async (count: () => number, more: number) => {
      const wanted = count() + more;
      await Promise.race([until(() => count() >= wanted), published]);
    };
    const waiting = async (of = "true") => {
      const asked = `select count(*)::integer as n ${WAITING} and ${of}`;
      return (await primary.pool.query<{ n: number }>(asked)).rows[0]!.n;
    };
    // Publishing over HTTP is one statement, which commits by itself.
    const isChanging = async () =>
      (await waiting("application_name = 'sealpost serve' and query = 'commit'")) > 0;

    await untilMore(acknowledged, ACKNOWLEDGED_BEFORE);
    between.strike(isSynchronous ? place.chance.pick(CUTS) : CUTS[0]!);
    if (isSynchronous) await until(async () => (await waiting()) > 0);
    else await untilMore(acknowledged, ACKNOWLEDGED_BEFORE);
    const atFailover = acknowledged();
    await standby.pool.query("select pg_promote()");
    address.leadTo(standby.url);
    const switchedAt = performance.now();
    await address.cut();
    await address.restore();

    // Nobody has told the others.
    const known = onlyIsolated.publications.find((one) => one.acknowledgedAtMs !== null)!;
    const [reader] = accounts.slice(2);
    let ended = 0;
    const apiBack = untilMore(() => both.acknowledged, 1).then(() => performance.now() - switchedAt);
    const isUnready = async () => (await fetch(new URL("/readyz", isolated.url))).status === 503;
    const unready = isSynchronous ? until(isUnready) : Promise.resolve();
    const before = onlyIsolated.acknowledged;
    const isolation = new AbortController();
    const changes = change(isolated.url, changing, isolation.signal);
    if (isSynchronous) {
      for (const end of Object.values(ENDS)) {
        await until(async () => (await waiting()) >= 4 && (await isChanging()));
        ended += await waiting();
        await end(primary);
      }
      await until(async () => (await waiting()) >= 4);
    }
    await unready;
    for (let n = 0; isSynchronous && n < UNREADY_LOOKS; n++, await wait(100))
      ok(await isUnready(), "the old primary's API is ready again, though no commit is possible");
    const read = await ask(isolated.url, reader!.apiKey, `/v1/analyses/${known.analysisId}`);
    ok([200, 404].includes(read.status), `the old primary does not answer: ${JSON.stringify(read)}`);
    isolation.abort();
    const apart = onlyIsolated.acknowledged - before + (await changes);
    if (isSynchronous) equal(apart, 0, "acknowledged by the old primary");

    await primary.kill();
    left.leadTo(standby.url);
    await left.cut();
    await left.restore();
    const healedAt = performance.now();
    await untilMore(() => onlyIsolated.acknowledged, 1);
    const isolatedBackMs = Math.round(performance.now() - healedAt);
    publishing.abort();
    await published;
    await bySql[1].close();
    const drainedMs = await cluster.drain(60_000);
    const verdict = await cluster.check(publications());
    expectSafe(verdict);
    equal(verdict.succeeded, verdict.published);
    equal(verdict.atOnceMax, 1, "POSTs of one delivery at one time");
    for (const { hasEnded, errors } of cluster.processes) equal(`${hasEnded} ${errors}`, "false ");
    return {
      "acknowledged before": atFailover,
      ...countsOf(verdict),
      "waits ended": ended,
      "acknowledged by the old primary": apart,
      "committed without an answer": both.found + onlyIsolated.found,
      "address back ms": Math.round(await apiBack),
      "isolated back ms": isolatedBackMs,
      "drained ms": drainedMs,
    };
  });
}

/** Changes an endpoint, each time under a key that is repeated until it is answered. Returns how often it was. */
async function change(url: string, apiKey: string, signal: AbortSignal): Promise<number> {
  for (let answered = 0; ; answered++) {
    const headers = {
      authorization: `Bearer ${apiKey}`,
      "content-type": "application/json",
      "idempotency-key": randomUUID(),
    };
    const body = JSON.stringify({ url: "https://hooks.example.com/" });
    const ask = () => {
      const asked = {
        method: "PUT",
        headers,
        body,
        signal: AbortSignal.any([signal, patientSignal(15_000)]),
      };
      return fetch(new URL("/v1/webhooks/endpoint", url), asked).then(
        ({ status }) => status,
        () => 0,
      );
    };
    for (let status = await ask(); status !== 200; status = await ask()) {
      if (signal.aborted) return answered;
      ok([0, 409, 500, 503].includes(status), `the change was refused: ${status}`);
      await wait(20);
    }
  }
}
