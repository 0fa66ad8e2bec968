import { MIMEType } from "node:util";
import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { NamedUser } from "./spaces.ts";

/** `PENDING_UPLOAD`: its key is reserved and nothing stored there yet. */
export const DOCUMENT_STATUSES = ["PENDING_UPLOAD", "UPLOADED"] as const;
export const DOCUMENT_ORIGINS = ["UPLOADED"] as const;

/** What kind of text a document is that people can edit together; `NONE`: it is not. */
export const LIVE_CONTENT_TYPES = ["MARKDOWN", "NONE"] as const;
type LiveContentType = (typeof LIVE_CONTENT_TYPES)[number];

/** 5 GiB: what S3 takes in a request, and more than browsers like to send. */
export const DOCUMENT_BYTES_MAX = 5 * 1_024 ** 3;

/** @param contentType as `tidyMediaType` writes it */
export function liveContentType(contentType: string): LiveContentType {
  return new MIMEType(contentType).essence === "text/markdown" ? "MARKDOWN" : "NONE";
}

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
export type Document = z.output<typeof Document>;

export const Folder = z
  .object({
    id,
    space_id: id,
    parent_id: id.nullable().describe("The folder that it lies in; null: at the top of the space."),
    name: z.string(),
    created_by: NamedUser,
    created_at: time,
  })
  .meta({ id: "Folder", description: "A folder of a space." });
export type Folder = z.output<typeof Folder>;
