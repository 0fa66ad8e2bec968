import { randomBytes } from "node:crypto";
import { link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Config, readConfig } from "../base/config/config.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { UsageError } from "./output.ts";

/** The files in STATE_DIR, beside the embedded database. */
const SECRETS_KEY_FILE = "secrets-key";
const DATABASE_URL_FILE = "database-url";
const SETTINGS_FILE = "settings.json";
const RECEIVER_PORT_FILE = "receiver-port";

/** The key that encrypts stored secrets and, while it is rotated, the one that they are read with, too. */
export async function secretsKeyOf(config: Config): Promise<SecretsKey> {
  const key = config.secretsKey?.export() ?? (await ownSecretsKey(config.stateDir));
  return config.secretsKeyPrevious === null ? key : [key, config.secretsKeyPrevious.export()];
}

/** In development: generated once and kept in the state folder, readable only by this user. */
async function ownSecretsKey(stateDir: string): Promise<Uint8Array> {
  const text = (await readIn(stateDir, SECRETS_KEY_FILE)) ?? (await createSecretsKey(stateDir));
  const key = Buffer.from(text, "base64");
  if (key.length === 32) return key;
  throw new UsageError(`${join(stateDir, SECRETS_KEY_FILE)} does not contain a 32-byte key in base64.`);
}

/** When several processes do this at once, one creates the file and all get its text. */
async function createSecretsKey(stateDir: string): Promise<string> {
  const path = join(stateDir, SECRETS_KEY_FILE);
  const text = randomBytes(32).toString("base64");
  const draft = `${path}-${randomBytes(6).toString("hex")}`;
  try {
    await mkdir(stateDir, { recursive: true });
    await writeFile(draft, text, { mode: 0o600, flag: "wx" });
    // A link appears whole or not at all, and never replaces an existing file.
    await link(draft, path);
    return text;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw unusable(stateDir, error);
    return await readFile(path, "utf8");
  } finally {
    await rm(draft, { force: true });
  }
}

/** Tells other commands the URL of the embedded database that `start` runs, and the settings that it runs with. */
export async function writeOwnDatabase(
  stateDir: string,
  databaseUrl: string,
  settings: Readonly<Record<string, string>>,
): Promise<void> {
  await mkdir(stateDir, { recursive: true });
  await writeIn(stateDir, SETTINGS_FILE, JSON.stringify(settings, null, 2));
  await writeIn(stateDir, DATABASE_URL_FILE, databaseUrl);
}

const writeIn = (stateDir: string, name: string, text: string) =>
  writeFile(join(stateDir, name), text, { mode: 0o600 });

/** Tells other commands where the API listens, which the settings may leave open, and what is offered to receivers. */
export async function writeRunning(
  stateDir: string,
  settings: Readonly<Record<string, string>>,
  apiPort: string,
  offeredPort: number | null,
): Promise<void> {
  await writeIn(stateDir, SETTINGS_FILE, JSON.stringify({ ...settings, PORT: apiPort }, null, 2));
  if (offeredPort !== null) await writeIn(stateDir, RECEIVER_PORT_FILE, `${offeredPort}`);
}

/** The port that the `start` on this state folder allows a receiver on this machine; null: none, or none runs. */
export async function offeredPortOf({ stateDir }: Config): Promise<number | null> {
  const text = await readIn(stateDir, RECEIVER_PORT_FILE);
  return text === null ? null : Number(text);
}

/** After a `start` that was killed the files stay, and nothing answers at the URL. */
export async function removeOwnDatabase(stateDir: string): Promise<void> {
  for (const name of [DATABASE_URL_FILE, SETTINGS_FILE, RECEIVER_PORT_FILE])
    await rm(join(stateDir, name), { force: true });
}

/**
 * The configuration of a command. Beside a `start` with a database of its own it has that one's settings, except where
 * its own environment says otherwise: what the service accepts, its commands accept.
 */
export async function commandConfigOf(env: Readonly<Record<string, string | undefined>>): Promise<Config> {
  const config = readConfig(env);
  if (config.databaseUrl !== null) return config;
  const settings = await readIn(config.stateDir, SETTINGS_FILE);
  return settings === null ? config : readConfig({ ...JSON.parse(settings), ...env });
}

/** @throws UsageError when DATABASE_URL is unset and no `start` runs on this state folder */
export async function databaseUrlOf({ databaseUrl, stateDir }: Config): Promise<string> {
  const url = databaseUrl ?? (await readIn(stateDir, DATABASE_URL_FILE));
  if (url) return url;
  throw new UsageError(
    `DATABASE_URL is unset, and no embedded database runs in ${stateDir}: set it, or run \`npm start\`.`,
  );
}

/**
 * Null when there is no such file.
 * @throws UsageError when this user cannot use the folder or the file
 */
async function readIn(stateDir: string, name: string): Promise<string | null> {
  try {
    return await readFile(join(stateDir, name), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw unusable(stateDir, error);
  }
}

function unusable(stateDir: string, cause: unknown): UsageError {
  const { code } = cause as NodeJS.ErrnoException;
  return new UsageError(`This user cannot use the folder ${stateDir} (STATE_DIR): ${code}.`, { cause });
}
