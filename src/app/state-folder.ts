import { randomBytes } from "node:crypto";
import { link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Config } from "../config/config.ts";
import { UsageError } from "./usage-error.ts";

/**
 * The key that stored secrets are encrypted with, 32 bytes: the configured one or, in development, one that is
 * made once and kept in the state folder, readable by this user only.
 */
export async function secretsKeyOf(config: Config): Promise<Uint8Array> {
  if (config.secretsKey) return config.secretsKey.export();
  const path = join(config.stateDir, "secrets-key");
  const text = await inFolder(
    config.stateDir,
    async () => (await readIfThere(path)) ?? (await makeOnce(path, randomBytes(32).toString("base64"))),
  );
  const key = Buffer.from(text, "base64");
  if (key.length !== 32) throw new UsageError(`${path} does not hold a key of 32 bytes in base64.`);
  return key;
}

/** Where `start` says under which URL its embedded database is reached, for the commands beside it. */
export async function writeDatabaseUrl(stateDir: string, databaseUrl: string): Promise<void> {
  await mkdir(stateDir, { recursive: true });
  await writeFile(databaseUrlPath(stateDir), databaseUrl, { mode: 0o600 });
}

/** Removed at the end of `start`; one that was killed leaves it, and then nobody answers there. */
export async function removeDatabaseUrl(stateDir: string): Promise<void> {
  await rm(databaseUrlPath(stateDir), { force: true });
}

/** @throws UsageError when DATABASE_URL is unset and no `start` runs on this state folder. */
export async function databaseUrlOf(config: Config): Promise<string> {
  const read = () => readIfThere(databaseUrlPath(config.stateDir));
  const url = config.databaseUrl ?? (await inFolder(config.stateDir, read));
  if (url) return url;
  throw new UsageError(
    `DATABASE_URL is unset, and no embedded database runs in ${config.stateDir}: run \`npm start\` beside this.`,
  );
}

/** @throws UsageError when the folder, or what is in it, cannot be used by this user */
async function inFolder<T>(stateDir: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    throw new UsageError(
      `The folder that STATE_DIR names, ${stateDir}, cannot be used by this user (${code}).`,
      { cause: error },
    );
  }
}

function databaseUrlPath(stateDir: string): string {
  return join(stateDir, "database-url");
}

/** Of several processes that come at once, one makes the file and all get its text. */
async function makeOnce(path: string, text: string): Promise<string> {
  const draft = `${path}-${randomBytes(6).toString("hex")}`;
  await mkdir(join(path, ".."), { recursive: true });
  await writeFile(draft, text, { mode: 0o600, flag: "wx" });
  try {
    // A link is there whole or not at all, and never replaces one that is there.
    await link(draft, path);
    return text;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    return await readFile(path, "utf8");
  } finally {
    await rm(draft);
  }
}

async function readIfThere(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}
