// What tells that an installation is growing: see docs/scaling.md.
import { randomUUID } from "node:crypto";
import { chown, open, stat } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect } from "vitest";
import { playCauses, repeating, startAlerting } from "../support/alert-causes.ts";
import { targetsEnv } from "../support/dispatching.ts";
import {
  createTestAccount,
  createTestKey,
  insertLog,
  publishAny,
  publishMany,
} from "../support/installation.ts";
import type { Prometheus } from "../support/prometheus.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type ReplicatedServers, startReplicatedServers } from "../support/replicated-servers.ts";
import { ask } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

/** A list with a filter looks at so many. */
const LOGGED = 10_000;
const READERS = 8;
const PUBLISHED_AT_ONCE = 1_000;
const DELIVERED_AT_ONCE = 500;
/** PostgreSQL keeps a table in files of this size. */
const SEGMENT_BYTES = 1024 ** 3;
/** Just over a terabyte. */
const SEGMENTS = 940;

let servers: ReplicatedServers;
let dispatcher: SealpostProcess;
let serve: SealpostProcess;
let prometheus: Prometheus;
let receiver: Receiver;
let accountId: string;
let key: string;
/** Has an endpoint, and so many deliveries to it. */
let delivered: string;
let published = 0;

beforeAll(async () => {
  servers = await startReplicatedServers();
  receiver = await startReceiver({ answers: [{ headers: { connection: "close" } }] });
  const { primary, standby } = servers;
  const env = {
    DATABASE_URL: primary.url,
    READ_DATABASE_URL: standby.url,
    RATE_LIMIT_REQUESTS: "1000000",
    ...targetsEnv([receiver]),
  };
  [dispatcher, serve] = await Promise.all([startProcess("dispatch", env), startProcess("serve", env)]);
  ({ accountId } = await createTestAccount(primary));
  ({ accountId: delivered } = await createTestAccount(primary, receiver.url("/").href));
  ({ apiKey: key } = await createTestKey(primary.pool, accountId));
  await insertLog(primary.pool, accountId, LOGGED);
  const jobs = { "sealpost-dispatch": [dispatcher.metricsHost], "sealpost-serve": [serve.metricsHost] };
  prometheus = await startAlerting(jobs);
}, patience(60_000));
afterAll(async () => {
  await prometheus.close();
  await Promise.all([dispatcher.stop(), serve.stop()]);
  await receiver.close();
  await servers.stop();
});

playCauses(
  () => prometheus,
  [
    {
      what: "the standby is away",
      alerts: ["SealpostStandbyUnused"],
      begin: async () => {
        await servers.standby.kill();
        // Whoever reads finds out; from then on it is tried again.
        await readLog();
      },
    },
    {
      what: "programs read lists of the log in a loop",
      alerts: ["SealpostReadsHeavy"],
      ...repeating(READERS, readLog),
    },
    {
      what: "over a thousand analyses a second are published",
      alerts: ["SealpostDatabaseBusy", "SealpostSecondCellDue"],
      ...repeating(1, publishBatch),
    },
    {
      what: "there is more to deliver than a dispatcher can, as receivers want a new connection for each webhook",
      alerts: ["SealpostDispatcherBusy"],
      ...repeating(1, async () => {
        await publishAny(servers.primary.pool, delivered, DELIVERED_AT_ONCE);
        published += DELIVERED_AT_ONCE;
        // It always has some more.
        await receiver.waitForRequests(published - DELIVERED_AT_ONCE, 60_000);
      }),
    },
    {
      what: "a day of the log has a terabyte",
      alerts: ["SealpostLogLarge"],
      begin: growLog,
    },
  ],
);

async function readLog(): Promise<void> {
  const { status } = await ask(serve.url, "GET", "/v1/webhooks/deliveries?target_host=nobody.example.com", {
    key,
  });
  expect(status).toBe(200);
}

async function publishBatch(): Promise<void> {
  const ids = Array<string>(PUBLISHED_AT_ONCE).fill(accountId);
  const texts = ids.map(() => `{"id":"${randomUUID()}","status":"succeeded"}`);
  const noUrls = ids.map(() => null);
  await publishMany(servers.primary.pool, ids, texts, noUrls);
}

/** Tomorrow's bodies, of empty pages: their files are that long, and take up nothing. PostgreSQL counts the pages. */
async function growLog(): Promise<void> {
  const { pool } = servers.primary;
  const { rows } = await pool.query<{ name: string; folder: string; path: string }>(
    `select name, current_setting('data_directory') as folder, pg_relation_filepath(name) as path
     from (
       select 'sealpost.bodies_' || to_char((now() at time zone 'UTC')::date + 1, 'YYYYMMDD') as name
     ) as tomorrow`,
  );
  const { name, folder, path } = rows[0]!;
  const first = join(folder, path);
  const { uid, gid } = await stat(first);
  for (let segment = 0; segment < SEGMENTS; segment++) {
    const file = segment === 0 ? first : `${first}.${segment}`;
    await using handle = await open(file, "a");
    await handle.truncate(SEGMENT_BYTES);
    await chown(file, uid, gid);
  }
  // A sample of a few hundred of a hundred million pages.
  await pool.query(`set default_statistics_target = 1; analyze ${name}`);
}
