import { readFile } from "node:fs/promises";
import type { Pool } from "pg";
import { isDatabaseUrl } from "../base/config/kinds.ts";
import { readMigrationNames } from "../base/database/migrate.ts";
import { createMovePool } from "../base/database/pools.ts";
import { isSecretsKey } from "../base/database/sealing.ts";
import { CELL_NAME } from "../base/model/installation.ts";
import { compareCells, WRONG_TARGET_KEY } from "../cells/beginning.ts";
import { type Cell, type Move, MoveRefusedError } from "../cells/move.ts";
import { findMoveHindrance } from "./areas.ts";
import { loadSecretsKey, withDatabase } from "./database.ts";
import { UsageError } from "./output.ts";
import type { ProcessContext } from "./process-context.ts";
import { databaseUrlOf } from "./state-folder.ts";

const CONNECTIONS_MAX = 3;
const APPLICATION_NAME = "sealpost account move";

/** How the command line names the other database. */
export type TargetWish = {
  /** The address of its database, which others on the machine can read, or a file that holds it. */
  readonly to?: string | undefined;
  readonly toFile?: string | undefined;
  /** A file that holds its SECRETS_KEY. */
  readonly targetSecretsKeyFile?: string | undefined;
  /** Absent: the name that the target has itself. */
  readonly cell?: string | undefined;
};

export type BothCells = Pick<Move, "source" | "target" | "sourceName" | "findHindrance"> & {
  readonly targetName: string;
};

/** Runs `work` with the database that the environment names and the one that an account moves to. */
export async function withBothCells<T>(
  context: Pick<ProcessContext, "env">,
  wish: TargetWish,
  work: (cells: BothCells) => Promise<T>,
): Promise<T> {
  return await withSource(context, async (source) => {
    const pool = createMovePool({ ...poolOptions(), databaseUrl: await targetUrlOf(wish) });
    try {
      const target = { pool, secretsKey: await targetKeyOf(wish) };
      await requireTarget(pool);
      const facts = await compareCells({ source, target }, await readMigrationNames([]));
      if (!(await isSecretsKey(pool, target.secretsKey))) {
        throw new UsageError(WRONG_TARGET_KEY);
      }
      const targetName = nameOf(wish.cell, facts.target.cell);
      const findHindrance = findMoveHindrance;
      return await work({ source, target, targetName, sourceName: facts.source.cell, findHindrance });
    } finally {
      await pool.end();
    }
  });
}

/** Runs `work` with the database that the environment names. */
export async function withSource<T>(
  context: Pick<ProcessContext, "env">,
  work: (source: Cell) => Promise<T>,
): Promise<T> {
  return await withDatabase(context, async (commandPool, config) => {
    const secretsKey = await loadSecretsKey(commandPool, config);
    const pool = createMovePool({ ...poolOptions(), databaseUrl: await databaseUrlOf(config) });
    try {
      return await work({ pool, secretsKey });
    } catch (error) {
      if (error instanceof MoveRefusedError) throw new UsageError(error.message, { cause: error });
      throw error;
    } finally {
      await pool.end();
    }
  });
}

function poolOptions() {
  return {
    connectionsMax: CONNECTIONS_MAX,
    applicationName: APPLICATION_NAME,
    onError: () => undefined,
  };
}

async function targetUrlOf({ to, toFile }: TargetWish): Promise<string> {
  if (to !== undefined && toFile !== undefined) throw new UsageError("Use --to, or --to-file.");
  if (to !== undefined) return to;
  if (toFile === undefined) throw new UsageError("Name the target: --to-file PATH, or --to DATABASE_URL.");
  const url = await readSecretFile("--to-file", toFile);
  if (isDatabaseUrl(url)) return url;
  throw new UsageError(
    "The file of --to-file has no PostgreSQL URL such as postgres://user:password@host:5432/name.",
  );
}

async function targetKeyOf({ targetSecretsKeyFile: path }: TargetWish): Promise<Uint8Array> {
  if (path === undefined) {
    throw new UsageError(
      "Give the target's SECRETS_KEY, which secrets are encrypted with there: --target-secrets-key-file PATH.",
    );
  }
  const key = Buffer.from(await readSecretFile("--target-secrets-key-file", path), "base64");
  if (key.length !== 32) throw new UsageError("The file of the target's key has no 32 bytes in base64.");
  return key;
}

async function readSecretFile(option: string, path: string): Promise<string> {
  const text = await readFile(path, "utf8").catch((cause: NodeJS.ErrnoException) => {
    throw new UsageError(`Cannot read ${option}: ${cause.code}.`, { cause });
  });
  return text.trim();
}

async function requireTarget(pool: Pool): Promise<void> {
  try {
    (await pool.connect()).release();
  } catch (cause) {
    const { code = "no answer" } = cause as NodeJS.ErrnoException;
    throw new UsageError(`Cannot reach the target's database (${code}).`, { cause });
  }
}

/** Callers may read it: of the form that CELL has, which no address has. */
function nameOf(asked: string | undefined, found: string | null): string {
  const name = asked ?? found;
  if (name === null) throw new UsageError("The target has no name of its own: give one with --cell NAME.");
  if (found !== null && name !== found) {
    throw new UsageError(`The target is the cell "${found}", not the one that --cell names.`);
  }
  if (CELL_NAME.pattern.test(name)) return name;
  throw new UsageError(`--cell must be ${CELL_NAME.rule}.`);
}
