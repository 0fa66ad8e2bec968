import type { ClientBase, Pool } from "pg";

/** What nodes hand on: an object. */
export type Item = Readonly<Record<string, unknown>>;

export type StoredItem = { readonly index: number; readonly item: Item };

/** Those of a node run, in their order. @param afterIndex -1: from the first */
export async function readItems(
  database: Pool | ClientBase,
  accountId: string,
  runId: string,
  sequence: number,
  afterIndex: number,
  countMax: number,
): Promise<readonly StoredItem[]> {
  const { rows } = await database.query<StoredItem>({
    name: "read_items",
    text: `
      select index, item from workspace.node_items
      where account_id = $1 and run_id = $2 and sequence = $3 and index > $4 order by index limit $5`,
    values: [accountId, runId, sequence, afterIndex, countMax],
  });
  return rows;
}

/** Behind those that the node run has. Its run is locked. */
export async function insertItems(
  tx: ClientBase,
  accountId: string,
  runId: string,
  sequence: number,
  items: readonly string[],
): Promise<void> {
  await tx.query(
    `insert into workspace.node_items (account_id, run_id, sequence, index, item)
     select $1, $2, $3, before.n + handed.n - 1, handed.item
     from (
       select coalesce(max(index) + 1, 0) as n from workspace.node_items
       where account_id = $1 and run_id = $2 and sequence = $3
     ) as before, unnest($4::json[]) with ordinality as handed (item, n)`,
    [accountId, runId, sequence, items],
  );
}
