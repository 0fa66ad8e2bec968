import { lendAccount } from "./account.ts";
import { findBinaries } from "./binaries.ts";
import { createCluster, DATABASE_USER } from "./cluster.ts";
import { dataFolderIn, leaveFolders, PORT, prepareFolders } from "./folders.ts";
import { endOrphan } from "./orphan.ts";
import { claimFolder } from "./ownership.ts";
import { launchServer } from "./server.ts";

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
