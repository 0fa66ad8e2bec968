import type { ClientBase, Pool } from "pg";
import type { AccountTable, ChildTable } from "./move-tables.ts";

const ROWS_PER_STEP_MAX = 1_000;

/** Deletes a page of an account's rows, with their children. Returns how many went; 0: there are no more. */
export async function deleteRows(
  database: ClientBase | Pool,
  table: AccountTable,
  accountId: string,
): Promise<number> {
  const owner = table.accountId ?? "account_id";
  const key = [owner, ...table.key].join(", ");
  const { rows } = await database.query<{ gone: number }>(
    `with page as (
       select ${key} from sealpost.${table.name} where ${owner} = $1 order by ${key}
       limit ${table.rowsMax ?? ROWS_PER_STEP_MAX}
     ), ${(table.children ?? []).map(deletingChildren).join("")}gone as (
       delete from sealpost.${table.name} where (${key}) in (select ${key} from page) returning 1
     )
     select count(*)::integer as gone from gone`,
    [accountId],
  );
  return rows[0]!.gone;
}

function deletingChildren({ name, parentId }: ChildTable): string {
  return `${name}_gone as (
       delete from sealpost.${name} where ${parentId} = any (array(select id from page))
     ), `;
}
