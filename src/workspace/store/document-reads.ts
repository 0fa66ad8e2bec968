import type { Pool } from "pg";
import type { StoredDocument } from "./documents.ts";
import type { FolderPlace } from "./folders.ts";
import { isAbove } from "./lists.ts";

/** What runs read of documents. */
export type ReadDocument = Pick<
  StoredDocument,
  "id" | "fileName" | "contentType" | "fileSize" | "storageKey" | "hasContent"
>;

const DOCUMENT = `id, file_name as "fileName", content_type as "contentType", file_size::float8 as "fileSize",
  storage_key as "storageKey", has_content as "hasContent"`;

/** Those with content that lie directly in the place, in the order of ids. @param aboveId null: from the first */
export async function listUploaded(
  pool: Pool,
  accountId: string,
  { spaceId, folderId }: FolderPlace,
  aboveId: string | null,
  countMax: number,
): Promise<readonly ReadDocument[]> {
  // By the index, which a condition that can be of either kind would not.
  const inFolder = folderId === null ? "folder_id is null and $3::uuid is null" : "folder_id = $3";
  const { rows } = await pool.query<ReadDocument>(
    `select ${DOCUMENT} from workspace.documents
     where account_id = $1 and space_id = $2 and ${inFolder} and has_content
       and ${isAbove("id", "$4")}
     order by id limit $5`,
    [accountId, spaceId, folderId, aboveId, countMax],
  );
  return rows;
}

/** Null: the space has no such document. */
export async function readDocument(
  pool: Pool,
  accountId: string,
  spaceId: string,
  documentId: string,
): Promise<ReadDocument | null> {
  const { rows } = await pool.query<ReadDocument>({
    name: "read_document",
    text: `select ${DOCUMENT} from workspace.documents where account_id = $1 and id = $3 and space_id = $2`,
    values: [accountId, spaceId, documentId],
  });
  return rows[0] ?? null;
}
