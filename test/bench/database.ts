// PostgreSQL as in production: fsync on, synchronous commits, and the settings that the README recommends.
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import pg from "pg";
import { startEmbeddedPostgres } from "../../src/postgres/embedded.ts";
import { createAccount } from "../../src/store/accounts.ts";
import { setEndpoint } from "../../src/store/endpoints.ts";
import { migrate } from "../../src/store/migrate.ts";
import { SECRETS_KEY } from "./processes/dispatcher.ts";

/** The role that publishes: it has EXECUTE on the publishing functions and nothing else. */
const PIPELINE = "pipeline";
const TEMPLATE = "bench_template";

const SETTINGS: Readonly<Record<string, string>> = {
  fsync: "on",
  synchronous_commit: "on",
  autovacuum_naptime: "10s",
  idle_in_transaction_session_timeout: "10s",
  shared_preload_libraries: "pg_stat_statements",
  "pg_stat_statements.max": "10000",
  track_wal_io_timing: "on",
};

export type BenchServer = {
  /** A database of its own, migrated, with the accounts in it. */
  createDatabase(): Promise<BenchDatabase>;
  readonly accountIds: readonly string[];
  stop(): Promise<void>;
};

export type BenchDatabase = {
  readonly name: string;
  /** As its owner: the dispatchers'. */
  readonly url: string;
  /** As the pipeline. */
  readonly publisherUrl: string;
  readonly pool: pg.Pool;
  drop(): Promise<void>;
};

export type Accounts = { readonly count: number; readonly endpointUrl: (index: number) => string };

export async function startBenchServer(
  accounts: Accounts,
  settings: Readonly<Record<string, string>> = {},
): Promise<BenchServer> {
  const dataDir = await mkdtemp(join("/tmp", "sealpost-bench-"));
  const server = await startEmbeddedPostgres({ dataDir, settings: { ...SETTINGS, ...settings } });
  const urlOf = (name: string, user?: string) => {
    const url = new URL(server.databaseUrl);
    url.pathname = `/${name}`;
    if (user !== undefined) url.username = user;
    return url.href;
  };
  const admin = new pg.Pool({ connectionString: urlOf("postgres"), max: 1 });
  // The server cuts what is idle when it ends.
  admin.on("error", () => undefined);
  await admin.query(`create role ${PIPELINE} login`);
  await admin.query("create extension pg_stat_statements");
  await admin.query(`create database ${TEMPLATE}`);
  await migrate({ databaseUrl: urlOf(TEMPLATE) });
  const accountIds = await fillTemplate(urlOf(TEMPLATE), accounts);
  let databases = 0;

  return {
    accountIds,
    createDatabase: async () => {
      databases += 1;
      const name = `bench_${databases}`;
      await admin.query(`create database ${name} template ${TEMPLATE}`);
      const pool = new pg.Pool({ connectionString: urlOf(name), max: 4, application_name: "bench" });
      pool.on("error", () => undefined);
      return {
        name,
        url: urlOf(name),
        publisherUrl: urlOf(name, PIPELINE),
        pool,
        drop: async () => {
          await pool.end();
          await admin.query(`drop database ${name} with (force)`);
        },
      };
    },
    stop: async () => {
      await admin.end();
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

async function fillTemplate(url: string, accounts: Accounts): Promise<string[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const accountIds: string[] = [];
  await client.query("begin");
  for (let index = 0; index < accounts.count; index++) {
    const { accountId } = await createAccount(client, `Account ${index}`, SECRETS_KEY);
    await setEndpoint(client, accountId, accounts.endpointUrl(index));
    accountIds.push(accountId);
  }
  await client.query("commit");
  // In every database: pg_stat_statements shows what its own extension was made in.
  await client.query("create extension pg_stat_statements");
  await client.query(`grant usage on schema sealpost to ${PIPELINE}`);
  await client.query(
    `grant execute on function sealpost.publish_analysis, sealpost.publish_analyses to ${PIPELINE}`,
  );
  await client.query("vacuum analyze");
  await client.end();
  return accountIds;
}
