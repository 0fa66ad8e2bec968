import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import type { ClientBase, Pool } from "pg";
import { afterEach, describe, expect, test } from "vitest";
import { createApiPool } from "../../../src/base/database/pools.ts";
import { isDatabaseAway } from "../../../src/base/database/transaction.ts";
import { begin } from "../../support/installation.ts";
import { openDatabase } from "../../support/open.ts";

const database = await openDatabase();
let pools: Pool[] = [];
afterEach(async () => {
  await Promise.all(pools.map((pool) => pool.end()));
  pools = [];
});

function open(databaseUrl: string, connectionsMax = 1): Pool {
  const pool = createApiPool({
    databaseUrl,
    connectionsMax,
    applicationName: "test",
    onError: () => undefined,
  });
  pools.push(pool);
  return pool;
}
const failure = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => Promise.reject(new Error("It did not fail.")),
    (error: unknown) => error,
  );

/** A server that takes connections and says nothing. */
async function mute(use: (url: string) => Promise<void>): Promise<void> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => sockets.push(socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  await use(`postgres://x@127.0.0.1:${(server.address() as AddressInfo).port}/x`);
  for (const socket of sockets) socket.destroy();
  server.close();
}

describe("the database is away", () => {
  test.each([
    ["nobody listens", "postgres://x@127.0.0.1:1/x"],
    ["no such socket", "postgres://x@localhost/x?host=%2Fnonexistent"],
    ["no such name", "postgres://x@database.invalid/x"],
  ])("when %s", async (_, url) => {
    expect(isDatabaseAway(await failure(open(url).query("select 1")))).toBe(true);
  });

  test("when it takes the connection and says nothing", async () => {
    await mute(async (url) => {
      expect(isDatabaseAway(await failure(open(url).query("select 1")))).toBe(true);
    });
  });

  test("when all connections are taken", async () => {
    const pool = open(database.url);
    const client = await pool.connect();
    expect(isDatabaseAway(await failure(pool.query("select 1")))).toBe(true);
    client.release();
  });

  test("when it is not there any more, or not the one that was meant", async () => {
    const gone = new URL(database.url);
    gone.pathname = "/gone";
    expect(isDatabaseAway(await failure(open(gone.href).query("select 1")))).toBe(true);
  });

  test.each([
    ["a statement takes too long", "set local statement_timeout = 10; select pg_sleep(10)"],
    ["a lock is not to be had", "set local lock_timeout = 10; lock table sealpost.settings in share mode"],
    ["it can only read", "set local transaction_read_only = on; delete from sealpost.settings"],
    ["the operator ends the session", "select pg_terminate_backend(pg_backend_pid())"],
  ])("when %s", async (_, sql) => {
    const holder = await begin(
      database.pool,
      "update sealpost.settings set analysis_bytes_max = analysis_bytes_max",
    );
    const pool = open(database.url);
    const client: ClientBase & { release(isBroken: boolean): void } = await pool.connect();
    client.on("error", () => undefined);
    expect(isDatabaseAway(await failure(client.query(`begin; ${sql}`)))).toBe(true);
    client.release(true);
    await holder.rollback();
  });
});

describe("the database is there", () => {
  test.each([
    ["and refuses the statement", "select from nowhere"],
    ["and does not understand it", "selct"],
    ["and refuses the data", "select 'x'::integer"],
    ["and keeps a constraint", "insert into sealpost.accounts (name) values ('')"],
    ["and says what we made it say", "do $$ begin raise exception 'x' using errcode = 'SP002'; end $$"],
  ])("%s", async (_, sql) => {
    expect(isDatabaseAway(await failure(database.pool.query(sql)))).toBe(false);
  });

  test.each([[new TypeError("x")], [new Error("Connection")], ["text"], [null], [undefined]])(
    "when %s was thrown",
    (error) => {
      expect(isDatabaseAway(error)).toBe(false);
    },
  );
});
