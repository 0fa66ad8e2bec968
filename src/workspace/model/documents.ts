import { randomBytes } from "node:crypto";
import { MIMEType } from "node:util";
import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { isDisplayName } from "../../base/model/formats.ts";
import { NamedUser } from "./spaces.ts";

/** File systems take this much, in UTF-8. */
export const FILE_NAME_BYTES_MAX = 255;

/** Path separators, control characters, and what an object's key cannot have. */
const UNFIT = /[/\\\p{Cc}\p{Cs}\uFFFE\uFFFF]/u;

/** Whoever downloads a space gets files of these names: one must not lead elsewhere. */
export function isFileName(text: string): boolean {
  const bytes = Buffer.byteLength(text);
  return bytes > 0 && bytes <= FILE_NAME_BYTES_MAX && !UNFIT.test(text) && text !== "." && text !== "..";
}

/** Whoever downloads a space gets folders of these names: one must not lead elsewhere. */
export function isFolderName(text: string): boolean {
  return isDisplayName(text) && !/[/\\]/.test(text) && text !== "." && text !== "..";
}

/** What of a document its key shows. */
type KeyParts = Pick<Document, "id" | "file_name"> & { readonly storagePrefix: string };

/**
 * A key for a document's object that nothing has had before:
 * `spaces/reports-3f6f2f6f0a11/0199a1f0-7d2c-7c3a-9b1e-5d6f00000001-a1b2c3d4e5f6/Report.pdf`.
 */
export function newObjectKey({ storagePrefix, id, file_name }: KeyParts): string {
  return `${storagePrefix}${id}-${randomBytes(6).toString("hex")}/${file_name}`;
}

/** Whether the key shows them; if not, the object has to be moved. */
export function isInPlace(key: string, { storagePrefix, id, file_name }: KeyParts): boolean {
  return key.startsWith(`${storagePrefix}${id}-`) && key.endsWith(`/${file_name}`);
}

const SLUG_CHARS_MAX = 40;

/**
 * Where the objects of a space are kept: `spaces/quarterly-reports-3f6f2f6f0a11/`. Its last digits are those of the
 * space's id, which no other space has, so that names may repeat.
 */
export function storagePrefix(name: string, spaceId: string): string {
  return `${ALL_SPACES}${slug(name)}-${spaceId.slice(-12)}/`;
}

export const ALL_SPACES = "spaces/";

/** What the prefixes of a space end with, whatever it was or will be called. */
export function prefixEnd(prefix: string): string {
  return prefix.slice(-14);
}

/** For people who look at the store: letters of other alphabets are left out. */
function slug(name: string): string {
  const words = name
    .normalize("NFKD")
    .replaceAll(/(?![a-z])[\p{L}\p{M}]/giu, "")
    .toLowerCase()
    .match(/[a-z0-9]+/g);
  return (words ?? []).join("-").slice(0, SLUG_CHARS_MAX).replace(/-$/, "") || "space";
}

/** `PENDING_UPLOAD`: its key is reserved and nothing stored there yet. */
export const DOCUMENT_STATUSES = ["PENDING_UPLOAD", "UPLOADED"] as const;
export const DOCUMENT_ORIGINS = ["UPLOADED"] as const;

/** What kind of text a document is that people can edit together; `NONE`: it is not. */
export const LIVE_CONTENT_TYPES = ["MARKDOWN", "NONE"] as const;

/** 5 GiB: what S3 takes in a request, and more than browsers like to send. */
export const DOCUMENT_BYTES_MAX = 5 * 1_024 ** 3;

/** @param contentType as `tidyMediaType` writes it */
export function liveContentType(contentType: string): (typeof LIVE_CONTENT_TYPES)[number] {
  return new MIMEType(contentType).essence === "text/markdown" ? "MARKDOWN" : "NONE";
}

export const Document = z
  .object({
    id,
    tenant_id: id.describe("The account."),
    workspace_id: id,
    space_id: id,
    folder_id: id.nullable().describe("The folder that it is in; null: at the top of the space."),
    uploaded_by: NamedUser,
    file_name: z.string(),
    content_type: z.string(),
    file_size: z.int().min(0).describe("In bytes."),
    storage_key: z
      .string()
      .describe("Where it is stored. After a rename, this changes once the object has been moved."),
    status: z.enum(DOCUMENT_STATUSES).describe("`PENDING_UPLOAD` until its content has been uploaded."),
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
    parent_id: id.nullable().describe("The folder that it is in; null: at the top of the space."),
    name: z.string(),
    created_by: NamedUser,
    created_at: time,
  })
  .meta({ id: "Folder", description: "A folder of a space." });
export type Folder = z.output<typeof Folder>;
