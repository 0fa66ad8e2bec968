import { z } from "zod";
import type { Operation } from "../../api/operation.ts";
import { jsonBody, jsonResponse } from "../../api/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../../api/pagination.ts";
import { Problem } from "../../api/problems.ts";
import { tidyMediaType } from "../../model/media-type.ts";
import { id } from "../../operations/fields.ts";
import { newId } from "../../store/new-id.ts";
import { newObjectKey } from "../model/document-keys.ts";
import { DOCUMENT_BYTES_MAX, liveContentType } from "../model/documents.ts";
import {
  findDocument,
  insertDocument,
  listDocuments,
  lockDocument,
  renameDocument,
} from "../store/documents.ts";
import { hasFolder } from "../store/folders.ts";
import { askForMove } from "../store/moves.ts";
import { lockSpace, lockStoragePrefix } from "../store/spaces.ts";
import { requireRoomForLeftovers } from "../store/storage.ts";
import { Document, documentBody, NewDocument, Renamed } from "./document-schema.ts";
import { read, requirePermission, userOf, type WorkspaceDependencies, write } from "./workspace-operation.ts";

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
