import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chown, mkdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Account, CHILD_ENVIRONMENT, claimFolder, lendAccount } from "./account.ts";
import { type Binaries, findBinaries } from "./binaries.ts";
import { dataFolderIn, type Folders, leaveFolders, nameFromInside, PORT, prepareFolders } from "./folders.ts";
import { endOrphan, launchServer } from "./server.ts";

const run = promisify(execFile);

/** The superuser's name. No password: only those who may enter the socket folder can connect. */
export const DATABASE_USER = "sealpost";

/** Creates the cluster if there is none, as a draft that is then renamed: an interrupted start leaves no half of it. */
export async function createCluster(
  { data, isReachable }: Folders,
  account: Account | null,
  binaries: Binaries,
  isThrowAway: boolean,
): Promise<void> {
  if (existsSync(join(data, "PG_VERSION"))) return;
  const draft = `${data}.new`;
  await rm(draft, { recursive: true, force: true });
  await mkdir(draft, { mode: 0o700 });
  if (account !== null) await chown(draft, account.uid, account.gid);
  const options = ["--pgdata", nameFromInside(draft, isReachable), "--username", DATABASE_USER];
  options.push("--encoding=UTF8", "--locale=C", "--data-checksums");
  options.push("--auth-local=trust", "--auth-host=reject");
  if (isThrowAway) options.push("--no-sync");
  try {
    await run(binaries.initdb, options, { ...account, cwd: draft, env: CHILD_ENVIRONMENT });
  } catch (cause) {
    throw new Error(`PostgreSQL's initdb failed in ${draft}: ${(cause as Error).message}`, { cause });
  }
  await rename(draft, data);
}

export type EmbeddedPostgresOptions = {
  /** The server's own folder, created if missing. Data persists across starts. */
  readonly dataDir: string;
  /** Receives every line of the server's log, which has no statements or values. */
  readonly log?: (line: string) => void;
  /** PostgreSQL settings, as in postgresql.conf. `fsync: "off"` is for data that may be lost. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The `native` folder of another PostgreSQL version's platform package; default: the installed one. */
  readonly nativeFolder?: string;
};

export type EmbeddedPostgres = {
  /** A unix socket, reachable only by root and the server's own account on this machine. */
  readonly databaseUrl: string;
  /** Resolves when the server has exited, by `stop` or by itself. */
  readonly ended: Promise<void>;
  /** Disconnects all sessions and stops the server; resolves when it has exited. */
  stop(): Promise<void>;
};

const DEFAULT_SETTINGS = {
  max_connections: "200",
  // The job queue's tables turn over many times a minute.
  autovacuum_naptime: "10s",
  // Keep customer data out of logs: otherwise errors quote the row and the statement.
  log_error_verbosity: "terse",
  log_min_error_statement: "panic",
};

/**
 * Starts a PostgreSQL server as the current user, or, under root, as another account. It stops when this process
 * ends, however it ends; if a server was left over all the same, it is stopped first.
 *
 * @throws FolderInUseError if another live process uses the folder; otherwise Error with PostgreSQL's own message.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const { dataDir, log = () => undefined } = options;
  const settings = { ...DEFAULT_SETTINGS, ...options.settings };
  const account = await lendAccount(dataFolderIn(dataDir));
  const folders = await prepareFolders(dataDir, account);
  const claim = await claimFolder(folders.owners, dataDir);
  const leave = async () => {
    await claim.release();
    await leaveFolders(folders);
  };
  try {
    const binaries = await findBinaries(account, options.nativeFolder ?? null);
    await endOrphan(folders, log);
    await createCluster(folders, account, binaries, options.settings?.fsync === "off");
    const server = await launchServer({ folders, account, binaries, settings, log });
    return {
      databaseUrl: socketUrl(folders.sockets),
      ended: server.ended,
      stop: async () => {
        await server.stop();
        await leave();
      },
    };
  } catch (error) {
    await leave();
    throw error;
  }
}

/** `new URL` rejects an empty host, so the socket folder goes into the query, where the pg driver looks first. */
function socketUrl(socketFolder: string): string {
  return `postgres://${DATABASE_USER}@localhost:${PORT}/postgres?host=${encodeURIComponent(socketFolder)}`;
}
