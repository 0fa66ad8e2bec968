import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { newId } from "../../base/database/partitions.ts";
import { tidyMediaType } from "../../base/model/formats.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../../http/pagination.ts";
import { Problem } from "../../http/problems.ts";
import {
  DOCUMENT_BYTES_MAX,
  DOCUMENT_ORIGINS,
  DOCUMENT_STATUSES,
  LIVE_CONTENT_TYPES,
  liveContentType,
} from "../model/documents.ts";
import { FILE_NAME_BYTES_MAX, isFileName, newObjectKey } from "../model/names.ts";
import {
  findDocument,
  insertDocument,
  listDocuments,
  lockDocument,
  renameDocument,
  type StoredDocument,
} from "../store/documents.ts";
import { hasFolder } from "../store/folders.ts";
import { askForMove } from "../store/moves.ts";
import { lockSpace, lockStoragePrefix } from "../store/spaces.ts";
import { requireRoomForLeftovers } from "../store/storage.ts";
import {
  NamedUser,
  namedUserBody,
  read,
  requirePermission,
  userOf,
  type WorkspaceDependencies,
  write,
} from "./workspace-operation.ts";

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
  // Normalizing thousands of marks on one letter takes a second. No letter is ten times as long before.
  .max(10 * FILE_NAME_BYTES_MAX, { abort: true })
  .normalize("NFC")
  .refine(isFileName, {
    error:
      `Must have 1 to ${FILE_NAME_BYTES_MAX} bytes of UTF-8, no slashes, backslashes or control characters, and be ` +
      "neither . nor ..",
  })
  .meta({ minLength: 1, maxLength: FILE_NAME_BYTES_MAX })
  .describe("No other document in the same folder has it. Unicode is normalized (NFC).");

const NewDocument = z.strictObject({
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

const Renamed = z.strictObject({ file_name: fileName });

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

const tag = "Documents";
const path = "/v1/documents";
const params = z.strictObject({ document_id: id });

/** Files in spaces; their bytes are in document-content.ts. */
export function documentOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  const cursors = createCursors(id);
  return [
    read({
      key: "documents.list",
      tag,
      summary: "List documents",
      description:
        "The documents of a space, or of one of its folders, newest first. 404 for an unknown folder, or if you are " +
        "not a member.",
      method: "GET",
      path,
      scope: "documents:read",
      needsUser: true,
      query: z.strictObject({
        space_id: id,
        folder_id: id.optional().describe("Those of this folder; absent: all, wherever they lie."),
        ...pageQuery,
      }),
      response: jsonResponse(200, pageOf(Document), totalCappedHeader),
      errors: ["not_found"],
      handle: async (request) => {
        const { space_id: spaceId, folder_id: folderId = null, cursor, limit } = request.query;
        const place = { spaceId, folderId };
        const user = userOf(request);
        const filter = [user, place];
        const page = await listDocuments(pool, user, place, cursors.read(cursor, filter), limit);
        if (page === null) throw request.problem("not_found");
        return { body: cursors.pageBody(page, filter, documentBody), headers: totalHeaders(page) };
      },
    }),
    write({
      key: "documents.create",
      tag,
      summary: "Add a document",
      description:
        "Makes a document without content, which is uploaded to it then. For members who may upload: others get 403. " +
        "409 if the folder has one of the same name.",
      method: "POST",
      path,
      scope: "documents:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      body: jsonBody(NewDocument),
      audit: ({ body: { space_id, folder_id } }, { body: { id: document_id, file_name, file_size } }) => {
        return { document_id, space_id, folder_id: folder_id ?? null, file_name, file_size };
      },
      response: jsonResponse(201, Document),
      errors: ["not_found", "access_denied", "document_name_taken"],
      handle: async (request, tx) => {
        const { space_id: spaceId, folder_id: folderId = null, file_name: fileName } = request.body;
        const { content_type, file_size: fileSize } = request.body;
        if (fileSize > DOCUMENT_BYTES_MAX) throw new Problem("payload_too_large");
        const user = userOf(request);
        const place = { spaceId, folderId };
        requirePermission(await lockSpace(tx, user, spaceId), "upload", request);
        if (!(await hasFolder(tx, user.accountId, place))) throw request.problem("not_found");
        const storagePrefix = (await lockStoragePrefix(tx, user.accountId, spaceId))!;
        const documentId = await newId(tx);
        const contentType = tidyMediaType(content_type)!;
        const inserted = await insertDocument(tx, user, place, {
          id: documentId,
          fileName,
          contentType,
          fileSize,
          storageKey: newObjectKey({ storagePrefix, documentId, fileName }),
          liveContentType: liveContentType(contentType),
        });
        if (inserted === "name_taken") throw request.problem("document_name_taken");
        return { body: documentBody((await findDocument(tx, user, documentId))!) };
      },
    }),
    read({
      key: "documents.get",
      tag,
      summary: "Get a document",
      description: "One document. 404 if you are not a member of its space.",
      method: "GET",
      path: `${path}/{document_id}`,
      scope: "documents:read",
      needsUser: true,
      params,
      response: jsonResponse(200, Document),
      errors: ["not_found"],
      handle: async (request) => {
        const document = await findDocument(pool, userOf(request), request.params.document_id);
        if (document === null) throw request.problem("not_found");
        return { body: documentBody(document) };
      },
    }),
    write({
      key: "documents.update",
      tag,
      summary: "Rename a document",
      description:
        "Gives the document another name at once. Its object is moved to the new name afterwards, and can be " +
        "downloaded all the time. For members who may rename: others get 403. 409 if the folder has one of that name.",
      method: "PATCH",
      path: `${path}/{document_id}`,
      scope: "documents:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      params,
      body: jsonBody(Renamed),
      audit: ({ params: { document_id } }, { body: { file_name } }) => ({ document_id, file_name }),
      response: jsonResponse(200, Document),
      errors: ["not_found", "access_denied", "document_name_taken"],
      handle: async (request, tx) => {
        const { accountId } = request;
        const { file_name: fileName } = request.body;
        const user = userOf(request);
        const document = await lockDocument(tx, user, request.params.document_id);
        requirePermission(document?.role ?? null, "rename", request);
        const { id: documentId, spaceId, storagePrefix, hasContent } = document!;
        if (hasContent) await requireRoomForLeftovers(tx, accountId);
        const key = newObjectKey({ storagePrefix, documentId, fileName });
        if ((await renameDocument(tx, document!, fileName, key)) === "name_taken") {
          throw request.problem("document_name_taken");
        }
        if (hasContent) await askForMove(tx, accountId, spaceId, documentId);
        return { body: documentBody((await findDocument(tx, user, documentId))!) };
      },
    }),
  ];
}
