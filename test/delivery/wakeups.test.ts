import { EventEmitter, once } from "node:events";
import { makeWorkerUtils } from "graphile-worker";
import { afterEach, describe, expect, test } from "vitest";
import { createWakeupQueue, JobsBound, type WakeupQueue } from "../../src/base/database/graphile-worker.ts";
import type { WaitingDelivery } from "../../src/delivery/lane.ts";
import { createWakeups } from "../../src/delivery/wakeups.ts";
import { begin, insertAccount, publish, publishMany } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { countJobs, takeWakeups } from "../support/wakeup-jobs.ts";

const database = await openDatabase();

let running: ReturnType<typeof createWakeups> | null = null;
const queues: WakeupQueue[] = [];
afterEach(async () => {
  await running?.stop();
  running = null;
  for (const { pool } of queues.splice(0)) await pool.end();
  // What was told and woken may not have been fetched yet.
  await takeWakeups(database.pool);
});

function openQueue(bound = new JobsBound()): WakeupQueue {
  const names = { databaseUrl: database.url, applicationName: "test wakeups" };
  const queue = createWakeupQueue({ ...names, connectionsMax: 4, onError: () => undefined }, bound);
  queues.push(queue);
  return queue;
}

/** Wakes from now on; what it gives resolves with the deliveries that were woken, once they are `count`. */
function startWaking(queue = openQueue()): (count: number) => Promise<readonly WaitingDelivery[]> {
  const woken: WaitingDelivery[] = [];
  const events = new EventEmitter();
  running = createWakeups({
    queue,
    wake: async (waiting) => {
      woken.push(...waiting);
      events.emit("woken");
    },
    onRunnerEnded: () => undefined,
    random: Math.random,
  });
  running.start();
  return async (count) => {
    while (woken.length < count) await once(events, "woken");
    return woken;
  };
}

async function listen() {
  const client = await database.pool.connect();
  const heard: string[] = [];
  client.on("notification", ({ payload = "" }) => heard.push(payload));
  await client.query('listen "jobs:insert"');
  return {
    /** What was heard until now: a round trip later everything committed before it is there. */
    heard: async () => {
      await client.query("select");
      return heard;
    },
    stop: () => client.release(true),
  };
}

test("of transactions that commit at the same moment one tells of its wake-ups, and none waits", async () => {
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  const listening = await listen();
  const { client: slow, commit } = await begin(database.pool);
  const ids = [await publish(slow, accountId, '{"id":"w-1","status":"succeeded"}')];
  expect(await listening.heard()).toEqual([]);
  // What happens at its commit, which then takes long.
  await slow.query("set constraints all immediate");
  ids.push(await publish(database.pool, accountId, '{"id":"w-2","status":"succeeded"}'));
  expect(await listening.heard(), "the second leaves it to the first").toEqual([]);
  await commit();
  const wakes = { ids: [ids[0]], accounts: [accountId], lanes: [expect.any(String)] };
  expect((await listening.heard()).map((told) => JSON.parse(told))).toEqual([
    { count: 1, job: expect.stringMatching(/^\d+$/), wakes },
  ]);

  ids.push(await publish(database.pool, accountId, '{"id":"w-3","status":"succeeded"}'));
  expect(await listening.heard(), "alone, it tells").toHaveLength(2);
  listening.stop();
  expect((await startWaking()(3)).map(({ deliveryId }) => deliveryId).sort()).toEqual(ids.sort());
});

test("finds wake-ups that nobody told of, soon behind others and at the latest with the next poll", async () => {
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  const mute = await database.pool.connect();
  await mute.query("begin; select from sealpost.announcing for update");
  const woken = startWaking();
  const first = await publish(database.pool, accountId, '{"id":"m-1","status":"succeeded"}');
  await woken(1);
  const second = await publish(database.pool, accountId, '{"id":"m-2","status":"succeeded"}');
  expect((await woken(2)).map(({ deliveryId }) => deliveryId)).toEqual([first, second]);
  mute.release(true);
});

test("of a transaction with many jobs only the first is told with what it wakes", async () => {
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  const listening = await listen();
  const { client, commit } = await begin(database.pool);
  for (let n = 0; n < 5; n++) await publish(client, accountId, `{"id":"many-${n}","status":"succeeded"}`);
  await commit();
  const told = (await listening.heard()).map((text) => JSON.parse(text));
  expect(told).toEqual([{ count: 1, job: expect.anything(), wakes: expect.anything() }, { count: 1 }]);
  listening.stop();
  await startWaking()(5);
});

test("is told of a delivery once, and not again by its job", async () => {
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  const woken = startWaking();
  await publish(database.pool, accountId, '{"id":"t-0","status":"succeeded"}');
  await woken(1);
  const ids = [];
  for (let n = 1; n <= 20; n++)
    ids.push(await publish(database.pool, accountId, `{"id":"t-${n}","status":"succeeded"}`));
  await expect.poll(() => countJobs(database.pool)).toBe(0);
  expect(
    (await woken(21))
      .slice(1)
      .map(({ deliveryId }) => deliveryId)
      .sort(),
  ).toEqual(ids.sort());
});

test("looks as ever when somebody tells what is no wake-up", async () => {
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  const woken = startWaking();
  await publish(database.pool, accountId, '{"id":"f-0","status":"succeeded"}');
  await woken(1);
  for (const told of ["", "no JSON", "null", "[]", '{"wakes":7}', '{"wakes":{"ids":["x"],"lanes":["1"]}}']) {
    await database.pool.query("select pg_notify('jobs:insert', $1)", [told]);
  }
  const id = await publish(database.pool, accountId, '{"id":"f-1","status":"succeeded"}');
  expect((await woken(2))[1]?.deliveryId).toBe(id);
});

test("ignores jobs that somebody made by hand", async () => {
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  for (const payload of [
    null,
    [],
    { ids: "all" },
    { ids: ["x", 7, null, "{}", "01a1f7ca-e1a9-4f60-9da2-4fd69a9a3458"], lanes: ["l"] },
  ]) {
    await database.pool.query("select graphile_worker.add_job('deliver', $1::json)", [
      JSON.stringify(payload),
    ]);
  }
  const id = await publish(database.pool, accountId, '{"id":"h-1","status":"succeeded"}');
  expect((await startWaking()(1)).map(({ deliveryId }) => deliveryId)).toEqual([id]);
});

test("stops when it is asked to while its runner is still starting", async () => {
  const ends: unknown[] = [];
  const wakeups = createWakeups({
    queue: openQueue(),
    wake: async () => undefined,
    onRunnerEnded: (error) => ends.push(error),
    random: Math.random,
  });
  wakeups.start();
  await wakeups.stop();
  expect(ends).toEqual([]);
});

test("goes on after graphile-worker's cleanup of tasks without jobs", async () => {
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  const woken = startWaking();
  await publish(database.pool, accountId, '{"id":"w-before","status":"succeeded"}');
  await woken(1);
  const graphile = await makeWorkerUtils({ pgPool: database.pool });
  await expect.poll(() => countJobs(database.pool)).toBe(0);
  await graphile.cleanup({ tasks: ["GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES", "DELETE_PERMAFAILED_JOBS"] });
  await graphile.release();
  await publish(database.pool, accountId, '{"id":"w-after","status":"succeeded"}');
  expect(await woken(2)).toHaveLength(2);
});

test("is not kept from a delivery by whoever tells of its job with another one", async () => {
  const woken = startWaking();
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  await publish(database.pool, accountId, '{"id":"k-0","status":"succeeded"}');
  await woken(1);
  const wakes = { ids: ["01a1f7ca-e1a9-7f60-9da2-4fd69a9a3458"], accounts: [accountId], lanes: ["1"] };
  // Of the job before, and of those to come.
  const tell = async () => {
    await database.pool.query(
      `select pg_notify('jobs:insert', json_build_object('job', last.id + n, 'wakes', $1::json)::text)
       from pg_sequence_last_value(pg_get_serial_sequence('graphile_worker._private_jobs', 'id')) as last (id),
         generate_series(0, 5) as n`,
      [JSON.stringify(wakes)],
    );
    return (await woken(1)).length;
  };
  // Told again and again: a first look may have found k-0 before anybody listened.
  await expect.poll(tell).toBe(7);
  const id = await publish(database.pool, accountId, '{"id":"k-1","status":"succeeded"}');
  expect((await woken(8)).at(-1)?.deliveryId).toBe(id);
});

describe("looks begin where everything before has been fetched", () => {
  let bound: JobsBound;
  const wakeFromBound = () => {
    bound = new JobsBound(20, 100);
    return startWaking(openQueue(bound));
  };

  /** Publishes and takes one after the other until the bound has passed `after`. Returns how many that were. */
  async function moveOn(
    woken: (count: number) => Promise<unknown>,
    before: number,
    after: string,
  ): Promise<number> {
    const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
    let count = before;
    while (bound.from <= after) {
      await publish(database.pool, accountId, `{"id":"on-${count}","status":"succeeded"}`);
      await woken(++count);
    }
    return count;
  }

  test("and no earlier, and what a long transaction commits behind that is found when it ends", async () => {
    const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
    const woken = wakeFromBound();
    const { client, commit } = await begin(database.pool);
    const late = await publish(client, accountId, '{"id":"late","status":"succeeded"}');
    const { rows } = await client.query<{ at: string }>(
      `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at`,
    );
    const count = await moveOn(woken, 0, rows[0]!.at);
    expect((await woken(count)).map(({ deliveryId }) => deliveryId)).not.toContain(late);
    await commit();
    expect((await woken(count + 1)).at(-1)?.deliveryId).toBe(late);
  });

  test("though there is always more than a look may take, and then no further than that", async () => {
    bound = new JobsBound(0, 100);
    const clock = { at: "2026-01-01T00:00:09.000000Z" };
    const fake = {
      query: async () => ({ rows: [{ ...clock, adding: [] }] }),
    } as unknown as typeof database.pool;
    const full = async (atMs: number) => {
      bound.beginLook();
      await bound.endLook(
        Array.from({ length: 100 }, (_, n) => new Date(atMs - (n % 7))),
        fake,
      );
    };
    const atMs = Date.parse("2026-01-01T00:00:05Z");
    for (let n = 0; n < 6; n++) await full(atMs + n);
    expect(bound.from).toBe("2026-01-01T00:00:05.005000Z");
    // Not beyond the moment before which all have ended.
    for (let n = 0; n < 3; n++) await full(atMs + 60_000);
    expect(bound.from).toBe(clock.at);
  });

  test("and a job that was given back behind that is found all the same", async () => {
    const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
    bound = new JobsBound(20, 100, 20);
    const woken = startWaking(openQueue(bound));
    const count = await moveOn(woken, 0, "-infinity");
    const id = "01a1f7ca-e1a9-7f60-9da2-4fd69a9a3458";
    await database.pool.query(
      `insert into graphile_worker._private_jobs (task_id, run_at, payload)
       select id, now() - interval '1 hour', $1 from graphile_worker._private_tasks where identifier = 'deliver'`,
      [JSON.stringify({ ids: [id], lanes: ["1"], accounts: [accountId] })],
    );
    expect((await woken(count + 1)).map(({ deliveryId }) => deliveryId)).toContain(id);
  });

  test("and begin anew when the database's clock was set back", async () => {
    const woken = wakeFromBound();
    const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
    await moveOn(woken, 0, "-infinity");
    const passed = bound.from;
    bound.learnClock(Date.parse(passed) + 1);
    expect(bound.from >= passed).toBe(true);
    bound.learnClock(Date.parse(passed) - 1_000);
    expect(bound.from).toBe("-infinity");
    const before = (await woken(1)).length;
    const ids = await publishMany(
      database.pool,
      [accountId, accountId],
      ['{"id":"back-1","status":"succeeded"}', '{"id":"back-2","status":"succeeded"}'],
      [null, null],
    );
    const found = await woken(before + 2);
    expect(found.map(({ deliveryId }) => deliveryId)).toEqual(expect.arrayContaining(ids));
  });

  test("so that a look takes no longer while somebody holds a snapshot", async () => {
    const woken = wakeFromBound();
    const holding = await database.pool.connect();
    await holding.query("begin isolation level repeatable read; select 1");
    await database.pool.query(
      `insert into graphile_worker._private_jobs (task_id, run_at, payload)
       select id, clock_timestamp(), '{}' from graphile_worker._private_tasks, generate_series(1, 5000)
       where identifier = 'deliver'`,
    );
    await expect.poll(() => countJobs(database.pool)).toBe(0);
    await moveOn(woken, 0, bound.from);
    const read = async (from: string) => {
      const { rows } = await database.pool.query<{ "QUERY PLAN": [{ Plan: Record<string, number> }] }>(
        `explain (analyze, buffers, format json) select from graphile_worker._private_jobs
         where is_available and priority = 0 and run_at >= '${from}' order by priority, run_at limit 100`,
      );
      const { Plan: plan } = rows[0]!["QUERY PLAN"][0];
      return plan["Shared Hit Blocks"]! + plan["Shared Read Blocks"]!;
    };
    expect(await read("-infinity")).toBeGreaterThan(100);
    expect(await read(bound.from)).toBeLessThan(50);
    holding.release(true);
  });
});
