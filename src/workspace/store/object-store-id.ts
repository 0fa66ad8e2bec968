import type { Pool } from "pg";
import { inTransaction } from "../../store/transaction.ts";

/** How many objects tell whether a store that has no id yet is the one that documents are in. */
const SAMPLES_MAX = 10;

/** The id of the object store that documents are in, and, where there is none yet, keys of some that are stored. */
export type KnownStoreId = { readonly id: string | null; readonly sampleKeys: readonly string[] };

export async function readStoreId(pool: Pool): Promise<KnownStoreId> {
  const { rows } = await pool.query<KnownStoreId>(
    `select s.id, array(
       select storage_key from workspace.documents where s.id is null and has_content limit $1
     ) as "sampleKeys" from workspace.object_store as s`,
    [SAMPLES_MAX],
  );
  return rows[0]!;
}

/** Keeps what `findId` resolves with, where there is none yet, by one process at a time. Returns the one there is. */
export async function settleStoreId(pool: Pool, findId: () => Promise<string>): Promise<string> {
  return await inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<{ id: string | null }>(
      "select id from workspace.object_store for update",
    );
    const known = rows[0]!.id;
    if (known !== null) return known;
    const id = await findId();
    await tx.query("update workspace.object_store set id = $1", [id]);
    return id;
  });
}
