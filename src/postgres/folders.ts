import { createHash } from "node:crypto";
import { chmod, chown, lstat, mkdir, realpath } from "node:fs/promises";
import { join } from "node:path";
import { type Account, canEnter } from "./account.ts";

/** What lies in the folder of an embedded server. */
export type Folders = {
  /** The database cluster itself, as initdb makes it. */
  readonly data: string;
  /** The sockets: the server's and the owner's. Its mode 0700 is what keeps strangers out. */
  readonly sockets: string;
};

/** A socket's path may be 103 bytes on macOS, 107 on Linux; our longest name behind the folder takes 18. */
const SOCKET_FOLDER_BYTES_MAX = 84;

export function dataFolderIn(dataDir: string): string {
  return join(dataDir, "data");
}

/** Makes the folders and gives them to the account; throws when that account could not enter them. */
export async function prepareFolders(dataDir: string, account: Account | null): Promise<Folders> {
  await makePrivate(dataDir, account);
  if (!(await canEnter(dataDir, account))) {
    throw new Error(
      `PostgreSQL cannot run as root, and the account it is lent (uid ${account?.uid}) may not enter ${dataDir}. Choose a folder outside of private home folders, such as /var/lib/sealpost, or start as an ordinary user.`,
    );
  }
  // Two spellings of one folder must not look like two.
  const root = await realpath(dataDir);
  const sockets = socketFolder(root);
  await makePrivate(sockets, account);
  return { data: dataFolderIn(root), sockets };
}

/** Beside the data while the path is short enough; else in /tmp, under a name that every start finds again. */
function socketFolder(root: string): string {
  const beside = join(root, "run");
  if (Buffer.byteLength(beside) <= SOCKET_FOLDER_BYTES_MAX) return beside;
  return `/tmp/sealpost-${createHash("sha256").update(root).digest("hex").slice(0, 16)}`;
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
