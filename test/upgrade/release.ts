// The version before: what scripts/keep-release.ts kept of it, unpacked so that it can be run.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, globSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual, promisify } from "node:util";

const run = promisify(execFile);
export const ROOT = fileURLToPath(new URL("../..", import.meta.url));

const INSTALL = ["ci", "--omit=dev", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"];

type Manifest = { readonly version: string; readonly dependencies: Readonly<Record<string, string>> };

export type Release = {
  readonly version: string;
  readonly folder: string;
  /** Its program, for `node` to run. */
  readonly main: string;
};

/** Unpacked once for each archive, below .cache/. Any number of test runs may ask at once. */
export async function openRelease(): Promise<Release> {
  const archives = globSync("release-*.tar.gz", { cwd: import.meta.dirname });
  if (archives.length !== 1) throw new Error(`One release is kept, and here are ${archives.length}.`);
  const archive = join(import.meta.dirname, archives[0]!);
  const [bytes, its, ours] = await Promise.all([
    readFile(archive),
    run("tar", ["-xzOf", archive, "package.json"]).then(({ stdout }) => JSON.parse(stdout) as Manifest),
    readFile(join(ROOT, "package.json"), "utf8").then((text) => JSON.parse(text) as Manifest),
  ]);
  // While its dependencies are ours it finds them in our node_modules, further up.
  const needsOwn = !isDeepStrictEqual(its.dependencies, ours.dependencies);
  const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 12);
  const parent = join(ROOT, ".cache", "releases");
  const folder = join(parent, `${its.version}-${digest}${needsOwn ? "-with-packages" : ""}`);
  if (!existsSync(folder)) {
    await mkdir(parent, { recursive: true });
    const unfinished = await mkdtemp(join(parent, "unfinished-"));
    try {
      await run("tar", ["-xzf", archive, "-C", unfinished]);
      if (needsOwn) await run("npm", INSTALL, { cwd: unfinished });
      await rename(unfinished, folder).catch((error: NodeJS.ErrnoException) => {
        // Another run was faster, with the same.
        if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
      });
    } finally {
      await rm(unfinished, { recursive: true, force: true });
    }
  }
  return { version: its.version, folder, main: join(folder, "src", "main.ts") };
}
