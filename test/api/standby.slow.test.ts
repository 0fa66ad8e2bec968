import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { readPosition, readStanding } from "../../src/base/database/log-reader.ts";
import { createStandbyPool } from "../../src/base/database/pools.ts";
import { scopes } from "../../src/base/model/api-keys.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { createTestAccount, publish } from "../support/installation.ts";
import { type ReplicatedServers, startReplicatedServers } from "../support/replicated-servers.ts";
import { ask, type Json } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

let servers: ReplicatedServers;
let proxy: DatabaseProxy;
let serves: SealpostProcess[];
let accountId: string;
let key: string;
let analyses = 0;

beforeAll(async () => {
  servers = await startReplicatedServers();
  proxy = await startDatabaseProxy(servers.standby.url);
  const env = {
    DATABASE_URL: servers.primary.url,
    READ_DATABASE_URL: proxy.url,
    RATE_LIMIT_REQUESTS: "1000000",
  };
  serves = await Promise.all([startProcess("serve", env), startProcess("serve", env)]);
  ({ accountId } = await createTestAccount(servers.primary));
  const asked = { accountId, name: null, scopes, expiresInSeconds: null };
  ({ apiKey: key } = await createApiKey(servers.primary.pool, readConfig({}), asked));
}, patience(60_000));
afterAll(async () => {
  await Promise.all(serves.map((one) => one.stop()));
  await proxy.close();
  await servers.stop();
});

const first = () => serves[0]!;
const second = () => serves[1]!;

async function publishOne(): Promise<string> {
  analyses += 1;
  return await publish(servers.primary.pool, accountId, `{"id":"a-${analyses}","status":"succeeded"}`);
}

/** The newest delivery of the list, and how long it took. */
async function newest(serve = first()): Promise<{ id: unknown; ms: number }> {
  const startedAt = performance.now();
  const { status, body } = await ask(serve.url, "GET", "/v1/webhooks/deliveries?limit=1", { key });
  expect(status).toBe(200);
  return { id: (body.items as Json[])[0]?.id, ms: performance.now() - startedAt };
}

async function count(metric: string, serve = first()): Promise<number> {
  const text = await (await fetch(`${serve.metricsUrl}/metrics`)).text();
  return Number(new RegExp(`^${metric.replaceAll(/[{}"]/g, "\\$&")} (\\S+)$`, "m").exec(text)?.[1]);
}

const STANDBY_READS = 'sealpost_log_reads_total{server="standby"}';
const PRIMARY_READS = 'sealpost_log_reads_total{server="primary"}';
const faults = (why: string) => count(`sealpost_log_standby_faults_total{why="${why}"}`);

/** Asks until the standby answers. */
async function untilStandbyServes(serve: SealpostProcess): Promise<void> {
  const before = await count(STANDBY_READS, serve);
  await expect
    .poll(
      async () => {
        await newest(serve);
        return await count(STANDBY_READS, serve);
      },
      { timeout: patience(10_000) },
    )
    .toBeGreaterThan(before);
}

async function readiness(serve: SealpostProcess): Promise<{ status: number; text: string }> {
  const response = await fetch(`${serve.metricsUrl}/readyz`);
  return { status: response.status, text: await response.text() };
}

describe("lists of the log", () => {
  beforeEach(() => Promise.all(serves.map(untilStandbyServes)));

  test("are read from the standby, and nothing else is", async () => {
    const id = await publishOne();
    const queries = () => count('sealpost_database_query_seconds_count{pool="standby"}');
    // What tries an idle standby has long ended.
    const before = await queries();
    for (const path of ["", `/${id}`, `/${id}/body`]) {
      const paths = `/v1/webhooks/deliveries${path}`;
      if (path !== "") expect(await ask(first().url, "GET", paths, { key })).toMatchObject({ status: 200 });
    }
    expect(await ask(first().url, "GET", "/v1/webhooks/events", { key })).toMatchObject({ status: 200 });
    const target = { body: { url: "https://receiver.example.com/in" }, key };
    expect(await ask(first().url, "PUT", "/v1/webhooks/endpoint", target)).toMatchObject({ status: 200 });
    expect(await queries()).toBe(before);
    expect((await newest()).id).toBe(id);
    expect(await queries()).toBeGreaterThan(before);
  });

  test("show what has just been written, in SQL or through another process", async () => {
    const before = await count(STANDBY_READS, second());
    for (let n = 0; n < 30; n += 1) {
      const id = await publishOne();
      expect((await newest(second())).id).toBe(id);
      const published = await ask(first().url, "POST", "/v1/analyses", {
        key,
        body: { analysis: { id: `http-${n}`, status: "succeeded" } },
      });
      expect((await newest(second())).id).toBe(published.body.delivery_id);
    }
    // The test would prove nothing if the primary had answered them all.
    expect(await count(STANDBY_READS, second())).toBeGreaterThan(before + 30);
  });

  test("show what a long transaction wrote, once it has committed", async () => {
    const client = await servers.primary.pool.connect();
    try {
      await client.query("begin");
      const early = await publish(client, accountId, '{"id":"early","status":"succeeded"}');
      const late = await publishOne();
      expect((await newest()).id).toBe(late);
      await servers.standby.pool.query("select pg_wal_replay_pause()");
      await client.query("commit");
      const { body } = await ask(first().url, "GET", "/v1/webhooks/deliveries?limit=2", { key });
      expect((body.items as Json[]).map(({ id }) => id)).toEqual([late, early]);
    } finally {
      client.release();
      await servers.standby.pool.query("select pg_wal_replay_resume()");
    }
  });

  test("come from the primary while the standby is behind, and from the standby afterwards", async () => {
    await servers.standby.pool.query("select pg_wal_replay_pause()");
    try {
      const id = await publishOne();
      const behind = await newest();
      expect(behind.id).toBe(id);
      expect(behind.ms).toBeLessThan(patience(1_000));
      expect(await faults("behind")).toBeGreaterThan(0);
      // No request after it waits for the standby.
      const [before, primary] = [await count(STANDBY_READS), await count(PRIMARY_READS)];
      for (let n = 0; n < 10; n += 1) expect((await newest()).id).toBe(id);
      expect(await count(STANDBY_READS)).toBe(before);
      expect(await count(PRIMARY_READS)).toBe(primary + 10);
    } finally {
      await servers.standby.pool.query("select pg_wal_replay_resume()");
    }
    await untilStandbyServes(first());
  });

  test.each(["hang", "cut"] as const)(
    "come from the primary within a second of the standby's %s",
    async (how) => {
      const id = await publishOne();
      await untilStandbyServes(first());
      await proxy[how]();
      const found = await Promise.all(Array.from({ length: 20 }, () => newest()));
      expect(found.map((one) => one.id)).toEqual(found.map(() => id));
      expect(Math.max(...found.map(({ ms }) => ms))).toBeLessThan(patience(1_000));
      expect(await faults("away")).toBeGreaterThan(0);
      expect((await readiness(first())).status).toBe(200);
      await proxy.restore();
      await untilStandbyServes(first());
    },
  );
});

describe("a server", () => {
  test("of another cluster, database or history is refused, however far it has come", async () => {
    const position = await readPosition(servers.primary.pool);
    const client = await servers.standby.pool.connect();
    try {
      await expect.poll(() => readStanding(client, position)).toBe("reached");
      const { systemIdentifier, timeline } = position;
      const another = { ...position, lsn: "0/1", systemIdentifier: `${BigInt(systemIdentifier) + 1n}` };
      expect(await readStanding(client, another)).toBe("refused");
      expect(await readStanding(client, { ...position, lsn: "0/1", timeline: timeline + 1 })).toBe("refused");
      expect(await readStanding(client, { ...position, lsn: "FFFF/0" })).toBe("behind");
      const besideUrl = new URL(servers.standby.url);
      besideUrl.pathname = "/template1";
      const beside = new pg.Client(besideUrl.href);
      await beside.connect();
      expect(await readStanding(beside, position)).toBe("refused");
      await beside.end();
      // A role without further rights can tell, too.
      await servers.primary.pool.query("create role ordinary");
      await expect
        .poll(async () => (await client.query("select from pg_roles where rolname = 'ordinary'")).rowCount)
        .toBe(1);
      await client.query("set role ordinary");
      expect(await readStanding(client, position)).toBe("reached");
      expect(await readStanding(client, { ...position, timeline: timeline + 1 })).toBe("refused");
      await client.query("reset role");
    } finally {
      client.release();
    }
    const primary = await servers.primary.pool.connect();
    expect(await readStanding(primary, { ...position, lsn: "0/1" })).toBe("refused");
    primary.release();
  });

  describe("that changes its role", () => {
    let misled: SealpostProcess;

    beforeEach(async () => {
      misled = await startProcess("serve", { DATABASE_URL: servers.standby.url });
    });
    afterEach(() => misled.stop().then(() => undefined));

    test(
      "is not ready while it can only be read, and not read from once it is promoted",
      async () => {
        await untilStandbyServes(first());
        expect(await readiness(misled)).toEqual({
          status: 503,
          text: expect.stringContaining(
            "The database can only be read: it is a standby, or was set read-only.",
          ),
        });
        expect((await fetch(`${misled.url}/readyz`)).status).toBe(503);
        await servers.standby.pool.query("select pg_promote()");
        await expect.poll(() => readiness(misled)).toMatchObject({ status: 200 });

        const id = await publishOne();
        const before = await count(STANDBY_READS);
        for (let n = 0; n < 10; n += 1) expect((await newest()).id).toBe(id);
        expect(await count(STANDBY_READS)).toBe(before);
        await expect.poll(() => faults("refused"), { timeout: patience(5_000) }).toBeGreaterThan(1);
      },
      patience(30_000),
    );

    test("is not written to through the connections for reading", async () => {
      const pool = createStandbyPool({
        databaseUrl: servers.standby.url,
        connectionsMax: 1,
        applicationName: "test standby",
        onError: () => undefined,
      });
      const write = pool.query("insert into sealpost.accounts (name) values ('x')");
      await expect(write).rejects.toMatchObject({ code: "25006" });
      await pool.end();
    });
  });
});
