// Released versions: what scripts/keep-release.ts kept of them, unpacked so that they can be run.
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

/**
 * The newest that was kept or, for upgrades, the newest of a version before the working copy's, if there is one.
 * Unpacked once for each archive, below .cache/. Any number of test runs may ask at once.
 */
export async function openRelease(wanted: "before ours" | "newest" = "before ours"): Promise<Release> {
  const ours = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as Manifest;
  const kept = keptVersions();
  const before = kept.filter((version) => compareVersions(version, ours.version) < 0);
  const version = (wanted === "newest" ? null : before.at(-1)) ?? kept.at(-1)!;
  const archive = archiveOf(version);
  const [bytes, its] = await Promise.all([
    readFile(archive),
    run("tar", ["-xzOf", archive, "package.json"]).then(({ stdout }) => JSON.parse(stdout) as Manifest),
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

/** In their order. */
export function keptVersions(): readonly string[] {
  return globSync("release-*.tar.gz", { cwd: import.meta.dirname })
    .map((name) => name.slice("release-".length, -".tar.gz".length))
    .toSorted(compareVersions);
}

/** Its path. */
export function archiveOf(version: string): string {
  return join(import.meta.dirname, `release-${version}.tar.gz`);
}

function compareVersions(one: string, other: string): number {
  return one.localeCompare(other, "en", { numeric: true });
}
