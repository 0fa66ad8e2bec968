import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdir, rm, stat } from "node:fs/promises";
import { createConnection, createServer } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";

/** The OS account that PostgreSQL runs as when we are root. */
export type Account = { readonly uid: number; readonly gid: number };

/** The environment of every child process; ours holds SECRETS_KEY and is not passed on. */
export const CHILD_ENVIRONMENT = { PATH: "/usr/bin:/bin:/usr/sbin:/sbin", LC_ALL: "C", TZ: "UTC" } as const;

const execute = promisify(execFile);

/** Runs a program to its end as that account; null: as ourselves. @throws Error when it fails */
export async function runAs(
  account: Account | null,
  program: string,
  args: readonly string[],
  cwd = "/",
): Promise<void> {
  await execute(program, args, { ...account, cwd, env: CHILD_ENVIRONMENT });
}

const LENT_ACCOUNTS = ["postgres", "nobody"] as const;

/** PostgreSQL refuses to run as root: then the folder's owner, `postgres` or `nobody`. Null if we are not root. */
export async function lendAccount(existingDataFolder: string): Promise<Account | null> {
  if (process.getuid?.() !== 0) return null;
  const owner = await stat(existingDataFolder).catch(() => null);
  if (owner !== null && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  for (const name of LENT_ACCOUNTS) {
    const account = await findAccount(name);
    if (account !== null) return account;
  }
  throw new Error(
    `PostgreSQL cannot run as root, and there is no account named ${LENT_ACCOUNTS.join(" or ")} to run it as. ` +
      "Start as a regular user, or set DATABASE_URL.",
  );
}

/** `id` knows every account source (files, LDAP, macOS directory); /etc/passwd does not. */
async function findAccount(name: string): Promise<Account | null> {
  try {
    const [uid, gid] = await Promise.all([execute("id", ["-u", name]), execute("id", ["-g", name])]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return null;
  }
}

/** Whether the account can enter the folder. Tried for real, because ACLs and mounts count too. */
export async function canEnter(folder: string, account: Account | null): Promise<boolean> {
  const entering = runAs(account, "/bin/sh", ["-c", 'cd -- "$1"', "sh", folder]).then(() => true);
  return await entering.catch(() => false);
}

const OWNER_SOCKET = /^o-[0-9a-f]{8}\.sock$/;
const ANSWER_TIMEOUT_MS = 2000;

/** Another live process owns this folder. */
export class FolderInUseError extends Error {
  override readonly name = "FolderInUseError";
}

/**
 * Claims a folder for the lifetime of this process, to tell a second start from a restart after a crash. Each owner
 * listens on a socket of its own, which the kernel closes however it dies, and only then looks for others that answer:
 * of two simultaneous starts at most one wins. A pid file can be stale, and Node has no flock.
 * @throws FolderInUseError if another live process has claimed it.
 */
export async function claimFolder(folder: string, dataDir: string): Promise<{ release(): Promise<void> }> {
  const name = `o-${randomBytes(4).toString("hex")}.sock`;
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.end(`process ${process.pid}`);
  });
  server.unref();
  server.listen(join(folder, name));
  await once(server, "listening");
  const release = () => server[Symbol.asyncDispose]();
  try {
    for (const other of await readdir(folder)) {
      if (other === name || !OWNER_SOCKET.test(other)) continue;
      const owner = await askOwner(join(folder, other));
      if (owner !== null) {
        throw new FolderInUseError(
          `The database in ${dataDir} is in use by another running process (${owner}). ` +
            "Stop it, or choose another folder.",
        );
      }
      await rm(join(folder, other), { force: true });
    }
  } catch (error) {
    await release();
    throw error;
  }
  return { release };
}

/** The owner's description of itself; null if nobody listens there any more. */
async function askOwner(path: string): Promise<string | null> {
  const socket = createConnection(path);
  try {
    await once(socket, "connect", { signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) });
  } catch {
    socket.destroy();
    return null;
  }
  // A busy owner does not answer, but the kernel accepts the connection.
  socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
  return (await text(socket).catch(() => "")) || "it does not respond";
}
