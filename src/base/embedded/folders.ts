import { createHash } from "node:crypto";
import { chmod, chown, lstat, mkdir, realpath, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type Account, canEnter } from "./account.ts";

/** The folders of an embedded server. */
export type Folders = {
  /** The database cluster, as created by initdb. */
  readonly data: string;
  /** Whether the account that PostgreSQL runs as can open `data` by its path. */
  readonly isReachable: boolean;
  /** Sockets by which owners detect each other. */
  readonly owners: string;
  /** The server's socket. The folder's mode 0700 keeps other users out. */
  readonly sockets: string;
};

/** The server listens on no port: this is in its socket's name. */
export const PORT = 5432;
/** A socket path is limited to 103 bytes on macOS, 107 on Linux; our longest name in the folder takes 18. */
const SOCKET_FOLDER_BYTES_MAX = 84;

export function dataFolderIn(dataDir: string): string {
  return join(dataDir, "data");
}

/** Creates the folders and makes the account their owner. */
export async function prepareFolders(dataDir: string, account: Account | null): Promise<Folders> {
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
  return { data: dataFolderIn(root), isReachable, owners, sockets };
}

/** Removes what is outside the data folder, with rmdir, so that a folder in use stays. */
export async function leaveFolders({ data, sockets }: Folders): Promise<void> {
  if (dirname(sockets) !== dirname(data)) await rmdir(sockets).catch(() => undefined);
}

/**
 * The path by which a process started inside `folder` opens it. On Linux a process can always use its working
 * directory, even below a home folder that its account may not enter.
 */
export function nameFromInside(folder: string, isReachable: boolean): string {
  return isReachable ? folder : "/proc/self/cwd";
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
