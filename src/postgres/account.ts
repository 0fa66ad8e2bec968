import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

/** The OS account that PostgreSQL runs as when we are root. */
export type Account = { readonly uid: number; readonly gid: number };

/** The environment of every child process; ours holds SECRETS_KEY and is not passed on. */
export const CHILD_ENVIRONMENT = { PATH: "/usr/bin:/bin:/usr/sbin:/sbin", LC_ALL: "C", TZ: "UTC" } as const;

const LENT_ACCOUNTS = ["postgres", "nobody"] as const;

/**
 * PostgreSQL refuses to run as root, so under root it gets another account: the owner of `existingDataFolder`,
 * else `postgres`, else `nobody`. Null if we are not root.
 */
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
    const [uid, gid] = await Promise.all([run("id", ["-u", name]), run("id", ["-g", name])]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return null;
  }
}

/** Whether the account can enter the folder. Tried for real, because ACLs and mounts count too. */
export async function canEnter(folder: string, account: Account | null): Promise<boolean> {
  try {
    await run("/bin/sh", ["-c", 'cd -- "$1"', "sh", folder], {
      ...account,
      cwd: "/",
      env: CHILD_ENVIRONMENT,
    });
    return true;
  } catch {
    return false;
  }
}
