// A primary with a streaming standby, both real servers of their own.
import { execFile } from "node:child_process";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/postgres/embedded.ts";
import { migrate } from "../../src/store/migrate.ts";
import type { TestDatabase } from "./database.ts";
import { makeThrowAwayFolder } from "./throw-away-folder.ts";

const run = promisify(execFile);
const SETTINGS = { fsync: "off", full_page_writes: "off", max_connections: "100" };

export type ReplicatedServers = {
  /** Migrated; `drop` does nothing: it ends with the servers. */
  readonly primary: TestDatabase;
  readonly standby: TestDatabase;
  stop(): Promise<void>;
};

/** The standby is a copy of the stopped primary's folder, as a base backup is. */
export async function startReplicatedServers(): Promise<ReplicatedServers> {
  const folders = [await makeThrowAwayFolder(), await makeThrowAwayFolder()] as const;
  const servers: EmbeddedPostgres[] = [];
  const pools: pg.Pool[] = [];
  const start = async (dataDir: string, settings: Record<string, string>) => {
    const server = await startEmbeddedPostgres({ dataDir, settings: { ...SETTINGS, ...settings } });
    servers.push(server);
    return server;
  };
  const databaseOf = ({ databaseUrl }: EmbeddedPostgres): TestDatabase => {
    const pool = new pg.Pool({ connectionString: databaseUrl, max: 5 });
    pool.on("error", () => undefined);
    pools.push(pool);
    return { url: databaseUrl, pool, drop: async () => undefined };
  };
  const stop = async () => {
    for (const pool of pools) await pool.end();
    for (const server of servers.reverse()) await server.stop();
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  };
  try {
    const first = await start(folders[0], {});
    await migrate({ databaseUrl: first.databaseUrl });
    await servers.pop()?.stop();
    // With their owner: PostgreSQL may run as another user than we.
    await run("cp", ["-a", join(folders[0], "data"), join(folders[1], "data")]);
    await writeFile(join(folders[1], "data", "standby.signal"), "");
    const primary = await start(folders[0], {});
    const standby = await start(folders[1], { primary_conninfo: connectionTo(primary.databaseUrl) });
    return { primary: databaseOf(primary), standby: databaseOf(standby), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The URL as PostgreSQL's own client library takes it. */
function connectionTo(databaseUrl: string): string {
  const url = new URL(databaseUrl);
  return `host=${url.searchParams.get("host")} port=${url.port} user=${url.username}`;
}
