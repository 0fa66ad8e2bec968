// While somebody holds a snapshot nothing that was updated or deleted since can be cleaned away. The bench's case
// `held-snapshot` times that for half an hour; this is its short form. It counts the blocks that the server reads for
// each statement, which no slow machine changes: none may need more, the more has been done.
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { migrate } from "../../src/base/database/migrate.ts";
import { Cluster } from "../faults/harness/cluster.ts";
import { OwnPostgres } from "../faults/harness/own-postgres.ts";
import { patientSignal } from "../support/time-limits.ts";

const MEASURED = 500;
/** What goes on before it is measured again. */
const MEANWHILE = 6_000;
const IN_FLIGHT = 16;
/** Only what comes at least once for so many deliveries: the leader looks at everything, but seldom. */
const DELIVERIES_PER_CALL = 20;
/** Where there were few, a level more of an index. */
const BLOCKS_MORE = 15;

let postgres: OwnPostgres;
let cluster: Cluster;
let publishOne: (n: number) => Promise<void>;

beforeAll(async () => {
  postgres = await OwnPostgres.start({ settings: { shared_preload_libraries: "pg_stat_statements" } });
  await migrate({ databaseUrl: postgres.url });
  cluster = await Cluster.start({ databaseUrl: postgres.url });
  await cluster.pool.query("create extension pg_stat_statements");
  const { accountId } = await cluster.createAccount();
  const key = await cluster.createApiKey(accountId, ["analyses:publish"]);
  const { url } = await cluster.startApi();
  publishOne = async (n) => {
    const response = await fetch(new URL("/v1/analyses", url), {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        "idempotency-key": `k-${n}`,
      },
      body: `{"analysis":{"id":"a-${n}","status":"succeeded"}}`,
      signal: patientSignal(15_000),
    });
    expect(response.status, await response.text()).toBe(202);
  };
});
afterAll(async () => {
  await cluster?.close();
  await postgres?.close();
});

/** Begins a transaction that sees what is there now, and goes on seeing it. */
async function hold(): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: postgres.url,
    options: "-c idle_in_transaction_session_timeout=0",
  });
  client.on("error", () => undefined);
  await client.connect();
  await client.query("begin isolation level repeatable read; select 1");
  return client;
}

async function deliver(first: number, count: number): Promise<void> {
  let next = first;
  const publishOneByOne = async () => {
    while (next < first + count) await publishOne(next++);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, publishOneByOne));
  await cluster.drain(30_000);
}

/** Blocks that a call of each statement reads while so many are delivered, of those that come so often. */
async function blocksPerCall(first: number, calls: number): Promise<ReadonlyMap<string, number>> {
  await cluster.pool.query("select pg_stat_statements_reset()");
  await deliver(first, MEASURED);
  const { rows } = await cluster.pool.query<{ text: string; blocks: number }>(
    `select regexp_replace(left(query, 100), '\\s+', ' ', 'g') as text,
       sum(shared_blks_hit + shared_blks_read)::float8 / sum(calls) as blocks
     from pg_stat_statements
     where toplevel and dbid = (select oid from pg_database where datname = current_database())
     group by 1 having sum(calls) >= $1`,
    [calls],
  );
  return new Map(rows.map(({ text, blocks }) => [text, blocks]));
}

test("no statement reads more and more while a snapshot is held", async () => {
  await deliver(0, 1_000);
  const holders = [await hold(), await hold()];
  // This one has published, and forgets to commit.
  const { rows } = await cluster.pool.query<{ id: string }>("select id from sealpost.accounts");
  await holders[1]!.query('select sealpost.publish_analysis($1, \'{"id":"held","status":"succeeded"}\')', [
    rows[0]!.id,
  ]);
  // Looks begin where everything before has been fetched, a second or two back: first until there is as much.
  await deliver(1_000, MEANWHILE / 2);
  // The slower the machine, the more often come statements that time brings: these may be seldom still.
  const before = await blocksPerCall(5_000, 1);
  await deliver(10_000, MEANWHILE);
  const after = await blocksPerCall(20_000, MEASURED / DELIVERIES_PER_CALL);
  expect(before.size).toBeGreaterThan(3);
  const grown = [...after].filter(([text, blocks]) => blocks > 2 * (before.get(text) ?? 0) + BLOCKS_MORE);
  expect(grown.map(([text, blocks]) => `${before.get(text)} → ${blocks}: ${text}`)).toEqual([]);
  for (const holder of holders) await holder.end();
});
