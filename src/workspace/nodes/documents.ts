import type { Pool } from "pg";
import { listUploaded } from "../store/document-reads.ts";
import { hasFolder } from "../store/folders.ts";
import { NodeFailedError, type NodeStep } from "./node-step.ts";

const DOCUMENTS_PER_STEP = 500;

/** Hands on an item for each document with content that lies in the folder, in the order of ids. */
export function createDocumentsStep(pool: Pool): NodeStep<"documents"> {
  return async ({ node, accountId, spaceId, position }) => {
    const { folder_id: folderId } = node.parameters;
    const place = { spaceId, folderId };
    if (!(await hasFolder(pool, accountId, place))) {
      const message = `The workflow's space has no folder ${folderId}. Choose another one for the node ${node.id}.`;
      throw new NodeFailedError("folder_not_found", message);
    }
    const documents = await listUploaded(
      pool,
      accountId,
      place,
      position as string | null,
      DOCUMENTS_PER_STEP,
    );
    const items = documents.map(({ id, fileName, contentType, fileSize }) => {
      return { document_id: id, file_name: fileName, content_type: contentType, file_size: fileSize };
    });
    const last = documents.at(-1);
    return last === undefined || documents.length < DOCUMENTS_PER_STEP
      ? { kind: "succeeded", items }
      : { kind: "progressed", items, position: last.id };
  };
}
