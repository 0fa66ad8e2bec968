// Two databases as two cells, each with a secrets key of its own, and what tests compare in them.

import type pg from "pg";
import { findMoveHindrance } from "../../src/app/areas.ts";
import { createMovePool } from "../../src/base/database/pools.ts";
import type { Cell, Move, MovePart } from "../../src/cells/move.ts";
import { LOG_TABLES, OPENING_TABLES } from "../../src/cells/move-tables-sql.ts";
import { createTestDatabase, type TestDatabase } from "./database.ts";
import { SECRETS_KEY } from "./installation.ts";
import { patience } from "./time-limits.ts";

export const TARGET_KEY = Buffer.alloc(32, 8);

export type TestCells = {
  readonly source: TestDatabase;
  readonly target: TestDatabase;
  /** As the command line makes one; `onProgress` may throw, like a process that is killed there. */
  move(accountId: string, more?: Partial<Move>): Move;
  drop(): Promise<void>;
};

export async function createTestCells(): Promise<TestCells> {
  const source = await createTestDatabase();
  const target = await createTestDatabase();
  const cells: readonly [Cell, Cell] = [cellOf(source, SECRETS_KEY), cellOf(target, TARGET_KEY)];
  return {
    source,
    target,
    move: (accountId, more = {}) => ({
      accountId,
      source: cells[0],
      target: cells[1],
      targetName: "c2",
      sourceName: "c1",
      findHindrance: findMoveHindrance,
      waitMaxMs: patience(30_000),
      onProgress: () => undefined,
      ...more,
    }),
    drop: async () => {
      for (const { pool } of cells) await pool.end();
      await source.drop();
      await target.drop();
    },
  };
}

/** For a move: as if its process were killed at that part. */
export function killedAt(place: MovePart): Partial<Move> {
  return {
    onProgress: (part) => {
      if (part === place) throw new Error("killed");
    },
  };
}

function cellOf({ url }: TestDatabase, secretsKey: Uint8Array): Cell {
  const onError = () => undefined;
  const options = { databaseUrl: url, connectionsMax: 3, applicationName: "test move", onError };
  return { pool: createMovePool(options), secretsKey };
}

/** The rows of an account, as JSON, by table; children among them. Sealed texts differ from cell to cell. */
export async function readAccount(
  pool: pg.Pool,
  accountId: string,
): Promise<Readonly<Record<string, readonly string[]>>> {
  const tables = [...LOG_TABLES, ...OPENING_TABLES];
  const read = async (name: string, owner: string) => {
    const { rows } = await pool.query<{ row: string }>(
      `select row_to_json(t)::text as row from sealpost.${name} as t where ${owner} = $1 order by 1`,
      [accountId],
    );
    return [name, rows.map(({ row }) => row)] as const;
  };
  const found = tables.flatMap(({ name, accountId: owner, children = [] }) => [
    read(name, `t.${owner ?? "account_id"}`),
    ...children.map((child) =>
      read(child.name, `(select p.account_id from sealpost.${name} as p where p.id = t.${child.parentId})`),
    ),
  ]);
  return Object.fromEntries(await Promise.all(found));
}
