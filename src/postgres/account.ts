import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

/** The account that PostgreSQL runs under when we are root. */
export type Account = { readonly uid: number; readonly gid: number };

/** Every process we start gets this and nothing of ours: our environment holds the secrets' key. */
export const CHILD_ENVIRONMENT = { PATH: "/usr/bin:/bin:/usr/sbin:/sbin", LC_ALL: "C", TZ: "UTC" } as const;

const LENT_ACCOUNTS = ["postgres", "nobody"] as const;

/**
 * PostgreSQL refuses to run as root, so root lends it another account: the one that already owns
 * `existingDataFolder`, else `postgres`, else `nobody`. Null when we are not root and need none.
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
    `PostgreSQL cannot run as root, and neither of the accounts ${LENT_ACCOUNTS.join(" and ")} exists here. ` +
      "Start as an ordinary user, or set DATABASE_URL.",
  );
}

/** `id` asks whatever holds the accounts (files, LDAP, macOS's directory), which reading /etc/passwd would not. */
async function findAccount(name: string): Promise<Account | null> {
  try {
    const [uid, gid] = await Promise.all([run("id", ["-u", name]), run("id", ["-g", name])]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return null;
  }
}

/** Whether the account can enter the folder: asked of the kernel, which also knows of ACLs and mounts. */
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
