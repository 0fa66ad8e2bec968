// Any role that connects can take advisory locks. None may keep us from work with one, or with any other lock.
import { randomBytes, randomUUID } from "node:crypto";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { claimIdempotencyKey, storingResponse } from "../../../src/base/database/idempotency.ts";
import { migrate } from "../../../src/base/database/migrate.ts";
import { tryToLockTable } from "../../../src/base/database/table-lock.ts";
import { inTransaction } from "../../../src/base/database/transaction.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { insertAccount, publish, SECRETS_KEY } from "../../support/installation.ts";

const role = `stranger_${randomBytes(4).toString("hex")}`;
/** The keys of the advisory locks that there were: for migrating, for telling dispatchers, for quarantine. */
const FORMER_KEYS = ["x'7365616c706f7374'::bigint", "x'7365616c77616b65'::bigint", "7365706101"];

let database: TestDatabase;
let stranger: pg.Client;

beforeAll(async () => {
  database = await createTestDatabase();
  await database.pool.query(`create role ${role} login password 'stranger'`);
  // More than a stranger has: a pipeline's role sees the schema.
  await database.pool.query(`grant usage on schema sealpost to ${role}`);
  const url = new URL(database.url);
  url.username = role;
  url.password = "stranger";
  stranger = new pg.Client(url.href);
  await stranger.connect();
  for (const key of FORMER_KEYS) await stranger.query(`select pg_advisory_lock(${key})`);
});
afterAll(async () => {
  await stranger.end();
  await database.pool.query(`drop owned by ${role}; drop role ${role}`);
  await database.drop();
});

test("a stranger cannot lock what we lock", async () => {
  for (const statement of [
    "lock table sealpost.migration_lock in access share mode",
    "lock table sealpost.quarantine_lock in access share mode",
    "select from sealpost.announcing for update",
  ]) {
    await stranger.query("begin");
    await expect(stranger.query(statement), statement).rejects.toThrow(/^permission denied for table/);
    await stranger.query("rollback");
  }
});

test("migrating does not wait for a stranger", async () => {
  const lines: string[] = [];
  await migrate({ databaseUrl: database.url, log: (line) => lines.push(line), lockWaitMaxMs: 1_000 });
  expect(lines).toEqual([]);
});

test("migrating says whom it waits for, and gives up at its limit", async () => {
  const other = new pg.Client({ connectionString: database.url, application_name: "another migrate" });
  await other.connect();
  await expect.poll(() => tryToLockTable(other, "migration_lock")).toBe(true);
  const { rows } = await other.query("select pg_backend_pid() as pid, current_user as role");
  const holder = `pid ${rows[0].pid} on the server, role ${rows[0].role}, application "another migrate"`;
  const lines: string[] = [];
  const wait = { databaseUrl: database.url, log: (line: string) => lines.push(line), lockWaitMaxMs: 5_200 };
  await expect(migrate(wait)).rejects.toThrow(
    `Another process has been migrating this database for over 5.2 seconds: ${holder}.`,
  );
  expect(lines).toEqual([
    "another process is migrating this database; waiting for it",
    `still waiting after 5 s for ${holder}`,
  ]);
  await other.end();
  await migrate(wait);
});

test("a lock of ours lasts in a session that is idle for long, and ends with it", async () => {
  const holder = new pg.Client({ connectionString: database.url, idle_in_transaction_session_timeout: 100 });
  await holder.connect();
  expect(await tryToLockTable(holder, "quarantine_lock")).toBe(true);
  const { rows } = await holder.query(
    "select current_setting('idle_in_transaction_session_timeout') as timeout, pg_backend_pid() as pid",
  );
  expect(rows[0].timeout).toBe("0");
  await inTransaction(database.pool, async (client) => {
    const held = await client.query(
      "select backend_xid, backend_xmin from pg_stat_activity where pid = $1 and state = 'idle in transaction'",
      [rows[0].pid],
    );
    expect(held.rows, "nothing that vacuum would wait for").toEqual([
      { backend_xid: null, backend_xmin: null },
    ]);
  });
  const other = await database.pool.connect();
  expect(await tryToLockTable(other, "quarantine_lock")).toBe(false);
  await holder.end();
  await expect.poll(() => tryToLockTable(other, "quarantine_lock")).toBe(true);
  other.release(true);
});

test("dispatchers are told of wake-ups, whatever a stranger holds", async () => {
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  const listener = await database.pool.connect();
  const heard = new Promise((resolve) => listener.once("notification", resolve));
  await listener.query('listen "jobs:insert"');
  await publish(database.pool, accountId, '{"id":"told","status":"succeeded"}');
  expect(await heard).toMatchObject({
    channel: "jobs:insert",
    payload: expect.stringMatching(/^\{"count":1,/),
  });
  listener.release(true);
});

test("a stranger who holds an idempotency key's lock is named, and what is stored is answered", async () => {
  const claim = {
    accountId: randomUUID(),
    keyId: randomUUID(),
    idempotencyKey: "watched",
    operationKey: "analyses.publish",
    fingerprint: Buffer.from("f"),
  };
  await stranger.query("select pg_advisory_lock(hashtextextended($1 || ' ' || $2 || ' ' || $3, 1))", [
    claim.accountId,
    claim.keyId,
    claim.idempotencyKey,
  ]);
  const claimIt = () =>
    inTransaction(database.pool, (client) => claimIdempotencyKey(client, claim, SECRETS_KEY));
  await expect(claimIt()).rejects.toThrow(
    new RegExp(`^The role ${role} \\(pid \\d+\\) holds the advisory lock -?\\d+ of an idempotency key`),
  );
  const response = { status: 202, headers: {}, body: null, holdsSecret: false };
  await database.pool.query(
    storingResponse(
      { claim, response, counted: { userId: null, isRefused: true, auditBytes: 0 } },
      SECRETS_KEY,
    ),
  );
  expect(await claimIt()).toMatchObject({ state: "completed", response: { status: 202 } });

  // A request of ours is no stranger.
  await inTransaction(database.pool, async (client) => {
    const own = { ...claim, idempotencyKey: "ours" };
    expect(await claimIdempotencyKey(client, own, SECRETS_KEY)).toEqual({ state: "claimed" });
    const second = inTransaction(database.pool, (other) => claimIdempotencyKey(other, own, SECRETS_KEY));
    expect(await second).toEqual({ state: "in_progress" });
  });
});
