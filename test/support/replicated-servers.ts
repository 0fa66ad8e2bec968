// A primary with streaming standbys, all of them real servers of their own.
import { execFile } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { migrate } from "../../src/base/database/migrate.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/base/embedded/embedded.ts";
import type { TestDatabase } from "./database.ts";
import { makeThrowAwayFolder } from "./throw-away-folder.ts";

const run = promisify(execFile);
const SETTINGS = { fsync: "off", full_page_writes: "off", max_connections: "300" };

/** `drop` does nothing: it ends with the servers. */
export type ReplicatedServer = TestDatabase & {
  /** As when its machine loses power. */
  kill(): Promise<void>;
  /** It crashes, and its supervisor starts it again as what it was. */
  crash(): Promise<void>;
  /** Starts it again, as a standby of `primary`. Its URL stays. */
  follow(primary: Pick<TestDatabase, "url">): Promise<void>;
};

export type ReplicatedServers = {
  /** Migrated. */
  readonly primary: ReplicatedServer;
  readonly standby: ReplicatedServer;
  /** With the first of them. */
  readonly standbys: readonly ReplicatedServer[];
  stop(): Promise<void>;
};

export type ReplicationWish = {
  readonly standbys?: number;
  /** No commit is acknowledged before the first standby has it. */
  readonly isSynchronous?: boolean;
  /** Of the primary, while it is one. */
  readonly settings?: Readonly<Record<string, string>>;
  /** By what address the standbys follow the primary at this one. */
  readonly lineTo?: (primaryUrl: string) => Promise<string>;
};

/** The standbys are copies of the stopped primary's folder, as a base backup is. */
export async function startReplicatedServers(wish: ReplicationWish = {}): Promise<ReplicatedServers> {
  const { standbys: count = 1, isSynchronous = false, settings = {}, lineTo = async (url) => url } = wish;
  const servers = await Promise.all(Array.from({ length: count + 1 }, (_, n) => prepareServer(n)));
  const [primary, ...standbys] = servers as [Server, ...Server[]];
  const stop = async () => {
    for (const server of servers.reverse()) await server.remove();
  };
  try {
    await primary.start({});
    await migrate({ databaseUrl: primary.url });
    await primary.stop();
    for (const standby of standbys) {
      // With their owner: PostgreSQL may run as another user than we.
      await run("cp", ["-a", join(primary.folder, "data"), join(standby.folder, "data")]);
    }
    await primary.start({ ...settings, ...(isSynchronous && { synchronous_standby_names: nameOf(1) }) });
    const url = await lineTo(primary.url);
    for (const standby of standbys) await standby.follow({ url });
    return { primary, standby: standbys[0]!, standbys, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Server = ReplicatedServer & {
  readonly folder: string;
  start(settings: Readonly<Record<string, string>>): Promise<void>;
  stop(): Promise<void>;
  remove(): Promise<void>;
};

const nameOf = (number: number) => `server_${number}`;

async function prepareServer(number: number): Promise<Server> {
  const folder = await makeThrowAwayFolder();
  const nativeFolder = process.env.TEST_POSTGRES_NATIVE_FOLDER;
  const version = nativeFolder === undefined ? {} : { nativeFolder };
  let running: EmbeddedPostgres | null = null;
  let startedWith: Readonly<Record<string, string>> = {};
  let url = "";
  let pool: pg.Pool | null = null;
  const start = async (settings: Readonly<Record<string, string>>) => {
    startedWith = settings;
    running = await startEmbeddedPostgres({
      ...version,
      dataDir: folder,
      settings: { ...SETTINGS, ...settings },
    });
    url = running.databaseUrl;
  };
  const stop = async () => {
    await running?.stop();
    running = null;
  };
  const kill = async () => {
    const [pid] = (await readFile(join(folder, "data", "postmaster.pid"), "utf8")).split("\n");
    process.kill(Number(pid), "SIGKILL");
    await running?.ended;
    await stop();
  };
  return {
    folder,
    get url() {
      return url;
    },
    get pool() {
      if (pool === null) {
        pool = new pg.Pool({ connectionString: url, max: 5 });
        pool.on("error", () => undefined);
      }
      return pool;
    },
    start,
    stop,
    kill,
    crash: async () => {
      await kill();
      await start(startedWith);
    },
    follow: async (primary) => {
      await writeFile(join(folder, "data", "standby.signal"), "");
      await start({ primary_conninfo: `${connectionTo(primary.url)} application_name=${nameOf(number)}` });
    },
    drop: async () => undefined,
    remove: async () => {
      await pool?.end();
      await stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The URL as PostgreSQL's own client library takes it. */
function connectionTo(databaseUrl: string): string {
  const url = new URL(databaseUrl);
  return `host=${url.searchParams.get("host") ?? url.hostname} port=${url.port} user=${url.username}`;
}
