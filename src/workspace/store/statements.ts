import type { ClientBase, Pool } from "pg";

export type Database = Pool | ClientBase;

/** A user of an account. */
export type SpaceUser = { readonly accountId: string; readonly userId: string };

/** For whom a statement is: `$1` is the account, and `$2` the user, where it is for one. */
type Who = string | { readonly accountId: string; readonly userId: string | null };
/** What is `$2` or `$3`, and those behind it. */
type Values = readonly unknown[];

function valuesOf(who: Who, values: Values): unknown[] {
  return typeof who === "string" ? [who, ...values] : [who.accountId, who.userId, ...values];
}

/** A statement that reads rows. @param name it is prepared once for each connection; absent: planned each time */
export function rowsOf<Row extends object, For extends Who, Rest extends Values>(
  text: string,
  name?: string,
) {
  return async (database: Database, who: For, ...rest: Rest): Promise<readonly Row[]> => {
    const { rows } = await database.query<Row>({ name, text, values: valuesOf(who, rest) });
    return rows;
  };
}

/** The same, of one row. Null: there is none. */
export function rowOf<Row extends object, For extends Who, Rest extends Values>(text: string, name?: string) {
  const read = rowsOf<Row, For, Rest>(text, name);
  return async (...asked: Parameters<typeof read>): Promise<Row | null> => (await read(...asked))[0] ?? null;
}

/** The same, of a row that is locked until the transaction ends. */
export function lockOf<Row extends object, For extends Who, Rest extends Values>(
  text: string,
  name?: string,
) {
  const lock = rowOf<Row, For, Rest>(text, name);
  return (tx: ClientBase, who: For, ...rest: Rest) => lock(tx, who, ...rest);
}

/** A statement that changes rows. Resolves with whether it has changed one. */
export function change<For extends Who, Rest extends Values>(text: string, name?: string) {
  return async (tx: ClientBase, who: For, ...rest: Rest): Promise<boolean> => {
    const { rowCount } = await tx.query({ name, text, values: valuesOf(who, rest) });
    return rowCount !== 0;
  };
}
