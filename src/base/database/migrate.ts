import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { AREAS } from "../model/areas.ts";
import { OtherCellError, refuseOtherCell, writeCell } from "./cells.ts";
import { migrateGraphileWorker } from "./graphile-worker.ts";
import { addressOf } from "./pools.ts";
import { describeLockHolder, tryToLockTable } from "./table-lock.ts";

export type MigrateOptions = {
  readonly databaseUrl: string;
  readonly log?: (line: string) => void;
  /** The cell that the database is of from then on; null or left out: it stays what it is. */
  readonly cell?: string | null;
  /** Those whose own files are applied, too; all when left out. */
  readonly areas?: readonly string[];
  /** By a file's name: what comes before it, in transactions of its own. It is called again if it did not end. */
  readonly before?: Readonly<Record<string, (client: pg.ClientBase) => Promise<void>>>;
  /** The folder of numbered SQL files; the project's own when left out. */
  readonly sqlDir?: string;
  /** How long to wait for another process that migrates; 10 minutes when left out. */
  readonly lockWaitMaxMs?: number;
};

/** A migration that cannot be applied. The database is as the last migration before it left it. */
export class MigrationError extends Error {
  override readonly name = "MigrationError";
}

/** `name`: in the folder, those of an area with its name in front: `workspace/0001_workspace.sql`. */
type MigrationFile = { readonly name: string; readonly text: string; readonly digest: string };

const PROJECT_SQL_DIR = fileURLToPath(new URL("../../../sql", import.meta.url));
const FILE_NAME = /^((?:[a-z]+\/)?\d{4})_[a-z0-9_]+\.sql$/;
/** For people: what the others make. */
const SHOWN_SCHEMA = "schema.sql";
/** Such a statement would end our transaction, and a failure after it would leave half a migration. */
const OWN_TRANSACTION = /^(begin|commit|rollback|start transaction)\s*;/im;

const LOCK_POLL_MS = 100;
const LOCK_SAID_EVERY_MS = 5_000;
/** Longer than any migration may take; beyond it the wait fails rather than hang a deployment for ever. */
const LOCK_WAIT_MAX_MS = 10 * 60_000;

/**
 * Brings the database to the newest schema: graphile-worker's own migrations, then each file of `sqlDir`, and of the
 * folders in it that are named like an area, that was not applied yet, in order and in a transaction of its own. Any
 * number of processes may call it at once; one works, the others wait. Files the database has and we do not know are a
 * newer version's, or those of an area that it had, and are left alone.
 *
 * @returns the names of the files that this call applied.
 * @throws MigrationError naming the file, the line and what PostgreSQL said.
 */
export async function migrate(options: MigrateOptions): Promise<readonly string[]> {
  const {
    databaseUrl,
    log = () => undefined,
    cell = null,
    areas = AREAS,
    before = {},
    sqlDir = PROJECT_SQL_DIR,
    lockWaitMaxMs = LOCK_WAIT_MAX_MS,
  } = options;
  const names = await readMigrationNames(areas, sqlDir);
  refuseWrongNames(names);
  const files = await Promise.all(names.map((name) => readMigrationFile(name, sqlDir)));
  return await withClient(databaseUrl, async (lock) => {
    await createOurTables(lock);
    await waitForLock(lock, lockWaitMaxMs, log);
    if (cell !== null) await refuseOtherCell(lock, cell).catch(explainCell);
    await migrateGraphileWorker(databaseUrl, log);
    return await withClient(databaseUrl, async (client) => {
      const everApplied = await readApplied(client);
      // Each folder is numbered by itself.
      const sets = Map.groupBy(files, ({ name }) => dirname(name)).values();
      const missing = [...sets].flatMap((set) => chooseMissing(set, everApplied));
      for (const file of missing) {
        await explained(Promise.resolve(before[file.name]?.(client)), `before ${file.name}`, null);
        log(`applying ${file.name}`);
        await applyInTime(client, file);
      }
      if (cell !== null) await writeCell(client, cell).catch(explainCell);
      return missing.map((file) => file.name);
    });
  });
}

function explainCell(error: unknown): never {
  throw error instanceof OtherCellError ? new MigrationError(error.message, { cause: error }) : error;
}

// A lock not granted in 0.8 s is given up, and the file begun again: everybody else queues behind us while we wait for
// it. And in a circle it is we who give way, not a claim: PostgreSQL looks for one after a second (deadlock_timeout).
const SESSION_SETTINGS = ["statement_timeout=0", "lock_timeout=800ms"];
const TRIES_MAX = 20;
/** A lock was not to be had in time, or a circle was found all the same. */
const IN_THE_WAY = ["55P03", "40P01"];

async function withClient<T>(databaseUrl: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    ...addressOf(databaseUrl, SESSION_SETTINGS),
    application_name: "sealpost migrate",
  });
  let lost: Error | null = null;
  // The query in flight rejects as well; this listener keeps the same event from ending the process.
  client.on("error", (error) => {
    lost = error;
  });
  await client.connect();
  try {
    return await work(client);
  } catch (error) {
    throw lost === null || error === lost ? error : new Error(String(error), { cause: lost });
  } finally {
    await client.end().catch(() => undefined);
  }
}

const OUR_TABLES = `
create schema if not exists sealpost;
create table if not exists sealpost.migration_lock ();
create table if not exists sealpost.migrations (
  name text primary key,
  applied_at timestamptz not null default now(),
  digest text not null
)`;

/** What `if not exists` says when another process makes the same at the same moment. */
const MADE_MEANWHILE = ["23505", "42P06", "42P07"];

/** Made before the lock can be taken: it is a lock of one of them. */
async function createOurTables(client: pg.Client): Promise<void> {
  for (;;) {
    try {
      await client.query(OUR_TABLES);
      return;
    } catch (error) {
      if (!(error instanceof pg.DatabaseError) || !MADE_MEANWHILE.includes(error.code ?? "")) throw error;
    }
  }
}

/** The names of all migrations that there are, in order: what a database has when it is up to date. */
export async function readMigrationNames(
  areas: readonly string[],
  sqlDir = PROJECT_SQL_DIR,
): Promise<readonly string[]> {
  const entries = await readdir(sqlDir, { withFileTypes: true });
  const isFolder = (area: string) => entries.some((entry) => entry.isDirectory() && entry.name === area);
  const sets = ["", ...areas.filter(isFolder)].map(async (folder) => {
    const found = await readdir(join(sqlDir, folder));
    const names = found.filter((name) => name.endsWith(".sql") && name !== SHOWN_SCHEMA).sort();
    if (names.length === 0) throw new MigrationError(`There are no migrations in ${join(sqlDir, folder)}.`);
    return names.map((name) => join(folder, name));
  });
  return (await Promise.all(sets)).flat();
}

function refuseWrongNames(names: readonly string[]): void {
  const numbers = new Set<string>();
  for (const name of names) {
    const number = FILE_NAME.exec(name)?.[1];
    if (number === undefined) throw new MigrationError(`${name} is not named like 0001_what_it_makes.sql.`);
    if (numbers.has(number)) throw new MigrationError(`Two migrations have the number ${number}.`);
    numbers.add(number);
  }
}

async function readMigrationFile(name: string, sqlDir: string): Promise<MigrationFile> {
  // A checkout with Windows line ends is the same migration.
  const text = (await readFile(join(sqlDir, name), "utf8")).replaceAll("\r\n", "\n");
  const own = OWN_TRANSACTION.exec(text);
  if (own !== null) {
    throw new MigrationError(
      `${name}, ${place(text, own.index)}: "${own[0]}" would end the transaction that each migration runs in.`,
    );
  }
  return { name, text, digest: createHash("sha256").update(text).digest("hex") };
}

/** Polls: waiting it would hold a snapshot, for which the other's `create index concurrently` would wait in turn. */
async function waitForLock(client: pg.Client, maxMs: number, log: (line: string) => void): Promise<void> {
  for (let waitedMs = 0; waitedMs < maxMs; waitedMs += LOCK_POLL_MS) {
    if (await tryToLockTable(client, "migration_lock")) return;
    if (waitedMs === 0) log("another process is migrating this database; waiting for it");
    if (waitedMs % LOCK_SAID_EVERY_MS === 0 && waitedMs > 0) {
      log(
        `still waiting after ${waitedMs / 1_000} s for ${await describeLockHolder(client, "migration_lock")}`,
      );
    }
    await sleep(LOCK_POLL_MS);
  }
  const holder = await describeLockHolder(client, "migration_lock");
  const waited = `over ${maxMs / 1_000} seconds`;
  throw new MigrationError(`Another process has been migrating this database for ${waited}: ${holder}.`);
}

/** The digests of what was applied, by file name. */
async function readApplied(client: pg.Client): Promise<Map<string, string>> {
  const { rows } = await client.query<{ name: string; digest: string }>(
    "select name, digest from sealpost.migrations",
  );
  return new Map(rows.map(({ name, digest }) => [name, digest]));
}

/** The files of one folder that are still to apply; throws when history was changed. */
function chooseMissing(
  files: readonly MigrationFile[],
  applied: ReadonlyMap<string, string>,
): readonly MigrationFile[] {
  const ours = new Set(files.map(({ name }) => name));
  const newestOfOurs = files.at(-1)!.name;
  const isOfThisFolder = (name: string) => FILE_NAME.test(name) && dirname(name) === dirname(newestOfOurs);
  const removed = [...applied.keys()].find(
    (name) => isOfThisFolder(name) && name < newestOfOurs && !ours.has(name),
  );
  if (removed !== undefined) {
    throw new MigrationError(
      `${removed} was applied to this database, but is not among the migrations any more.`,
    );
  }
  const newestApplied = files.findLast((file) => applied.has(file.name))?.name ?? "";
  for (const file of files) {
    const digest = applied.get(file.name);
    if (digest !== undefined && digest !== file.digest) {
      throw new MigrationError(
        `${file.name} was changed after it had been applied to this database. ` +
          "Undo the change and put it into a new file.",
      );
    }
    if (digest === undefined && file.name < newestApplied) {
      throw new MigrationError(
        `${file.name} comes before ${newestApplied}, which is applied already. Give it a later number.`,
      );
    }
  }
  return files.filter((file) => !applied.has(file.name));
}

async function applyInTime(client: pg.Client, file: MigrationFile): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await apply(client, file);
    } catch (error) {
      const { cause } = error as MigrationError;
      const isInTheWay = cause instanceof pg.DatabaseError && IN_THE_WAY.includes(cause.code ?? "");
      if (!isInTheWay || tries === TRIES_MAX) throw error;
      await client.query("rollback");
      await sleep(LOCK_POLL_MS);
    }
  }
}

async function apply(client: pg.Client, file: MigrationFile): Promise<void> {
  // The file and its record are one: applied without a record, the next start would apply it again.
  // After an error the session ends with us, and takes the open transaction back.
  await client.query("begin");
  await explained(client.query(file.text), file.name, file.text);
  const record = "insert into sealpost.migrations (name, digest) values ($1, $2)";
  await explained(client.query(record, [file.name, file.digest]), `${file.name}, when recorded`, null);
  // Deferred constraints are checked only now.
  await explained(client.query("commit"), `${file.name}, when committed`, null);
}

/** @param text what PostgreSQL's position counts in; null when that is not the file. */
async function explained(asked: Promise<unknown>, where: string, text: string | null): Promise<void> {
  try {
    await asked;
  } catch (cause) {
    if (!(cause instanceof pg.DatabaseError)) throw cause;
    // Only errors that parsing finds carry a position; it counts characters from 1.
    const isPlaced = text !== null && cause.position !== undefined;
    const full = isPlaced ? `${where}, ${place(text, Number(cause.position) - 1)}` : where;
    const context = [cause.detail, cause.hint, cause.where].filter((part) => part !== undefined);
    throw new MigrationError([`${full}: ${cause.message}`, ...context].join("\n"), { cause });
  }
}

function place(text: string, offset: number): string {
  const before = [...text].slice(0, offset).join("").split("\n");
  return `line ${before.length}, column ${(before.at(-1) ?? "").length + 1}`;
}
