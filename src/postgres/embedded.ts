import { lendAccount } from "./account.ts";
import { findBinaries } from "./binaries.ts";
import { createCluster, DATABASE_USER } from "./cluster.ts";
import { dataFolderIn, leaveFolders, prepareFolders } from "./folders.ts";
import { endOrphan } from "./orphan.ts";
import { claimFolder } from "./ownership.ts";
import { launchServer, PORT } from "./server.ts";

export type EmbeddedPostgresOptions = {
  /** The server's own folder, made when missing. Its data stays there from one start to the next. */
  readonly dataDir: string;
  /** Gets every line of the server's log: errors without the statement and the values that caused them. */
  readonly log?: (line: string) => void;
  /** PostgreSQL settings, as in postgresql.conf. `fsync: "off"` is for data that may be lost. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The `native` folder of another PostgreSQL version's platform package; the installed one when left out. */
  readonly nativeFolder?: string;
};

export type EmbeddedPostgres = {
  /** Names a unix socket, so only this machine reaches it, and there only root and the server's own account. */
  readonly databaseUrl: string;
  /** Resolves when the server has ended, by `stop` or by itself. */
  readonly ended: Promise<void>;
  /** Cuts all sessions and ends the server; resolves when it is gone. */
  stop(): Promise<void>;
};

const DEFAULT_SETTINGS = {
  max_connections: "200",
  // The job queue's tables turn over many times a minute.
  autovacuum_naptime: "10s",
  // An analysis is no business of a log: without these, an error quotes the row and the statement it is about.
  log_error_verbosity: "terse",
  log_min_error_statement: "panic",
};

/**
 * Starts a PostgreSQL server of our own: as root under a lent account, else as the user we are. It ends when
 * this process ends, however it ends, and a server that was left over all the same is ended first.
 *
 * @throws FolderInUseError when another live process has the same folder; Error with PostgreSQL's own words otherwise.
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
    await endOrphan(folders.data, log);
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

/** `new URL` refuses an empty host, so the socket's folder goes into the query, where the pg driver looks first. */
function socketUrl(socketFolder: string): string {
  return `postgres://${DATABASE_USER}@localhost:${PORT}/postgres?host=${encodeURIComponent(socketFolder)}`;
}
