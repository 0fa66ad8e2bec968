import { readFile } from "node:fs/promises";
import type { Pool } from "pg";
import type { Config } from "../base/config/config.ts";
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
  /** Absent: TARGET_DATABASE_URL. */
  readonly to?: string | undefined;
  /** Absent: TARGET_SECRETS_KEY. */
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
  return await withSource(context, async (source, config) => {
    const targetUrl = wish.to ?? config.targetDatabaseUrl;
    if (targetUrl === null)
      throw new UsageError("Name the target: --to DATABASE_URL, or TARGET_DATABASE_URL.");
    const pool = createMovePool({ ...poolOptions(), databaseUrl: targetUrl });
    try {
      const target = { pool, secretsKey: await targetKeyOf(wish, config) };
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
  work: (source: Cell, config: Config) => Promise<T>,
): Promise<T> {
  return await withDatabase(context, async (commandPool, config) => {
    const secretsKey = await loadSecretsKey(commandPool, config);
    const pool = createMovePool({ ...poolOptions(), databaseUrl: await databaseUrlOf(config) });
    try {
      return await work({ pool, secretsKey }, config);
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

async function targetKeyOf({ targetSecretsKeyFile: path }: TargetWish, config: Config): Promise<Uint8Array> {
  if (path === undefined) {
    if (config.targetSecretsKey) return config.targetSecretsKey.export();
    throw new UsageError(
      "Give the target's SECRETS_KEY, which secrets are encrypted with there: TARGET_SECRETS_KEY, or " +
        "--target-secrets-key-file PATH.",
    );
  }
  const text = await readFile(path, "utf8").catch((cause: NodeJS.ErrnoException) => {
    throw new UsageError(`Cannot read --target-secrets-key-file: ${cause.code}.`, { cause });
  });
  const key = Buffer.from(text.trim(), "base64");
  if (key.length !== 32) throw new UsageError("The file of the target's key has no 32 bytes in base64.");
  return key;
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
