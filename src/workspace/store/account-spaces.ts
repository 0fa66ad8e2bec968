import type { ClientBase, Pool } from "pg";

/** Whether the account has any space. False, too, on a database that the workspace was never installed in. */
export async function hasSpaces(database: Pool | ClientBase, accountId: string): Promise<boolean> {
  const { rows } = await database.query<{ is_there: boolean }>(
    "select to_regclass('workspace.spaces') is not null as is_there",
  );
  if (!rows[0]!.is_there) return false;
  const { rowCount } = await database.query("select from workspace.spaces where account_id = $1 limit 1", [
    accountId,
  ]);
  return rowCount === 1;
}
