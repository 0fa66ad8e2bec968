// PostgreSQL as in production: fsync on, synchronous commits, and the settings that docs/operating.md recommends.
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import pg from "pg";
import { createAccount } from "../../src/accounts/accounts-sql.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { migrate } from "../../src/base/database/migrate.ts";
import { startEmbeddedPostgres } from "../../src/base/embedded/embedded.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { writeSettings } from "../../src/publish/publish-call-sql.ts";
import { SECRETS_KEY } from "../support/installation.ts";

/** Several runs may share one server. */
const RUN = `bench_${randomBytes(4).toString("hex")}`;
/** The role that publishes: it has EXECUTE on the publishing functions, INSERT for the baselines, and nothing else. */
const PIPELINE = `${RUN}_pipeline`;
const TEMPLATE = `${RUN}_template`;

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
  /** Which PostgreSQL this is, and how it treats commits. */
  readonly description: string;
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
  /** pg_stat_statements is loaded: always in the embedded server. */
  readonly countsStatements: boolean;
  drop(): Promise<void>;
};

export type Accounts = {
  readonly count: number;
  readonly endpointUrl: (index: number) => string;
  /** Which analyses may name although it is not public, as in UNSAFE_ALLOWED_TARGETS. */
  readonly allowedTarget: string;
};

export async function startBenchServer(
  accounts: Accounts,
  settings: Readonly<Record<string, string>> = {},
): Promise<BenchServer> {
  const server = await startServer(settings);
  const urlOf = (name: string, user?: string) => {
    const url = new URL(server.databaseUrl);
    url.pathname = `/${name}`;
    if (user !== undefined) url.username = user;
    return url.href;
  };
  const admin = new pg.Pool({ connectionString: urlOf("postgres"), max: 1 });
  // The server cuts what is idle when it ends.
  admin.on("error", () => undefined);
  const { description, countsStatements } = await describeServer(admin);
  const password = decodeURIComponent(new URL(server.databaseUrl).password);
  await admin.query(`create role ${PIPELINE} login password ${pg.escapeLiteral(password)}`);
  await admin.query(`create database ${TEMPLATE}`);
  await migrate({ databaseUrl: urlOf(TEMPLATE) });
  const accountIds = await fillTemplate(urlOf(TEMPLATE), accounts, countsStatements);
  let databases = 0;

  return {
    accountIds,
    description: `${server.name} ${description}`,
    createDatabase: async () => {
      databases += 1;
      const name = `${RUN}_${databases}`;
      await admin.query(`create database ${name} template ${TEMPLATE}`);
      const pool = new pg.Pool({ connectionString: urlOf(name), max: 4, application_name: "bench" });
      pool.on("error", () => undefined);
      return {
        name,
        url: urlOf(name),
        publisherUrl: urlOf(name, PIPELINE),
        pool,
        countsStatements,
        drop: async () => {
          await pool.end();
          await admin.query(`drop database ${name} with (force)`);
        },
      };
    },
    stop: async () => {
      // What a case that failed has left is in the way of its role, too.
      const { rows } = await admin.query<{ datname: string }>(
        "select datname from pg_database where starts_with(datname, $1)",
        [RUN],
      );
      for (const { datname } of rows) await admin.query(`drop database ${datname} with (force)`);
      await admin.query(`drop role ${PIPELINE}`);
      await admin.end();
      await server.stop();
    },
  };
}

type Server = { readonly name: string; readonly databaseUrl: string; stop(): Promise<void> };

/** TEST_DATABASE_URL's, as it is set up, else an embedded one. The first must be on this machine: see /proc. */
async function startServer(settings: Readonly<Record<string, string>>): Promise<Server> {
  const given = process.env.TEST_DATABASE_URL;
  if (given) {
    if (Object.keys(settings).length > 0) throw new Error("TEST_DATABASE_URL's server has its own settings.");
    return { name: "TEST_DATABASE_URL:", databaseUrl: given, stop: async () => undefined };
  }
  const dataDir = await mkdtemp(join("/tmp", "sealpost-bench-"));
  const server = await startEmbeddedPostgres({ dataDir, settings: { ...SETTINGS, ...settings } });
  return {
    name: "embedded:",
    databaseUrl: server.databaseUrl,
    stop: async () => {
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

async function describeServer(
  admin: pg.Pool,
): Promise<{ readonly description: string; readonly countsStatements: boolean }> {
  const { rows } = await admin.query<{ name: string; setting: string }>(
    `select name, current_setting(name) as setting
     from unnest(array['server_version', 'fsync', 'synchronous_commit', 'shared_buffers', 'max_connections',
       'shared_preload_libraries']) as name`,
  );
  const { server_version, shared_preload_libraries, ...told } = Object.fromEntries(
    rows.map(({ name, setting }) => [name, setting]),
  );
  const settings = Object.entries(told).map(([name, setting]) => `${name} ${setting}`);
  return {
    description: [`PostgreSQL ${server_version}`, ...settings].join(", "),
    countsStatements: shared_preload_libraries?.includes("pg_stat_statements") ?? false,
  };
}

async function fillTemplate(url: string, accounts: Accounts, countsStatements: boolean): Promise<string[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const accountIds: string[] = [];
  await client.query("begin");
  for (let index = 0; index < accounts.count; index++) {
    const { accountId } = await createAccount(client, `Account ${index}`, SECRETS_KEY);
    await setEndpoint(client, accountId, accounts.endpointUrl(index));
    accountIds.push(accountId);
  }
  await writeSettings(client, {
    analysisBytesMax: readConfig({}).analysisBytesMax,
    unsafeAllowedTargets: [accounts.allowedTarget],
  });
  await client.query("commit");
  // In every database: pg_stat_statements shows what its own extension was made in.
  if (countsStatements) await client.query("create extension pg_stat_statements");
  // What the baselines fill is left alone when it is Sealpost's turn.
  await client.query(
    "create table public.plain (id text primary key, analysis text not null) with (autovacuum_enabled = false)",
  );
  await client.query(`grant insert on public.plain to ${PIPELINE}`);
  await client.query(`grant usage on schema sealpost to ${PIPELINE}`);
  await client.query(
    `grant execute on function sealpost.publish_analysis, sealpost.publish_analyses to ${PIPELINE}`,
  );
  await client.query("vacuum analyze");
  await client.end();
  return accountIds;
}
