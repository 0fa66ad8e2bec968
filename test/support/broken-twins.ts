// The service without one of its guards. A test or a lab that claims to need the guard has to notice.
import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Pool } from "pg";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export type Change = {
  readonly path: string;
  /** What stands there, once, and what stands there without the guard. */
  readonly text: string;
  readonly without: string;
};

/** Works in a copy of everything that is in the repository or would be, as it is now. */
export async function inCopy<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "sealpost-twin-"));
  try {
    const { stdout } = await run("git", ["ls-files", "--cached", "--others", "--exclude-standard", "-z"], {
      cwd: ROOT,
      maxBuffer: 64 * 1024 * 1024,
    });
    for (const path of stdout.split("\0").filter((one) => one !== "" && one !== "node_modules")) {
      await cp(join(ROOT, path), join(folder, path), { recursive: true }).catch((error) => {
        // Deleted, and not yet committed.
        if (error.code !== "ENOENT") throw error;
      });
    }
    // With what was built and unpacked beside it, which the whole run wants.
    for (const name of ["node_modules", ".cache"]) await symlink(join(ROOT, name), join(folder, name), "dir");
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Works in the copy while these texts are changed. @throws Error if one is not there */
export async function without<T>(
  folder: string,
  changes: readonly Change[],
  work: () => Promise<T>,
): Promise<T> {
  const originals: [path: string, text: string][] = [];
  try {
    for (const change of changes) {
      const path = join(folder, change.path);
      const text = await readFile(path, "utf8");
      if (!text.includes(change.text)) throw new Error(`${change.path} no longer has ${change.text}`);
      originals.unshift([path, text]);
      await writeFile(
        path,
        text.replace(change.text, () => change.without),
      );
    }
    return await work();
  } finally {
    for (const [path, text] of originals) await writeFile(path, text);
  }
}

/** Gives the SQL functions of this name another text. Resolves to what they were. */
export async function redefine(
  pool: Pool,
  name: string,
  change: (text: string) => string,
): Promise<readonly string[]> {
  const { rows } = await pool.query<{ text: string }>(
    `select pg_get_functiondef(oid) as text from pg_proc
     where pronamespace = 'sealpost'::regnamespace and proname = $1`,
    [name],
  );
  for (const { text } of rows) await pool.query(change(text));
  return rows.map(({ text }) => text);
}
