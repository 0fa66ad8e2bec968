import { setTimeout as delay } from "node:timers/promises";
import type { ClientBase, Pool } from "pg";
import { emptyDetached } from "./partitions.ts";
import { inTransaction } from "./transaction.ts";

/** A table with rows of accounts. */
export type RowsTable = {
  /** Of the schema `sealpost`, unless it names another. */
  readonly name: string;
  /** What its rows are told apart by within their account, or their parent; in the order of an index. */
  readonly key: readonly string[];
};

/** Rows that belong to an account's by way of another table's. */
export type ChildRows = RowsTable & {
  /** Where the parent's id stands. */
  readonly parentId: string;
};

export type DeletedTable<Child extends ChildRows = ChildRows> = RowsTable & {
  /** Where the account's id stands; default: account_id. */
  readonly accountId?: string;
  /** Rows of a page; default: 1,000. */
  readonly rowsMax?: number;
  /** Children of what is in a page, which its first key column names. */
  readonly children?: readonly Child[];
  /** SQL: which rows `t` are deleted; default: all of the account. `$2`: what else `deleteRows` is told. */
  readonly only?: string;
  /** Others lock several of its rows, too: they are locked in the order of their keys. */
  readonly isContended?: true;
};

/**
 * SQL: whether the account is not erased, where a process writes what it has in memory: nothing of an erased account
 * comes back with it. Unknown ones are not. A look-up for each row, whatever the planner thinks of them.
 */
export const notErased = (accountId: string) =>
  `(select known.erased_at from sealpost.accounts as known where known.id = ${accountId}) is null`;

/** The cell that the account has moved to; null: it is here. */
export async function findMovedTo(pool: Pool, accountId: string): Promise<string | null> {
  const text = "select moved_to from sealpost.accounts where id = $1";
  return (await pool.query<{ moved_to: string | null }>(text, [accountId])).rows[0]?.moved_to ?? null;
}

const ROWS_PER_STEP_MAX = 1_000;

/** Deletes a page of an account's rows, with their children. Returns how many went; 0: there are no more. */
export async function deleteRows(
  database: ClientBase | Pool,
  table: DeletedTable,
  accountId: string,
  ...of: readonly string[]
): Promise<number> {
  const { name, key: ownKey, accountId: owner = "account_id", rowsMax, children = [] } = table;
  const key = [owner, ...ownKey].join(", ");
  const { rows } = await database.query<{ gone: number }>(
    `with page as (
       select ${key} from ${qualified(name)} as t where ${owner} = $1 and ${table.only ?? "true"} order by ${key}
       limit ${rowsMax ?? ROWS_PER_STEP_MAX} ${table.isContended ? "for update" : ""}
     ), ${children.map(deletingChildren).join("")}gone as (
       delete from ${qualified(name)} where (${key}) in (select ${key} from page) returning 1
     )
     select count(*)::integer as gone from gone`,
    [accountId, ...of],
  );
  return rows[0]!.gone;
}

function deletingChildren({ name, parentId }: ChildRows): string {
  return `${name}_gone as (
       delete from ${qualified(name)} where ${parentId} = any (array(select id from page))
     ), `;
}

function qualified(name: string): string {
  return `${name.includes(".") ? "" : "sealpost."}${name}`;
}

/**
 * Deletes an account's rows of these tables, page by page, and rests after each for as long as it took. Returns how
 * many went, children not counted.
 * @param onPage told after each that had rows
 */
export async function deleteAll(
  pool: Pool,
  tables: readonly DeletedTable[],
  accountId: string,
  onPage: (table: string) => void = () => undefined,
): Promise<number> {
  let deleted = 0;
  for (const table of tables) {
    deleted += await inPages(async () => {
      const gone = await inTransaction(pool, (tx) => deleteRows(tx, table, accountId));
      if (gone > 0) onPage(table.name);
      return gone;
    });
  }
  if (tables.some(({ name }) => name === "deliveries"))
    await inTransaction(pool, (tx) => emptyDetached(tx, "account_id", [accountId]));
  return deleted;
}

/** Takes steps until one finds nothing more to do, resting after each for as long as it took. Returns their sum. */
export async function inPages(step: () => Promise<number>): Promise<number> {
  let sum = 0;
  for (let done = 1; done > 0; sum += done) {
    const startedAtMs = performance.now();
    done = await step();
    await delay(performance.now() - startedAtMs);
  }
  return sum;
}
