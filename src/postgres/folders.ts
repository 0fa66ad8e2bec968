import { createHash } from "node:crypto";
import { chmod, chown, lstat, mkdir, realpath, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type Account, canEnter } from "./account.ts";

/** What belongs to an embedded server. */
export type Folders = {
  /** The database cluster itself, as initdb makes it. */
  readonly data: string;
  /** Whether the account that PostgreSQL runs under could open `data` by that path. */
  readonly isReachable: boolean;
  /** Where owners listen for each other. */
  readonly owners: string;
  /** Where the server listens. Its mode 0700 is what keeps strangers out. */
  readonly sockets: string;
};

/** A socket's path may be 103 bytes on macOS, 107 on Linux; our longest name behind the folder takes 18. */
const SOCKET_FOLDER_BYTES_MAX = 84;

export function dataFolderIn(dataDir: string): string {
  return join(dataDir, "data");
}

/** Makes the folders and gives them to the account. */
export async function prepareFolders(dataDir: string, account: Account | null): Promise<Folders> {
  await makePrivate(dataDir, account);
  // Two spellings of one folder must not look like two.
  const root = await realpath(dataDir);
  const isReachable = await canEnter(root, account);
  if (!isReachable && process.platform !== "linux") {
    throw new Error(
      `PostgreSQL cannot run as root, and the account it is lent (uid ${account?.uid}) may not enter ${root}. ` +
        "Choose a folder outside of private home folders, or start as an ordinary user.",
    );
  }
  const beside = join(root, "run");
  // Under a name that every start finds again.
  const away = `/tmp/sealpost-${createHash("sha256").update(root).digest("hex").slice(0, 16)}`;
  const owners = Buffer.byteLength(beside) <= SOCKET_FOLDER_BYTES_MAX ? beside : away;
  const sockets = isReachable ? owners : away;
  await makePrivate(owners, account);
  await makePrivate(sockets, account);
  return { data: dataFolderIn(root), isReachable, owners, sockets };
}

/** Takes away what lies outside of the data folder; rmdir, so that a folder somebody else uses again stays. */
export async function leaveFolders({ data, sockets }: Folders): Promise<void> {
  if (dirname(sockets) !== dirname(data)) await rmdir(sockets).catch(() => undefined);
}

/**
 * The name by which a process started inside `folder` opens it. Linux keeps the working folder of a process open
 * whatever lies above it, so that root can lend an account a folder below a home that it may not enter.
 */
export function nameFromInside(folder: string, isReachable: boolean): string {
  return isReachable ? folder : "/proc/self/cwd";
}

async function makePrivate(folder: string, account: Account | null): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o755 });
  const found = await lstat(folder);
  const expectedUid = account?.uid ?? process.getuid?.() ?? found.uid;
  const isOurs = found.uid === expectedUid || (account !== null && found.uid === 0);
  // In /tmp somebody else could have made the folder first, to listen in.
  if (!isOurs || !found.isDirectory()) {
    throw new Error(`${folder} belongs to somebody else (uid ${found.uid}) or is not a folder.`);
  }
  if (account !== null) await chown(folder, account.uid, account.gid);
  await chmod(folder, 0o700);
}
