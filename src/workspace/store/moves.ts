import type { ClientBase } from "pg";

/** Has the objects of a space moved to where its prefix says, or one document's. @param documentId null: all */
export async function askForMove(
  tx: ClientBase,
  accountId: string,
  spaceId: string,
  documentId: string | null,
): Promise<void> {
  await tx.query(
    `insert into workspace.moves (account_id, space_id, document_id) values ($1, $2, $3)
     on conflict (account_id, space_id, document_id) do update
     set asked = moves.asked + 1, after_id = excluded.after_id, next_at = excluded.next_at`,
    [accountId, spaceId, documentId],
  );
}
