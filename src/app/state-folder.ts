import { randomBytes } from "node:crypto";
import { link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Config, readConfig } from "../base/config/config.ts";
import { UsageError } from "./output.ts";

/**
 * The 32-byte key that encrypts stored secrets: the configured one or, in development, one that is generated once and
 * kept in the state folder, readable only by this user.
 */
export async function secretsKeyOf(config: Config): Promise<Uint8Array> {
  if (config.secretsKey) return config.secretsKey.export();
  const path = join(config.stateDir, "secrets-key");
  const text = await inFolder(
    config.stateDir,
    async () => (await readIfExists(path)) ?? (await createOnce(path, randomBytes(32).toString("base64"))),
  );
  const key = Buffer.from(text, "base64");
  if (key.length !== 32) throw new UsageError(`${path} does not contain a 32-byte key in base64.`);
  return key;
}

/** Tells other commands the URL of the embedded database that `start` runs, and the settings that it runs with. */
export async function writeOwnDatabase(
  stateDir: string,
  databaseUrl: string,
  settings: Readonly<Record<string, string>>,
): Promise<void> {
  await mkdir(stateDir, { recursive: true });
  await writeFile(settingsPath(stateDir), JSON.stringify(settings, null, 2), { mode: 0o600 });
  await writeFile(databaseUrlPath(stateDir), databaseUrl, { mode: 0o600 });
}

/** After a `start` that was killed the files stay, and nothing answers at the URL. */
export async function removeOwnDatabase(stateDir: string): Promise<void> {
  await rm(databaseUrlPath(stateDir), { force: true });
  await rm(settingsPath(stateDir), { force: true });
}

/**
 * The configuration of a command. Beside a `start` with a database of its own it has that one's settings, except where
 * its own environment says otherwise: what the service accepts, its commands accept.
 */
export async function commandConfigOf(env: Readonly<Record<string, string | undefined>>): Promise<Config> {
  const config = readConfig(env);
  if (config.databaseUrl !== null) return config;
  const settings = await inFolder(config.stateDir, () => readIfExists(settingsPath(config.stateDir)));
  return settings === null ? config : readConfig({ ...JSON.parse(settings), ...env });
}

/** @throws UsageError when DATABASE_URL is unset and no `start` runs on this state folder */
export async function databaseUrlOf(config: Config): Promise<string> {
  const read = () => readIfExists(databaseUrlPath(config.stateDir));
  const url = config.databaseUrl ?? (await inFolder(config.stateDir, read));
  if (url) return url;
  throw new UsageError(
    `DATABASE_URL is unset, and no embedded database runs in ${config.stateDir}: set it, or run \`npm start\`.`,
  );
}

/** @throws UsageError when this user cannot use the folder or a file in it */
async function inFolder<T>(stateDir: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    throw new UsageError(`This user cannot use the folder ${stateDir} (STATE_DIR): ${code}.`, {
      cause: error,
    });
  }
}

function settingsPath(stateDir: string): string {
  return join(stateDir, "settings.json");
}

function databaseUrlPath(stateDir: string): string {
  return join(stateDir, "database-url");
}

/** When several processes do this at once, one creates the file and all get its text. */
async function createOnce(path: string, text: string): Promise<string> {
  const draft = `${path}-${randomBytes(6).toString("hex")}`;
  await mkdir(join(path, ".."), { recursive: true });
  await writeFile(draft, text, { mode: 0o600, flag: "wx" });
  try {
    // A link appears whole or not at all, and never replaces an existing file.
    await link(draft, path);
    return text;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    return await readFile(path, "utf8");
  } finally {
    await rm(draft);
  }
}

async function readIfExists(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}
