import type { ClientBase, Pool } from "pg";
import { SEALED_COLUMNS, seal, unseal } from "../base/database/sealing.ts";
import { BoundedCache } from "../base/model/caches.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import type { AccountTable, ChildTable, MovedTable } from "./move-tables-sql.ts";

const ROWS_PER_PAGE_MAX = 1_000;
/** Of one page as text; a row that is larger comes alone. It is in memory a few times over. */
const BYTES_PER_PAGE_MAX = 4 * 1024 * 1024;

/** A value as PostgreSQL writes it; null: it has none. */
export type Value = string | null;

export type Page = {
  readonly table: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly Value[])[];
  /** Where to go on; null: there are no more. */
  readonly next: Place;
};

/** The key of the last row of a page; null: none. */
export type Place = readonly string[] | null;

export type Column = { readonly name: string; readonly type: string };

/** A column that is added later is copied, too. */
async function readColumns(database: Pool, table: string): Promise<readonly Column[]> {
  const { rows } = await database.query<Column>(
    `select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
     where attrelid = ('sealpost.' || $1)::regclass and attnum > 0 and not attisdropped order by attnum`,
    [table],
  );
  return rows;
}

/** More than there are. */
const TABLES_MAX = 100;

/** Reads the rows of one account, table by table. As text, which loses nothing of any type that we use. */
export class PageReader {
  readonly #source: Pool;
  readonly #accountId: string;
  readonly #columns = new BoundedCache<string, Promise<readonly Column[]>>(TABLES_MAX);

  constructor(source: Pool, accountId: string) {
    this.#source = source;
    this.#accountId = accountId;
  }

  /** One page at least. @param after where the last page ended; null: at the start */
  readPages(table: AccountTable, after: Place = null): AsyncIterable<Page> {
    const owner = `t.${table.accountId ?? "account_id"} = $1::uuid`;
    return this.#read(table, owner, this.#accountId, table.key, after, table.rowsMax);
  }

  /** Children of the rows of a page. */
  readChildren(table: ChildTable, parents: Page): AsyncIterable<Page> {
    const owner = `t.${table.parentId} = any ($1::uuid[])`;
    const id = parents.columns.findIndex(({ name }) => name === "id");
    const ids = parents.rows.map((row) => row[id]);
    return this.#read(table, owner, ids, [table.parentId, ...table.key], null);
  }

  async *#read(
    { name: table, bytes, instead = {} }: MovedTable,
    owner: string,
    of: unknown,
    key: readonly string[],
    after: Place,
    rowsMax = ROWS_PER_PAGE_MAX,
  ): AsyncGenerator<Page> {
    const columns = await this.#columns.get(table, (name) => readColumns(this.#source, name));
    const places = key.map((wanted) => columns.findIndex(({ name }) => name === wanted));
    const order = key.map((name) => `t.${name}`).join(", ") || "1";
    const values = columns.map(({ name }) => `(${instead[name] ?? `t.${name}`})::text`);
    const last = places.map((place, n) => `$${n + 2}::${columns[place]!.type}`);
    let next = after;
    do {
      const later = next === null ? "" : ` and (${order}) > (${last})`;
      const found = `select t.* from sealpost.${table} as t
        where ${owner}${later} order by ${order} limit ${rowsMax}`;
      const { rows } = await this.#source.query<Value[]>({
        text: `select ${values.join(", ")} from (${fitting(found, order, bytes)}) as t order by ${order}`,
        values: [of, ...(next ?? [])],
        rowMode: "array",
      });
      const lastRow = rows.at(-1);
      // A row that its account can have only once needs no key.
      next = lastRow === undefined || key.length === 0 ? null : places.map((place) => lastRow[place]!);
      yield { table, columns, rows, next };
    } while (next !== null);
  }
}

/** The first of the rows found that have BYTES_PER_PAGE_MAX together, and at least one. */
function fitting(found: string, order: string, bytes: string | undefined): string {
  if (bytes === undefined) return found;
  return `select t.* from (
      select t.*, sum(${bytes}) over (order by ${order}) as bytes_to, row_number() over (order by ${order}) as n
      from (${found}) as t
    ) as t where n = 1 or coalesce(bytes_to, 0) <= ${BYTES_PER_PAGE_MAX}`;
}

/** Writes a page, but for the rows that are there already. */
export async function writePage(tx: ClientBase, { table, columns, rows }: Page): Promise<void> {
  if (rows.length === 0) return;
  const names = columns.map(({ name }) => `"${name}"`);
  const cast = columns.map(({ name, type }) => `r."${name}"::${type}`);
  const arrays = columns.map((_, n) => `$${n + 1}::text[]`);
  await tx.query(
    `insert into sealpost.${table} (${names})
     select ${cast} from unnest(${arrays}) as r (${names})
     on conflict do nothing`,
    columns.map((_, n) => rows.map((row) => row[n])),
  );
}

/** How far each table is here: the key of its last row; `all`: there are no more. */
export type Copied = Readonly<Record<string, readonly string[] | "all">>;

export async function readCopied(target: Pool, accountId: string): Promise<Copied> {
  const { rows } = await target.query<{ copied: Copied }>(
    "select copied from sealpost.moves where account_id = $1",
    [accountId],
  );
  return rows[0]?.copied ?? {};
}

/** In the transaction of the page. False: the move is not this one any more, or is over. */
export async function writeCopied(
  tx: ClientBase,
  accountId: string,
  moveId: string,
  copied: Copied,
): Promise<boolean> {
  const { rowCount } = await tx.query(
    `update sealpost.moves set copied = $3
     where account_id = $1 and id = $2 and direction = 'in' and step = 'begun'`,
    [accountId, moveId, JSON.stringify(copied)],
  );
  return rowCount === 1;
}

/** How many rows the account has in a table. */
export async function countRows(database: Pool, table: AccountTable, accountId: string): Promise<number> {
  const { rows } = await database.query<{ n: string }>(
    `select count(*) as n from sealpost.${table.name} where ${table.accountId ?? "account_id"} = $1`,
    [accountId],
  );
  return Number(rows[0]!.n);
}

/** The page with its secrets as the target can open them. */
export function resealPage(page: Page, sourceKey: SecretsKey, targetKey: SecretsKey): Page {
  const sealed = SEALED_COLUMNS[page.table];
  if (sealed === undefined) return page;
  const placeOf = (wanted: string) => page.columns.findIndex(({ name }) => name === wanted);
  const reseal = (row: readonly Value[]) => {
    const cell = (name: string) => row[placeOf(name)]!;
    const value = row[placeOf(sealed.column)] ?? null;
    if (value === null || (sealed.if !== undefined && cell(sealed.if) !== "true")) return row;
    const owner = { accountId: cell("account_id"), id: sealed.owner.map(cell).join("/") };
    const text = unseal(Buffer.from(value.slice(2), "hex"), sourceKey, owner);
    return row.with(placeOf(sealed.column), `\\x${seal(text, targetKey, owner).toString("hex")}`);
  };
  return { ...page, rows: page.rows.map(reseal) };
}
