import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createWakeupQueue } from "../../src/base/database/graphile-worker.ts";
import { createWakeups } from "../../src/delivery/wakeups.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { flushStatistics, insertAccount } from "../support/installation.ts";

const MANY = 2_000;
let database: TestDatabase;
let accountId: string;

beforeEach(async () => {
  // graphile-worker looks for jobs that were locked for hours first after a random part of a minute, and reads all for
  // it: not while the reads are counted here.
  vi.spyOn(Math, "random").mockReturnValue(0.999);
  database = await createTestDatabase();
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});
afterEach(async () => {
  vi.restoreAllMocks();
  await database.drop();
});

// As VACUUM finds it in a quiet night: without a page, or with pages that held jobs once and a count of no rows.
test.each(["empty", "emptied"])(
  "planned for a queue that is %s, wake-ups are looked up and never all read",
  async (queue) => {
    if (queue === "emptied") {
      const emptying = startWaking();
      await publishMany("before", 100);
      await emptying.untilDone(100);
      await emptying.stop();
    }
    await database.pool.query("vacuum (analyze, truncate off) graphile_worker._private_jobs");
    const waking = startWaking();
    // Two that end together, so that the statement for several is planned, too.
    await publishMany("first", 2);
    await waking.untilDone(2);
    const published = queue === "emptied" ? 102 : 2;
    const before = await waking.readsOnceDeleted(published);
    await publishMany("then", MANY);
    await waking.untilDone(2 + MANY);
    const after = await waking.readsOnceDeleted(published + MANY);
    await waking.stop();

    expect(after.byIndex - before.byIndex).toBeGreaterThanOrEqual(MANY);
    expect(after.tableScans - before.tableScans).toBe(0);
    expect(after.byIndex - before.byIndex).toBeLessThan(5 * MANY);
  },
);

function startWaking() {
  const queue = createWakeupQueue({
    databaseUrl: database.url,
    connectionsMax: 4,
    applicationName: "test wakeups",
    onError: () => undefined,
  });
  const { pool } = queue;
  let woken = 0;
  const wakeups = createWakeups({
    queue,
    wake: async (waiting) => {
      woken += waiting.length;
    },
    onRunnerEnded: () => undefined,
    random: Math.random,
  });
  wakeups.start();
  return {
    /** Resolves when so many were woken. */
    untilDone: (count: number) => expect.poll(() => woken).toBe(count),
    /** What was read by the time that so many were deleted, which is last, by whatever session it was. */
    readsOnceDeleted: async (count: number) => {
      const reads = async () => {
        await flushStatistics(pool, database.pool);
        return await readJobReads();
      };
      await expect.poll(async () => (await reads()).deleted).toBe(count);
      return await reads();
    },
    stop: async () => {
      await wakeups.stop();
      await pool.end();
    },
  };
}

/** One job each. */
async function publishMany(name: string, count: number): Promise<void> {
  await database.pool.query(
    `select sealpost.publish_analysis($1, format('{"id":"%s-%s","status":"succeeded"}', $2::text, i)::json)
     from generate_series(1, $3::integer) as i`,
    [accountId, name, count],
  );
}

type JobReads = { readonly tableScans: number; readonly byIndex: number; readonly deleted: number };

async function readJobReads(): Promise<JobReads> {
  const { rows } = await database.pool.query(
    `select seq_scan::float8 as "tableScans", idx_tup_fetch::float8 as "byIndex", n_tup_del::float8 as deleted
     from pg_stat_user_tables where schemaname = 'graphile_worker' and relname = '_private_jobs'`,
  );
  return rows[0];
}
