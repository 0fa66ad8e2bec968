import type { ClientBase, Pool } from "pg";

export type Database = Pool | ClientBase;

/** A user of an account. */
export type SpaceUser = { readonly accountId: string; readonly userId: string };

/** A node run whose next step is one process's, until its lease ends. */
export type ClaimedStep = {
  readonly accountId: string;
  readonly runId: string;
  /** The node run. */
  readonly sequence: number;
  readonly leaseToken: string;
  /** 1 and how often this step has failed, or was cut. */
  readonly attempt: number;
};

/** For whom a statement is: `$1` is the account, `$2` the user, where it is for one; `$2` to `$4` are a step's. */
type Who = string | { readonly accountId: string; readonly userId: string | null } | ClaimedStep;
/** What follows these. */
type Values = readonly unknown[];

function valuesOf(who: Who, values: Values): unknown[] {
  if (typeof who === "string") return [who, ...values];
  if ("userId" in who) return [who.accountId, who.userId, ...values];
  return [who.accountId, who.runId, who.sequence, who.leaseToken, ...values];
}

/**
 * A statement that reads rows. `On`: ClientBase, if only in a transaction.
 * @param name it is prepared once for each connection; absent: planned each time
 */
export function rowsOf<
  Row extends object,
  For extends Who,
  Rest extends Values,
  On extends Database = Database,
>(text: string, name?: string) {
  return async (database: On, who: For, ...rest: Rest): Promise<readonly Row[]> => {
    const { rows } = await database.query<Row>({ name, text, values: valuesOf(who, rest) });
    return rows;
  };
}

/** The same, of one row. Null: there is none. */
export function rowOf<
  Row extends object,
  For extends Who,
  Rest extends Values,
  On extends Database = Database,
>(text: string, name?: string) {
  const read = rowsOf<Row, For, Rest, On>(text, name);
  return async (...asked: Parameters<typeof read>): Promise<Row | null> => (await read(...asked))[0] ?? null;
}

/** The same, of a row that is locked until the transaction ends. */
export function lockOf<Row extends object, For extends Who, Rest extends Values>(
  text: string,
  name?: string,
) {
  return rowOf<Row, For, Rest, ClientBase>(text, name);
}

/** A statement that changes rows. Resolves with whether it has changed one. `On`: Pool, if it needs no transaction. */
export function change<For extends Who, Rest extends Values, On extends Database = ClientBase>(
  text: string,
  name?: string,
) {
  return async (database: On, who: For, ...rest: Rest): Promise<boolean> => {
    const { rowCount } = await database.query({ name, text, values: valuesOf(who, rest) });
    return rowCount !== 0;
  };
}

/** A statement that reads one value, about all accounts. */
export function scalarOf<Value>(text: string, name?: string) {
  return async (database: Database): Promise<Value> => {
    const { rows } = await database.query<[Value]>({ name, text, rowMode: "array" });
    return rows[0]![0];
  };
}
