// What locks rows and looks up others in partitions, beside somebody who changes those rows all the time: on a server
// of its own, as PostgreSQL 18 ended where partitions were chosen as it went (UNPRUNED).
import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { migrate } from "../../src/base/database/migrate.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/base/embedded/embedded.ts";
import { recoverInterrupted } from "../../src/delivery/claim-sql.ts";
import { forgetDelivered } from "../../src/delivery/erase-sql.ts";
import { promoteDue } from "../../src/delivery/promote-sql.ts";
import type { TestDatabase } from "../support/database.ts";
import { openDispatchPool } from "../support/delivery-rows.ts";
import { deleteRows, insertAccount, publishMany } from "../support/installation.ts";
import { makeThrowAwayFolder } from "../support/throw-away-folder.ts";

const ACCOUNTS = 20;
const OF_EACH = 100;
const FOR_MS = 3_000;
const TOKEN = randomUUID();

let server: EmbeddedPostgres;
let pool: Pool;
let ids: string[] = [];
const crashes: string[] = [];

beforeAll(async () => {
  const log = (line: string) => line.includes("terminated by signal") && crashes.push(line);
  server = await startEmbeddedPostgres({
    dataDir: await makeThrowAwayFolder(),
    settings: { fsync: "off" },
    log,
  });
  await migrate({ databaseUrl: server.databaseUrl });
  pool = openDispatchPool({ url: server.databaseUrl } as TestDatabase);
  pool.on("error", () => undefined);
  const accounts = await Promise.all(Array.from({ length: ACCOUNTS }, () => insertAccount(pool)));
  const all = accounts.flatMap((account) => Array.from({ length: OF_EACH }, (_, n) => ({ account, n })));
  ids = await publishMany(
    pool,
    all.map(({ account }) => account),
    all.map(({ n }) => `{"id":"a-${n}","status":"succeeded"}`),
    all.map(({ n }) => `https://h${n}.example.com/in`),
  );
});
afterAll(async () => {
  await pool.end();
  await server.stop();
});

const CHANGING = "update sealpost.open_deliveries set due_at = due_at where delivery_id = $1";
const LEASING = `update sealpost.open_deliveries
  set lease_token = $2, lease_until = now() - interval '1 second', lease_started_at = now() - interval '9 seconds',
    lease_run = run, lease_number = (1e9 * random())::integer
  where delivery_id = $1`;
const FORGETTING = `insert into sealpost.forgetting (delivery_id, account_id, look_at)
  select id, account_id, now() from sealpost.deliveries where id = $1
  on conflict (delivery_id) do update set look_at = now()`;
const HOLDING = `insert into sealpost.held_deliveries
    (account_id, delivery_id, wait_s, run_age_s, run, attempts_in_run, interruptions, body_bytes)
  select account_id, id, 0, 0, 1, 0, 0, 10 from sealpost.deliveries where id = $1
  on conflict (account_id, delivery_id) do update set wait_s = 0`;

let steps = 0;
test.each<[string, string, string[], () => Promise<unknown>]>([
  [
    "promoting",
    CHANGING,
    [],
    async () => {
      await promoteDue(pool, new Date(Date.now() + ++steps * 300_000));
      await deleteRows(pool, "graphile_worker._private_jobs", {});
    },
  ],
  ["recovering", LEASING, [TOKEN], () => recoverInterrupted(pool, ids, null)],
  [
    "sending to the endpoint",
    LEASING,
    [TOKEN],
    () => pool.query("select sealpost.send_to_endpoint($1, $2, now())", [ids, TOKEN]),
  ],
  [
    "forgetting",
    FORGETTING,
    [],
    () =>
      forgetDelivered(
        pool,
        async () => [],
        1e9,
        async () => new Set(),
      ),
  ],
  [
    "letting go",
    HOLDING,
    [],
    () => pool.query("select from sealpost.advance_holds(interval '0', now(), 100, 1000)"),
  ],
])("%s ends no server", async (_, changing, more, step) => {
  const untilMs = performance.now() + FOR_MS;
  const over = async (work: () => Promise<unknown>) => {
    while (performance.now() < untilMs && crashes.length === 0) await work();
  };
  const change = () => pool.query(changing, [ids[Math.floor(Math.random() * ids.length)], ...more]);
  await Promise.all([over(change), over(change), over(change), over(step)]);
  expect(crashes).toEqual([]);
});
