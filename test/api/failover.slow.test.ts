import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { scopes } from "../../src/base/model/api-keys.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { createTestAccount } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import {
  type ReplicatedServer,
  type ReplicatedServers,
  startReplicatedServers,
} from "../support/replicated-servers.ts";
import { type Asked, ask, type Json } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const CLIENTS = 4;
/** More than the clients publish between a publication of one and its reading. */
const LIST = "/v1/webhooks/deliveries?limit=100";

let servers: ReplicatedServers;
/** One to fail over to, which every commit waits for; and one to read from. */
let next: ReplicatedServer;
let reading: ReplicatedServer;
/** The address that leads to the primary, whoever that is. */
let address: DatabaseProxy;
let receiver: Receiver;
let serve: SealpostProcess;
let dispatch: SealpostProcess;
let accountId: string;
let key: string;

beforeAll(async () => {
  servers = await startReplicatedServers({ standbys: 2, isSynchronous: true });
  [next, reading] = servers.standbys as [ReplicatedServer, ReplicatedServer];
  address = await startDatabaseProxy(servers.primary.url);
  receiver = await startReceiver();
  const env = {
    DATABASE_URL: address.url,
    ...targetsEnv([receiver]),
    RATE_LIMIT_REQUESTS: "1000000",
  };
  serve = await startProcess("serve", { ...env, READ_DATABASE_URL: reading.url });
  dispatch = await startProcess("dispatch", env);
  ({ accountId } = await createTestAccount(servers.primary, receiver.url("/in").href));
  const asked = { accountId, name: null, scopes, expiresInSeconds: null };
  ({ apiKey: key } = await createApiKey(servers.primary.pool, readConfig({}), asked));
}, patience(60_000));
afterAll(async () => {
  await Promise.all([serve?.stop(), dispatch?.stop()]);
  await receiver?.close();
  await address?.close();
  await servers?.stop();
});

/** Customers who publish, and then look for it in the log. */
class Load {
  readonly accepted = new Map<string, unknown>();
  /** What nobody should have seen while the primary was there. */
  readonly faults: unknown[] = [];
  slowestReadMs = 0;
  isPrimaryAway = false;
  #published = 0;
  #isOver = false;
  readonly #clients = Array.from({ length: CLIENTS }, () => this.#client());

  async #client(): Promise<void> {
    while (!this.#isOver) {
      const id = `f-${this.#published++}`;
      const body = { analysis: { id, status: "succeeded" } };
      const published = await this.#untilAnswered(202, () =>
        ask(serve.url, "POST", "/v1/analyses", { key, body, idempotencyKey: id }),
      );
      this.accepted.set(id, published.body.delivery_id);
      const askedAt = performance.now();
      const wasAway = this.isPrimaryAway;
      const { body: page } = await this.#untilAnswered(200, () => ask(serve.url, "GET", LIST, { key }));
      if (!wasAway && !this.isPrimaryAway) {
        this.slowestReadMs = Math.max(this.slowestReadMs, performance.now() - askedAt);
      }
      const found = (page.items as Json[]).some((one) => one.id === published.body.delivery_id);
      if (!found) this.faults.push(`${id} is not in the log`);
    }
  }

  async #untilAnswered(status: number, send: () => Promise<Asked>): Promise<Asked> {
    for (;;) {
      const wasAway = this.isPrimaryAway;
      const answer = await send();
      if (answer.status === status) return answer;
      if (this.#isOver) throw new Error("The load was stopped.");
      if (wasAway || this.isPrimaryAway) {
        // As a customer's client does.
        await wait(20);
      } else this.faults.push([answer.status, answer.body]);
    }
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.allSettled(this.#clients);
  }
}

async function readsOf(server: "primary" | "standby"): Promise<number> {
  const text = await (await fetch(`${serve.metricsUrl}/metrics`)).text();
  return Number(new RegExp(`^sealpost_log_reads_total\\{server="${server}"\\} (\\S+)$`, "m").exec(text)?.[1]);
}

/** Resolves when the load's lists come from there. */
async function untilReadFrom(server: "primary" | "standby"): Promise<void> {
  const before = await readsOf(server);
  await expect.poll(() => readsOf(server), { timeout: patience(15_000) }).toBeGreaterThan(before + 20);
}

const readiness = async () => (await fetch(`${serve.url}/readyz`)).status;

/**
 * A primary that dies may have sent more to one standby than to the other, and whoever is ahead of the new primary can
 * never follow it. So this one receives nothing more, and the other has as much. Returns what ends the receiver.
 */
async function keepBehind(standby: ReplicatedServer, other: ReplicatedServer): Promise<() => void> {
  const { rows } = await standby.pool.query<{ pid: number }>("select pid from pg_stat_wal_receiver");
  const { pid } = rows[0]!;
  process.kill(pid, "SIGSTOP");
  const received = await standby.pool.query<{ lsn: string }>("select pg_last_wal_receive_lsn()::text as lsn");
  const has = "select pg_last_wal_receive_lsn() >= $1::pg_lsn as has";
  const hasReceived = async () => (await other.pool.query(has, [received.rows[0]!.lsn])).rows[0].has;
  await expect.poll(hasReceived, { timeout: patience(15_000) }).toBe(true);
  return () => process.kill(pid, "SIGKILL");
}

/** Resolves when it has replayed what the primary has flushed. */
async function untilStreaming(standby: ReplicatedServer, primary: ReplicatedServer): Promise<void> {
  const { rows } = await primary.pool.query<{ lsn: string }>(
    "select pg_current_wal_flush_lsn()::text as lsn",
  );
  const hasReached = async () =>
    (await standby.pool.query("select pg_last_wal_replay_lsn() >= $1::pg_lsn as has", [rows[0]!.lsn])).rows[0]
      .has;
  await expect.poll(hasReached, { timeout: patience(15_000) }).toBe(true);
}

test(
  "under load a standby lags, dies and is promoted, and the primary fails over: nobody misses what they wrote",
  async () => {
    const load = new Load();
    onTestFinished(() => load.stop());
    await untilReadFrom("standby");

    // It lags.
    await reading.pool.query("select pg_wal_replay_pause()");
    await untilReadFrom("primary");
    expect(await readiness()).toBe(200);
    await reading.pool.query("select pg_wal_replay_resume()");
    await untilReadFrom("standby");

    // It dies, and comes back.
    await reading.kill();
    await untilReadFrom("primary");
    expect(await readiness()).toBe(200);
    await reading.follow(servers.primary);
    await untilReadFrom("standby");
    expect(load.faults).toEqual([]);
    expect(load.slowestReadMs).toBeLessThan(patience(1_000));

    // The primary dies. The address leads to what is a standby still: it can only be read.
    load.isPrimaryAway = true;
    const endReceiver = await keepBehind(reading, next);
    await servers.primary.kill();
    await expect.poll(readiness, { timeout: patience(10_000) }).toBe(503);
    address.leadTo(next.url);
    const told = async () => await (await fetch(`${serve.metricsUrl}/readyz`)).text();
    await expect.poll(told, { timeout: patience(10_000) }).toContain("can only be read");
    await next.pool.query("select pg_promote()");
    await expect.poll(readiness, { timeout: patience(10_000) }).toBe(200);
    await untilReadFrom("primary");
    load.isPrimaryAway = false;

    // What is read from follows the new primary.
    endReceiver();
    await reading.kill();
    await reading.follow(next);
    await untilStreaming(reading, next);
    await untilReadFrom("standby");

    // It is promoted, too, and nobody tells us: it goes on by itself, further than the primary has come.
    await reading.pool.query("select pg_promote()");
    await reading.pool.query("select pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()");
    await reading.pool.query("select pg_logical_emit_message(false, 'test', 'x')");
    const count = "select count(*)::integer as n from sealpost.deliveries";
    const before = (await reading.pool.query(count)).rows[0].n;
    await untilReadFrom("primary");
    expect(await readiness()).toBe(200);
    await load.stop();
    expect((await reading.pool.query(count)).rows[0].n).toBe(before);

    expect(load.faults).toEqual([]);
    expect(load.slowestReadMs).toBeLessThan(patience(1_000));
    const { rows } = await next.pool.query<{ analysis_id: string; id: string }>(
      "select analysis_id, id from sealpost.deliveries where account_id = $1",
      [accountId],
    );
    expect(new Map(rows.map(({ analysis_id, id }) => [analysis_id, id]))).toEqual(load.accepted);
    const missing = () => {
      const arrived = new Set(receiver.requests.map(({ body }) => JSON.parse(body.toString()).id));
      return [...load.accepted.values()].filter((id) => !arrived.has(id));
    };
    await expect.poll(missing, { timeout: patience(40_000) }).toEqual([]);
  },
  patience(180_000),
);
