import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, chown, lstat, mkdir, realpath, rename, rm, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type Account, canEnter, claimFolder, lendAccount, runAs } from "./account.ts";
import { findBinaries } from "./binaries.ts";
import { endOrphan, type Folders, launchServer, nameFromInside, PORT, type Server } from "./server.ts";

/** The superuser's name. No password: only those who may enter the socket folder can connect. */
const DATABASE_USER = "sealpost";

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

export type EmbeddedPostgres = Server & {
  /** A unix socket, reachable only by root and the server's own account on this machine. */
  readonly databaseUrl: string;
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
 * @throws FolderInUseError if another live process uses the folder; otherwise Error with PostgreSQL's own message.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const { dataDir, log = () => undefined } = options;
  const settings = { ...DEFAULT_SETTINGS, ...options.settings };
  const account = await lendAccount(join(dataDir, "data"));
  const folders = await prepareFolders(dataDir, account);
  const claim = await claimFolder(folders.owners, dataDir);
  const leave = async () => {
    await claim.release();
    // With rmdir, so that a folder in use stays.
    const { data, sockets } = folders;
    if (dirname(sockets) !== dirname(data)) await rmdir(sockets).catch(() => undefined);
  };
  try {
    const binaries = await findBinaries(account, options.nativeFolder ?? null);
    await endOrphan(folders, log);
    await createCluster(folders, account, binaries, options.settings?.fsync === "off");
    const server = await launchServer({ folders, account, binaries, settings, log });
    return {
      // `new URL` rejects an empty host, so the socket folder goes into the query, where the pg driver looks first.
      databaseUrl: `postgres://${DATABASE_USER}@localhost:${PORT}/postgres?host=${encodeURIComponent(folders.sockets)}`,
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

/** A socket path is limited to 103 bytes on macOS, 107 on Linux; our longest name in the folder takes 18. */
const SOCKET_FOLDER_BYTES_MAX = 84;

/** Creates the folders and makes the account their owner. */
async function prepareFolders(dataDir: string, account: Account | null): Promise<Folders> {
  await makePrivate(dataDir, account);
  // Two paths to one folder must not look like two folders.
  const root = await realpath(dataDir);
  const isReachable = await canEnter(root, account);
  if (!isReachable && process.platform !== "linux") {
    throw new Error(
      `PostgreSQL cannot run as root, and the account used instead (uid ${account?.uid}) may not enter ${root}. ` +
        "Choose a folder outside private home folders, or start as a regular user.",
    );
  }
  const beside = join(root, "run");
  // A stable name, so that every start finds it.
  const away = `/tmp/sealpost-${createHash("sha256").update(root).digest("hex").slice(0, 16)}`;
  const owners = Buffer.byteLength(beside) <= SOCKET_FOLDER_BYTES_MAX ? beside : away;
  const sockets = isReachable ? owners : away;
  await makePrivate(owners, account);
  await makePrivate(sockets, account);
  return { data: join(root, "data"), isReachable, owners, sockets };
}

async function makePrivate(folder: string, account: Account | null): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o755 });
  const found = await lstat(folder);
  const expectedUid = account?.uid ?? process.getuid?.() ?? found.uid;
  const isOurs = found.uid === expectedUid || (account !== null && found.uid === 0);
  // In /tmp another user could have created the folder first, to eavesdrop.
  if (!isOurs || !found.isDirectory()) {
    throw new Error(`${folder} belongs to another user (uid ${found.uid}) or is not a folder.`);
  }
  if (account !== null) await chown(folder, account.uid, account.gid);
  await chmod(folder, 0o700);
}

/** Creates the cluster if there is none, as a draft that is then renamed: an interrupted start leaves no half of it. */
async function createCluster(
  { data, isReachable }: Folders,
  account: Account | null,
  binaries: string,
  isThrowAway: boolean,
): Promise<void> {
  if (existsSync(join(data, "PG_VERSION"))) return;
  const draft = `${data}.new`;
  await rm(draft, { recursive: true, force: true });
  await mkdir(draft, { mode: 0o700 });
  if (account !== null) await chown(draft, account.uid, account.gid);
  const options = [
    ...["--pgdata", nameFromInside(draft, isReachable), "--username", DATABASE_USER],
    ...["--encoding=UTF8", "--locale=C", "--data-checksums", "--auth-local=trust", "--auth-host=reject"],
    ...(isThrowAway ? ["--no-sync"] : []),
  ];
  await runAs(account, join(binaries, "initdb"), options, draft).catch((cause) => {
    throw new Error(`PostgreSQL's initdb failed in ${draft}: ${cause.message}`, { cause });
  });
  await rename(draft, data);
}
