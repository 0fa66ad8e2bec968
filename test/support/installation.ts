// What tests write to a database and read from its tables: the only place that knows the tables, except for the tests
// of the SQL itself.
import { randomBytes } from "node:crypto";
import type { ClientBase, Pool, QueryResultRow } from "pg";
import { createAccount, insertUser, type StoredUser } from "../../src/accounts/accounts-sql.ts";
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { scopes as everyScope } from "../../src/base/model/api-keys.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { rotateSigningSecret } from "../../src/delivery/signing-secrets-sql.ts";

type Database = Pool | ClientBase;

export const SECRETS_KEY = Buffer.alloc(32, 7);

/** An account with a signing secret and, given a URL, an endpoint. */
export async function createTestAccount(
  { pool }: { readonly pool: Pool },
  endpointUrl?: string,
): Promise<{ accountId: string; secret: string }> {
  const { accountId, signingSecret } = await createAccount(pool, "test", SECRETS_KEY);
  if (endpointUrl !== undefined) await setEndpoint(pool, accountId, endpointUrl);
  return { accountId, secret: signingSecret };
}

/** A user of the account, whose name is unique. */
export async function createTestUser(database: Database, accountId: string): Promise<StoredUser> {
  const name = `user ${randomBytes(4).toString("hex")}`;
  const email = `${name.replace(" ", ".")}@example.com`;
  const created = await insertUser(database, {
    account_id: accountId,
    idp_user_id: `idp|${name}`,
    email,
    name,
    image_url: null,
  });
  if (created === null) throw new Error(`There is no account ${accountId}.`);
  return created;
}

/** `accountId` null: a staff key. For the test environment unless `env` says otherwise. */
export async function createTestKey(
  pool: Pool,
  accountId: string | null,
  scopes: readonly string[] = everyScope,
  env: Record<string, string> = {},
): Promise<{ apiKey: string; keyId: string }> {
  const wish = { accountId, name: null, scopes, expiresInSeconds: null };
  return await createApiKey(pool, readConfig(env), wish);
}

/** Returns the new secret; the previous one stays valid for `overlapSeconds`, and an older one ends. */
export async function rotateSecret(
  database: Database,
  accountId: string,
  overlapSeconds = 60,
): Promise<string> {
  const rotation = { overlapSeconds, endsPrevious: true };
  const rotated = await rotateSigningSecret(database, accountId, rotation, SECRETS_KEY);
  if (rotated === "rotation_in_progress") throw new Error("a rotation that ends others was refused");
  return rotated.secret;
}

/** An account without a signing secret, with an endpoint if given: for what fails before the POST. */
export async function insertAccount(database: Database, endpointUrl?: string): Promise<string> {
  const { id } = await insertRow(database, "accounts", { name: "test" });
  if (endpointUrl !== undefined) await insertEndpoint(database, id, endpointUrl);
  return id;
}

/** The target is not checked. */
export async function insertEndpoint(database: Database, accountId: string, url: string): Promise<void> {
  await insertRow(database, "endpoints", { account_id: accountId, url });
}

/** The SQL form that a pipeline uses. */
export async function publish(
  database: Database,
  accountId: string,
  analysis: string,
  webhookUrl: string | null = null,
): Promise<string> {
  const { rows } = await database.query<{ id: string }>(
    "select sealpost.publish_analysis($1, $2, $3) as id",
    [accountId, analysis, webhookUrl],
  );
  return rows[0]!.id;
}

export async function publishMany(
  database: Database,
  accountIds: string[],
  analyses: string[],
  webhookUrls: (string | null)[],
): Promise<string[]> {
  const { rows } = await database.query<{ ids: string[] }>(
    "select sealpost.publish_analyses($1, $2, $3) as ids",
    [accountIds, analyses, webhookUrls],
  );
  return rows[0]!.ids;
}

/** Analyses of ids that nobody waits for. */
export async function publishAny(database: Database, accountId: string, count: number): Promise<void> {
  await database.query(
    `select sealpost.publish_analysis($1, json_build_object('id', gen_random_uuid(), 'status', 'succeeded'))
     from generate_series(1, $2::integer)`,
    [accountId, count],
  );
}

/** Log entries only, all succeeded: the first is the newest, each next one a millisecond older. */
export async function insertLog(
  database: Database,
  accountId: string,
  count: number,
  more: {
    readonly younger?: number;
    readonly name?: string;
    readonly isReplayable?: boolean;
    readonly spaceId?: string;
  } = {},
): Promise<void> {
  await database.query(
    `insert into sealpost.deliveries (id, account_id, event, status, reason, analysis_id, space_id)
     select sealpost.uuid_v7(now() - (n - $3::integer) * interval '1 millisecond'), $1, 'analysis.succeeded', $5, $6,
       'l-' || n || $4, $7
     from generate_series(1, $2::integer) as n`,
    [
      accountId,
      count,
      more.younger ?? 0,
      more.name ?? "",
      more.isReplayable ? "abandoned" : "succeeded",
      more.isReplayable ? "no_target" : null,
      more.spaceId ?? null,
    ],
  );
}

/** The grants of a pipeline's role: only the two functions. */
export async function createPipelineRole(pool: Pool): Promise<{ role: string; drop(): Promise<unknown> }> {
  const role = `pipeline_${randomBytes(4).toString("hex")}`;
  await pool.query(`create role ${role}; grant usage on schema sealpost to ${role};
    grant execute on function sealpost.publish_analysis, sealpost.publish_analyses to ${role}`);
  return { role, drop: () => pool.query(`drop owned by ${role}; drop role ${role}`) };
}

/** As a dispatcher and its SQL know them. */
export async function allowTargets(database: Database, targets: readonly string[]): Promise<void> {
  await changeRows(database, "settings", {}, { unsafe_allowed_targets: targets });
}

/** Makes them deliveries whose dispatchers died twice, which go to quarantine. */
export async function makeSuspect(database: Database, deliveryIds?: readonly string[]): Promise<void> {
  const where = deliveryIds === undefined ? {} : { delivery_id: deliveryIds };
  await changeRows(database, "open_deliveries", where, { interruptions: 2 });
}

/** Makes all secrets undecryptable. */
export async function spoilSecrets(database: Database): Promise<void> {
  await changeRows(database, "signing_secrets", {}, { sealed: Buffer.alloc(1) });
}

/** Removes what is due, and leaves the log alone. */
export async function forgetOpen(database: Database, deliveryIds?: readonly string[]): Promise<void> {
  await deleteRows(database, "open_deliveries", deliveryIds && { delivery_id: deliveryIds });
}

/** `firstDay`: a date as PostgreSQL reads it. */
export async function makePartitionsFrom(database: Database, firstDay: string, days: number): Promise<void> {
  await database.query("select sealpost.make_partitions($1::date, $2)", [firstDay, days]);
}

/** Drops the partition of the day that many days from today, and returns its name. */
export async function dropPartitionAhead(database: Database, table: string, days: number): Promise<string> {
  const { rows } = await database.query<{ name: string }>(
    "select $1 || to_char((now() at time zone 'UTC')::date + $2::integer, '_YYYYMMDD') as name",
    [table, days],
  );
  await database.query(`drop table sealpost.${rows[0]!.name}`);
  return rows[0]!.name;
}

/** Leaves a partition, such as `bodies_20200101`, as a drop does that met this transaction, which can see it still. */
export async function leaveDetaching(pool: Pool, name: string): Promise<Transaction> {
  const reader = await begin(
    pool,
    "set transaction isolation level repeatable read; select count(*) from sealpost.deliveries, sealpost.bodies",
  );
  const table = name.replace(/_\d{8}$/, "");
  const detaching = `alter table sealpost.${table} detach partition sealpost.${name} concurrently`;
  const client = await pool.connect();
  try {
    await client.query("set statement_timeout = 200");
    const { code } = await client.query(detaching).catch((error) => error);
    if (code !== "57014") throw new Error(`a snapshot did not hold it up: ${code}`);
  } finally {
    client.release(true);
  }
  return reader;
}

/**
 * PostgreSQL's statistics hold all that the pools' idle sessions have done when this resolves. Left alone, a session
 * tells it once a second at most, when it has been idle for ten, or some time after its client has closed it.
 */
export async function flushStatistics(...pools: readonly Pool[]): Promise<void> {
  for (const pool of pools) {
    const idle = await Promise.all(Array.from({ length: pool.idleCount }, () => pool.connect()));
    for (const session of idle) {
      await session.query("select pg_stat_force_next_flush()");
      session.release();
    }
  }
}

/** Entries read from each of our indexes. */
export async function readIndexReads(database: Database): Promise<ReadonlyMap<string, number>> {
  const { rows } = await database.query<{ name: string; reads: number }>(
    `select indexrelname as name, idx_tup_read::float8 as reads from pg_stat_user_indexes
     where schemaname = 'sealpost'`,
  );
  return new Map(rows.map(({ name, reads }) => [name, reads]));
}

/** Every insert into the table fails while `work` runs. */
export async function refusingRows<T>(pool: Pool, table: string, work: () => Promise<T>): Promise<T> {
  await pool.query(
    `alter table sealpost.${table} add constraint refused check (account_id is null) not valid`,
  );
  try {
    return await work();
  } finally {
    await pool.query(`alter table sealpost.${table} drop constraint refused`);
  }
}

/** The table is missing while `work` runs. */
export async function withoutTable<T>(pool: Pool, table: string, work: () => Promise<T>): Promise<T> {
  await pool.query(`alter table sealpost.${table} rename to put_away`);
  try {
    return await work();
  } finally {
    await pool.query(`alter table sealpost.put_away rename to ${table}`);
  }
}

/** An open transaction; ending it twice is allowed. */
type Transaction = {
  readonly client: ClientBase;
  commit(): Promise<void>;
  rollback(): Promise<void>;
};

/** Begins one on its own connection; `sql` runs first. */
export async function begin(pool: Pool, sql = "select"): Promise<Transaction> {
  const client = await pool.connect();
  await client.query(`begin; ${sql}`);
  let hasEnded = false;
  const end = async (how: "commit" | "rollback") => {
    if (hasEnded) return;
    hasEnded = true;
    await client.query(how);
    client.release();
  };
  return { client, commit: () => end("commit"), rollback: () => end("rollback") };
}

/** Locks the table until the transaction ends. */
export async function lockTable(pool: Pool, table: string): Promise<Transaction> {
  return await begin(pool, `lock table sealpost.${table} in access exclusive mode`);
}

/** The pids of sessions that wait for a lock. */
export async function findWaiting(pool: Pool): Promise<readonly number[]> {
  const { rows } = await pool.query<{ pid: number }>(
    "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
  );
  return rows.map(({ pid }) => pid);
}

/** Resolves to the pids of sessions that wait for a lock, once there are at least `count`. */
export async function untilSomebodyWaits(pool: Pool, count = 1): Promise<readonly number[]> {
  for (;;) {
    const pids = await findWaiting(pool);
    if (pids.length >= count) return pids;
  }
}

/** Terminates the sessions with these pids, or everybody else's. */
export async function endSessions(pool: Pool, pids?: readonly number[]): Promise<void> {
  await pool.query(
    `select pg_terminate_backend(pid) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and ($1::integer[] is null or pid = any ($1))`,
    [pids ?? null],
  );
}

/** Columns and their values; in a condition, null means null and an array means any of them. */
type Values = Readonly<Record<string, unknown>>;

/** Rows of one of our tables, or, by its qualified name, of another schema's, ordered by the first column. */
export async function rowsOf(
  database: Database,
  table: string,
  where: Values = {},
): Promise<QueryResultRow[]> {
  const { text, values } = conditions(where);
  return (await database.query(`select * from ${nameOf(table)} where ${text} order by 1`, values)).rows;
}

/** The only one. */
export async function rowOf(database: Database, table: string, where: Values = {}): Promise<QueryResultRow> {
  const [row, ...others] = await rowsOf(database, table, where);
  if (row === undefined || others.length > 0)
    throw new Error(`${table}: not one row, ${JSON.stringify(where)}`);
  return row;
}

export async function countRows(database: Database, table: string, where: Values = {}): Promise<number> {
  const { text, values } = conditions(where);
  const counting = `select count(*)::integer as n from ${nameOf(table)} where ${text}`;
  return (await database.query<{ n: number }>(counting, values)).rows[0]!.n;
}

/** Those that have a word anywhere in a row. */
export async function tablesWith(database: Database, word: string): Promise<string[]> {
  const { rows } = await database.query<{ name: string }>(
    `select c.oid::regclass::text as name from pg_class as c
     where c.relkind = 'r' and c.relnamespace::regnamespace::text in ('sealpost', 'workspace', 'graphile_worker')`,
  );
  const found: string[] = [];
  for (const { name } of rows) {
    const finding = `select from ${name} as t where position($1 in t::text) > 0 limit 1`;
    if ((await database.query(finding, [word])).rowCount !== 0)
      found.push(name.replace(/_\d{8}$/, "").replace(/^sealpost\./, ""));
  }
  return found.sort();
}

export async function insertRow(database: Database, table: string, row: Values): Promise<QueryResultRow> {
  const columns = Object.keys(row);
  const places = columns.map((_, n) => `$${n + 1}`);
  const inserting = `insert into ${nameOf(table)} (${columns}) values (${places}) returning *`;
  return (await database.query(inserting, Object.values(row))).rows[0]!;
}

export async function changeRows(
  database: Database,
  table: string,
  where: Values,
  to: Values,
): Promise<void> {
  const { text, values } = conditions(where);
  const changes = Object.keys(to).map((column, n) => `${column} = $${values.length + n + 1}`);
  await database.query(`update ${nameOf(table)} set ${changes} where ${text}`, [
    ...values,
    ...Object.values(to),
  ]);
}

export async function deleteRows(database: Database, table: string, where: Values = {}): Promise<void> {
  const { text, values } = conditions(where);
  await database.query(`delete from ${nameOf(table)} where ${text}`, values);
}

function nameOf(table: string): string {
  return table.includes(".") ? table : `sealpost.${table}`;
}

function conditions(where: Values): { text: string; values: unknown[] } {
  const columns = Object.entries(where);
  const texts = columns.map(([column, value], n) =>
    Array.isArray(value) ? `${column} = any ($${n + 1})` : `${column} is not distinct from $${n + 1}`,
  );
  return { text: ["true", ...texts].join(" and "), values: Object.values(where) };
}
