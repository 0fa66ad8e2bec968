import pg, { type ClientBase, type Pool } from "pg";

/** The database is of another cell than this process (CELL), or of none yet: nothing is read from it or written. */
export class OtherCellError extends Error {
  override readonly name = "OtherCellError";
  /** Null: the database is of no cell yet. */
  readonly found: string | null;

  constructor(wanted: string, found: string | null) {
    super(
      found === null
        ? `The database is of no cell yet, and CELL is ${wanted}: run migrate, which writes CELL into it once.`
        : `The database is that of the cell ${found}, and CELL is ${wanted}: correct CELL or DATABASE_URL.`,
    );
    this.found = found;
  }
}

/** No table of settings, or one from before there were cells. */
const BEFORE_CELLS = /^(?:3F000|42P01|42703)$/;

/** The cell that the database is of; null: none. */
export async function readCell(database: Pool | ClientBase): Promise<string | null> {
  try {
    const { rows } = await database.query<{ cell: string | null }>("select cell from sealpost.settings");
    return rows[0]?.cell ?? null;
  } catch (error) {
    if (error instanceof pg.DatabaseError && BEFORE_CELLS.test(error.code ?? "")) return null;
    throw error;
  }
}

/** @throws OtherCellError unless the database is of `cell` */
export async function requireCell(client: ClientBase, cell: string): Promise<void> {
  const found = await readCell(client);
  if (found !== cell) throw new OtherCellError(cell, found);
}

/** @throws OtherCellError when the database is of another cell than `cell` */
export async function refuseOtherCell(client: ClientBase, cell: string): Promise<void> {
  const found = await readCell(client);
  if (found !== null && found !== cell) throw new OtherCellError(cell, found);
}

/**
 * Makes the database that of `cell`, for ever: rows, keys and backups of two cells under one name could not be told
 * apart again.
 * @throws OtherCellError when it is already that of another
 */
export async function writeCell(client: ClientBase, cell: string): Promise<void> {
  await client.query("update sealpost.settings set cell = $1 where cell is null", [cell]);
  await requireCell(client, cell);
}
