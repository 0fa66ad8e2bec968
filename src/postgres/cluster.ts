import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chown, mkdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Account, CHILD_ENVIRONMENT } from "./account.ts";
import type { Binaries } from "./binaries.ts";
import { type Folders, nameFromInside } from "./folders.ts";

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
