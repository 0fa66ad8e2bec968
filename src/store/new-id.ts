import type { ClientBase, Pool } from "pg";

/** For a row that is still to be made, where something else has to know it before. */
export async function newId(database: Pool | ClientBase): Promise<string> {
  const { rows } = await database.query<{ id: string }>("select sealpost.uuid_v7() as id");
  return rows[0]!.id;
}
