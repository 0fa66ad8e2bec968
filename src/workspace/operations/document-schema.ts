import { z } from "zod";
import { tidyMediaType } from "../../model/media-type.ts";
import { id, time } from "../../operations/fields.ts";
import {
  DOCUMENT_BYTES_MAX,
  DOCUMENT_ORIGINS,
  DOCUMENT_STATUSES,
  LIVE_CONTENT_TYPES,
} from "../model/documents.ts";
import { FILE_NAME_BYTES_MAX, isFileName } from "../model/file-name.ts";
import type { StoredDocument } from "../store/documents.ts";
import { NamedUser, namedUserBody } from "./user-schema.ts";

export const Document = z
  .object({
    id,
    tenant_id: id.describe("The account."),
    workspace_id: id,
    space_id: id,
    folder_id: id.nullable().describe("The folder that it lies in; null: at the top of the space."),
    uploaded_by: NamedUser,
    file_name: z.string(),
    content_type: z.string(),
    file_size: z.int().min(0).describe("In bytes."),
    storage_key: z
      .string()
      .describe("Where it is stored. After a rename that changes once the object is moved."),
    status: z.enum(DOCUMENT_STATUSES).describe("`PENDING_UPLOAD` until its content was uploaded."),
    created_at: time,
    doc_origin: z.enum(DOCUMENT_ORIGINS),
    live_content_type: z.enum(LIVE_CONTENT_TYPES).describe("`MARKDOWN` for text/markdown."),
    has_active_collab_session: z.boolean().describe("False: people cannot edit documents together yet."),
    has_content: z.boolean(),
  })
  .meta({ id: "Document", description: "A file in a space." });

/** In one of Unicode's spellings, so that names that look the same are the same. */
const fileName = z
  .string()
  .normalize("NFC")
  .refine(isFileName, {
    error:
      `Must have 1 to ${FILE_NAME_BYTES_MAX} bytes of UTF-8, no slashes, backslashes or control characters, and be ` +
      "neither . nor ..",
  })
  .meta({ minLength: 1, maxLength: FILE_NAME_BYTES_MAX })
  .describe("No other document in the same folder has it. Unicode is normalized (NFC).");

export const NewDocument = z.strictObject({
  space_id: id,
  folder_id: id.optional().describe("The folder to put it in; absent: the top of the space."),
  file_name: fileName,
  content_type: z
    .string()
    .refine((text) => tidyMediaType(text) !== null, { error: "Must be a media type, such as text/plain." })
    .meta({ minLength: 3, maxLength: 255, example: "text/markdown" })
    .describe("Its upload has the same Content-Type."),
  file_size: z.int().min(0).describe(`Of its content, in bytes; at most ${DOCUMENT_BYTES_MAX}.`),
});

export const Renamed = z.strictObject({ file_name: fileName });

export function documentBody(document: StoredDocument): z.output<typeof Document> {
  return {
    id: document.id,
    tenant_id: document.accountId,
    workspace_id: document.workspaceId,
    space_id: document.spaceId,
    folder_id: document.folderId,
    uploaded_by: namedUserBody(document.uploadedBy),
    file_name: document.fileName,
    content_type: document.contentType,
    file_size: document.fileSize,
    storage_key: document.storageKey,
    status: document.status,
    created_at: document.createdAt.toISOString(),
    doc_origin: "UPLOADED",
    live_content_type: document.liveContentType,
    has_active_collab_session: false,
    has_content: document.hasContent,
  };
}
