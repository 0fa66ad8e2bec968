// The canary of src/base/database/graphile-worker.ts. We rely on more of graphile-worker than its documented interface:
// when an upgrade breaks that, the test that fails here says what, and the code and SQL that relied on it follow.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { makeWorkerUtils } from "graphile-worker";
import type pg from "pg";
import { describe, expect, test } from "vitest";
import {
  createWakeupQueue,
  startWakeupRunner,
  type WakeupQueue,
} from "../../../src/base/database/graphile-worker.ts";
import { startTestDispatcher } from "../../support/dispatching.ts";
import { createTestAccount, insertAccount, publish } from "../../support/installation.ts";
import { openDatabase } from "../../support/open.ts";
import { startReceiver } from "../../support/receiver.ts";
import { countJobs } from "../../support/wakeup-jobs.ts";

/** What the code, the SQL and this test were written for. */
const PINNED = "0.18.0";

const database = await openDatabase();

function openQueue(databaseUrl: string): WakeupQueue {
  const names = { databaseUrl, applicationName: "test wakeups" };
  return createWakeupQueue({ ...names, connectionsMax: 4, onError: () => undefined });
}

test("the installed version is the pinned one", () => {
  const read = (path: string) =>
    JSON.parse(readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8"));
  expect(read("package.json").dependencies["graphile-worker"], "package.json pins it exactly").toBe(PINNED);
  expect(read("node_modules/graphile-worker/package.json").version).toBe(PINNED);
});

describe("the private tables", () => {
  test("have the columns that our SQL names", async () => {
    const { rows } = await database.pool.query<{ place: string; type: string }>(
      `select table_name || '.' || column_name as place, data_type as type from information_schema.columns
       where table_schema = 'graphile_worker' and table_name in ('_private_jobs', '_private_tasks')`,
    );
    expect(Object.fromEntries(rows.map(({ place, type }) => [place, type]))).toMatchObject({
      "_private_jobs.id": "bigint",
      "_private_jobs.task_id": "integer",
      "_private_jobs.payload": "json",
      "_private_jobs.max_attempts": "smallint",
      "_private_jobs.is_available": "boolean",
      "_private_jobs.locked_at": "timestamp with time zone",
      "_private_tasks.id": "integer",
      "_private_tasks.identifier": "text",
    });
  });

  test("fill in whatever our inserts leave out", async () => {
    const { rows } = await database.pool.query<{ place: string }>(
      `select table_name || '.' || column_name as place from information_schema.columns
       where table_schema = 'graphile_worker' and table_name in ('_private_jobs', '_private_tasks')
         and is_nullable = 'NO' and column_default is null and is_identity = 'NO' and is_generated = 'NEVER'
       order by place`,
    );
    expect(rows.map(({ place }) => place)).toEqual(["_private_jobs.task_id", "_private_tasks.identifier"]);
  });

  test("call a job available that nobody has locked and that has attempts left", async () => {
    const { rows } = await database.pool.query<{ rule: string }>(
      `select pg_get_expr(d.adbin, d.adrelid) as rule from pg_attrdef d
       join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
       where d.adrelid = 'graphile_worker._private_jobs'::regclass and a.attname = 'is_available'`,
    );
    expect(rows[0]?.rule).toBe("((locked_at IS NULL) AND (attempts < max_attempts))");
  });

  test("hold each task once, and have an index that leads to the available jobs in their order", async () => {
    const { rows } = await database.pool.query<{ definition: string }>(
      `select indexdef as definition from pg_indexes
       where schemaname = 'graphile_worker' and tablename in ('_private_jobs', '_private_tasks')`,
    );
    const definitions = rows.map(({ definition }) => definition);
    expect(definitions).toContainEqual(
      expect.stringMatching(/^CREATE UNIQUE INDEX .*_private_tasks .*\(identifier\)$/),
    );
    expect(definitions).toContainEqual(
      expect.stringMatching(
        /_private_jobs USING btree \(priority, run_at\) .*WHERE \(is_available = true\)$/,
      ),
    );
  });

  test("are used by the SQL that the header of graphile-worker.ts lists, and by no other", async () => {
    const { rows: functions } = await database.pool.query<{ name: string }>(
      `select proname as name from pg_proc
       where pronamespace = 'sealpost'::regnamespace and prosrc like '%graphile_worker%' order by name`,
    );
    expect(functions.map(({ name }) => name)).toEqual([
      "add_wakeups",
      "announce_events",
      "promote",
      "publish_fresh",
      "sweep_jobs",
    ]);
    const { rows: triggers } = await database.pool.query<{ name: string }>(
      `select tgname as name from pg_trigger t join pg_class c on c.oid = t.tgrelid
       where c.relnamespace = 'graphile_worker'::regnamespace and tgname like 'sealpost%' order by name`,
    );
    expect(triggers.map(({ name }) => name)).toEqual(["sealpost_announce_wakeups", "sealpost_keep_task"]);
  });
});

type Statement = { readonly name?: string; readonly text: string };

describe("the runner", () => {
  test("sends the statements we rewrite, tells of its looks and its end, and deletes jobs that are done", async () => {
    const queue = openQueue(database.url);
    const { pool, bound } = queue;
    const given: Statement[] = [];
    const sent: Statement[] = [];
    // Listeners run in order: this one wraps before the rewriting is put on, that one after it.
    pool.prependListener("connect", (client) => record(client, sent));
    pool.on("connect", (client) => record(client, given));
    const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
    // Two jobs of one transaction, so that they are fetched, and deleted, together.
    const client = await database.pool.connect();
    await client.query("begin");
    const ids = [
      await publish(client, accountId, '{"id":"c-1","status":"succeeded"}'),
      await publish(client, accountId, '{"id":"c-2","status":"succeeded"}'),
    ];
    await client.query("commit");
    client.release();

    const payloads: unknown[] = [];
    const looks: number[] = [];
    let endings = 0;
    const runner = await startWakeupRunner({
      queue,
      handle: async (payload) => void payloads.push(payload),
      onLook: (found, lookAgain) => {
        looks.push(found.length);
        if (looks.length < 5) lookAgain();
      },
      onEnding: () => endings++,
    });
    await expect.poll(() => payloads.length, { message: "jobs reach the handler" }).toBe(2);
    await expect.poll(() => countJobs(database.pool), { message: "jobs that are done are deleted" }).toBe(0);
    await expect
      .poll(() => looks.length, { message: "localQueue:getJobs:complete tells of each look" })
      .toBeGreaterThan(4);
    await runner.stop();
    await runner.ended;
    await pool.end();

    expect(payloads, "payloads arrive parsed").toEqual(
      expect.arrayContaining(
        ids.map((id) => ({ ids: [id], accounts: [accountId], lanes: [expect.any(String)] })),
      ),
    );
    expect(Math.max(...looks), "localQueue:getJobs:complete brings the jobs").toBe(2);
    expect(endings, "pool:gracefulShutdown tells of the end").toBe(1);

    const fetching = expect.objectContaining({
      name: "get_job100/graphile_worker",
      text: expect.stringMatching(/ from j\n +where jobs\.id = j\.id\n +returning \*$/),
    });
    const deleting = {
      name: "complete_jobs/graphile_worker",
      text:
        'delete from "graphile_worker"._private_jobs as jobs\n' +
        "using unnest($1::bigint[]) n(n)\nwhere id = n",
    };
    expect(given, "the fetch joins as we know it, under a name").toContainEqual(fetching);
    const looking = expect.stringMatching(/\n +and run_at <= now\(\)\n +and task_id = any\(\$2::int\[\]\)\n/);
    expect(given, "the fetch says which jobs as we know it").toContainEqual(
      expect.objectContaining({ text: looking, values: [expect.any(String), expect.any(Array)] }),
    );
    expect(sent, "the fetch begins at a bound").toContainEqual(
      expect.objectContaining({
        text: expect.stringMatching(
          /\n +and priority = 0 and run_at >= \$3::timestamptz\n +and run_at <= now/,
        ),
        values: [expect.any(String), expect.any(Array), bound.from],
      }),
    );
    expect(given, "the deletion joins as we know it, under a name").toContainEqual(
      expect.objectContaining(deleting),
    );
    expect(
      given.map(({ text }) => text),
      "it listens where we notify, and where we do not let it",
    ).toContain('LISTEN "jobs:insert"; LISTEN "worker:migrate";');
    const rewritten = sent.map(({ text }) => text).filter((text) => text.includes("= any (array["));
    expect(new Set(rewritten.map((text) => /where .* = any \(array\[.*\]\)$/m.exec(text)?.[0]))).toEqual(
      new Set(["where jobs.id = any (array[j.id])", "where id = any (array[n])"]),
    );
    expect(sent, "no join is left").not.toContainEqual(fetching);
    expect(sent, "no join is left").not.toContainEqual(expect.objectContaining(deleting));
  });

  test("is told no error code for which it would sleep instead of looking again", async () => {
    const field = (type: string, value: string) => `${type}${value}\0`;
    const fields = Buffer.from(`${field("S", "FATAL")}${field("C", "57P03")}${field("M", "starting up")}\0`);
    const head = Buffer.from("E\0\0\0\0");
    head.writeInt32BE(fields.length + 4, 1);
    const starting = createServer((socket) =>
      socket.once("data", () => socket.end(Buffer.concat([head, fields]))),
    );
    await once(starting.listen(0, "127.0.0.1"), "listening");
    const { port } = starting.address() as AddressInfo;
    const { pool } = openQueue(`postgres://nobody@127.0.0.1:${port}/none`);
    const error = await pool.connect().catch((error: unknown) => error);
    expect(error).toMatchObject({
      message: "no connection for wake-ups: starting up",
      cause: { code: "57P03" },
    });
    expect(error).not.toHaveProperty("code");
    await pool.end();
    starting.close();
  });

  test("is not stopped by a notification, which any role that can connect may send", async () => {
    await using receiver = await startReceiver();
    const dispatcher = startTestDispatcher(database, [receiver]);
    const { accountId } = await createTestAccount(database, receiver.url("/").href);
    await publish(database.pool, accountId, '{"id":"n-1","status":"succeeded"}');
    await receiver.waitForRequests(1);

    await database.pool.query(`select pg_notify('worker:migrate', '{"migrationNumber":99,"breaking":true}')`);
    await publish(database.pool, accountId, '{"id":"n-2","status":"succeeded"}');
    await receiver.waitForRequests(2);
    await dispatcher.stop();
    expect(process.exitCode).toBeUndefined();
  });
});

test("the cleanup deletes tasks without jobs, row by row, and our trigger keeps ours", async () => {
  await database.pool.query(
    "insert into graphile_worker._private_tasks (identifier) values ('send_invoice')",
  );
  const tasks = async () => {
    const { rows } = await database.pool.query<{ id: number; identifier: string }>(
      "select id, identifier from graphile_worker._private_tasks order by id",
    );
    return rows;
  };
  const before = await tasks();
  expect(before.map(({ identifier }) => identifier)).toEqual(["deliver", "send_invoice"]);
  const utils = await makeWorkerUtils({ pgPool: database.pool });
  await utils.cleanup({ tasks: ["GC_TASK_IDENTIFIERS"] });
  await utils.release();
  expect(await tasks(), "only the task that is not ours is gone").toEqual(before.slice(0, 1));
});

function record(client: pg.PoolClient, statements: Statement[]): void {
  const query = client.query.bind(client) as (...args: readonly unknown[]) => unknown;
  const recording = (statement: string | Statement, ...rest: readonly unknown[]) => {
    statements.push(typeof statement === "string" ? { text: statement } : statement);
    return query(statement, ...rest);
  };
  client.query = recording as typeof client.query;
}
