import { afterEach, beforeEach, expect, test } from "vitest";
import { Wakeups } from "../../src/dispatch/wakeups.ts";
import { createWakeupPool } from "../../src/store/wakeup-pool.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { insertAccount } from "../support/publishing.ts";

const MANY = 2_000;
let database: TestDatabase;
let accountId: string;

beforeEach(async () => {
  database = await createTestDatabase();
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});
afterEach(() => database.drop());

// As VACUUM finds it in a quiet night: without a page, or with pages that held jobs once and a count of no rows.
test.each(["empty", "emptied"])(
  "planned for a queue that is %s, wake-ups are looked up and never all read",
  async (queue) => {
    if (queue === "emptied") {
      const before = startWaking();
      await publishMany("before", 100);
      await before.untilDone(100);
      await before.stop();
    }
    await database.pool.query("vacuum (analyze, truncate off) graphile_worker._private_jobs");
    const waking = startWaking();
    // Two that end together, so that the statement for several is planned, too.
    await publishMany("first", 2);
    await waking.untilDone(2);
    await publishMany("then", MANY);
    await waking.untilDone(2 + MANY);
    await waking.stop();

    // A session tells what it has read when it ends.
    await expect.poll(async () => (await readJobReads()).byIndex).toBeGreaterThanOrEqual(MANY);
    const { tableScans, byIndex } = await readJobReads();
    expect(byIndex).toBeLessThan(6 * MANY);
    expect(tableScans).toBe(0);
  },
);

function startWaking() {
  const pool = createWakeupPool({
    databaseUrl: database.url,
    connectionsMax: 4,
    applicationName: "test wakeups",
    onError: () => undefined,
  });
  let woken = 0;
  const wakeups = new Wakeups({
    pool,
    wake: async (waiting) => {
      woken += waiting.length;
    },
    onRunnerEnded: () => undefined,
  });
  wakeups.start();
  return {
    /** Resolves when so many were woken. */
    untilDone: (count: number) => expect.poll(() => woken, { timeout: 10_000 }).toBe(count),
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

async function readJobReads(): Promise<{ readonly tableScans: number; readonly byIndex: number }> {
  const { rows } = await database.pool.query(
    `select seq_scan::float8 as "tableScans", idx_tup_fetch::float8 as "byIndex"
     from pg_stat_user_tables where schemaname = 'graphile_worker' and relname = '_private_jobs'`,
  );
  return rows[0];
}
