import { z } from "zod";
import { id } from "../../api/fields.ts";
import { newId } from "../../base/database/partitions.ts";
import { DISPLAY_NAME_CHARS_MAX, tidyMediaType } from "../../base/model/formats.ts";
import { jsonBody, jsonResponse, type Operation } from "../../http/operation.ts";
import { Problem } from "../../http/problems.ts";
import {
  DOCUMENT_BYTES_MAX,
  Document,
  FILE_NAME_BYTES_MAX,
  Folder,
  isFileName,
  isFolderName,
  liveContentType,
  newObjectKey,
} from "../model/documents.ts";
import {
  type FoundDocument,
  findDocument,
  hasFolder,
  insertDocument,
  insertFolder,
  listDocuments,
  listFolders,
  lockDocument,
  renameDocument,
} from "../store/documents.ts";
import { askForMove } from "../store/moves.ts";
import { lockSpace } from "../store/spaces.ts";
import { requireRoomForLeftovers } from "../store/storage.ts";
import { operationsOf, requirePermission, type WorkspaceDependencies } from "./workspace-operation.ts";

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
  .describe("Unique in its folder. Unicode is normalized (NFC).");

const NewDocument = z.strictObject({
  space_id: id,
  folder_id: id.optional().describe("The folder to put it in; absent: the top of the space."),
  file_name: fileName,
  content_type: z
    .string()
    .refine((text) => tidyMediaType(text) !== null, { error: "Must be a media type, such as text/plain." })
    .meta({ minLength: 3, maxLength: 255, example: "text/markdown" })
    .describe("The upload must have the same Content-Type."),
  file_size: z.int().min(0).describe(`Of its content, in bytes; at most ${DOCUMENT_BYTES_MAX}.`),
});

const Renamed = z.strictObject({ file_name: fileName });

/** Without what only we need of it. */
export function documentBody({ role: _, storagePrefix: __, ...document }: FoundDocument): Document {
  return document;
}

/** What is refused to whoever adds to a space. */
export const QUOTA_CODES = ["billing_credits_exhausted", "space_too_large"] as const;

const { get, list, write } = operationsOf("Documents");
const path = "/v1/documents";
const params = z.strictObject({ document_id: id });

const folderPath = "/v1/spaces/{space_id}/folders";
const folderParams = z.strictObject({ space_id: id });

const NewFolder = z.strictObject({
  name: z
    .string()
    .refine(isFolderName, {
      error:
        `Must have 1 to ${DISPLAY_NAME_CHARS_MAX} characters, no control characters, slashes or backslashes, and no ` +
        "spaces around it, and be neither . nor ..",
    })
    .meta({ minLength: 1, maxLength: DISPLAY_NAME_CHARS_MAX })
    .describe("Unique in its place."),
  parent_id: id.optional().describe("The folder to create it in; absent: the top of the space."),
});

/** Files in spaces, and the folders that they lie in; their bytes are in document-content.ts. */
export function documentOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  return [
    list({
      key: "folders.list",
      summary: "List folders",
      description:
        "The folders in a folder, or at the top of the space, oldest first. 404 for an unknown folder, or if you are " +
        "not a member.",
      path: folderPath,
      scope: "documents:read",
      params: folderParams,
      filters: { parent_id: id.optional().describe("Whose folders; absent: those at the top.") },
      item: Folder,
      position: id,
      isCapped: false,
      readPage: (user, { space_id, parent_id = null }, above, limit) =>
        listFolders(pool, user, [space_id, parent_id], above, limit),
      bodyOf: (folder) => folder,
    }),
    write({
      risk: "reversible",
      key: "folders.create",
      summary: "Add a folder",
      description:
        "Creates a folder in another one, or at the top of the space. For members who may upload: others get 403. " +
        "409 if there already is one with the same name.",
      method: "POST",
      path: folderPath,
      scope: "documents:write",
      params: folderParams,
      body: jsonBody(NewFolder),
      audit: ({ params }, { body: { id: folder_id, parent_id, name } }) => {
        return { ...params, folder_id, parent_id, name };
      },
      response: jsonResponse(201, Folder),
      errors: ["not_found", "access_denied", "folder_name_taken", ...QUOTA_CODES],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { name, parent_id: folderId = null } = body;
        const place = { spaceId: params.space_id, folderId };
        await requirePermission(request, "upload", lockSpace(tx, user, place.spaceId));
        if (!(await hasFolder(tx, user.accountId, place))) throw request.problem("not_found");
        const folder = await insertFolder(tx, user, place.spaceId, folderId, name);
        if (folder === null) throw request.problem("folder_name_taken");
        return { body: folder };
      },
    }),
    list({
      key: "documents.list",
      summary: "List documents",
      description:
        "The documents of a space, or of one of its folders, newest first. 404 for an unknown folder, or if you are " +
        "not a member.",
      path,
      scope: "documents:read",
      filters: {
        space_id: id,
        folder_id: id.optional().describe("Only those in this folder; absent: all, in any folder."),
      },
      item: Document,
      position: id,
      isCapped: true,
      readPage: (user, { space_id, folder_id = null }, below, limit) =>
        listDocuments(pool, user, [space_id, folder_id], below, limit),
      bodyOf: (document) => document,
    }),
    write({
      risk: "reversible",
      key: "documents.create",
      summary: "Add a document",
      description:
        "Creates a document without content, which is uploaded to it afterwards. For members who may upload: others " +
        "get 403. 409 if the folder already has one with the same name.",
      method: "POST",
      path,
      scope: "documents:write",
      body: jsonBody(NewDocument),
      audit: ({ body: { space_id, folder_id } }, { body: { id: document_id, file_name, file_size } }) => {
        return { document_id, space_id, folder_id: folder_id ?? null, file_name, file_size };
      },
      response: jsonResponse(201, Document),
      errors: ["not_found", "access_denied", "document_name_taken", ...QUOTA_CODES],
      handle: async (request, tx) => {
        const { user, body } = request;
        const { folder_id = null, ...named } = body;
        const { space_id, file_name } = named;
        if (named.file_size > DOCUMENT_BYTES_MAX) throw new Problem("payload_too_large");
        const space = await requirePermission(request, "upload", lockSpace(tx, user, space_id));
        const place = { spaceId: space_id, folderId: folder_id };
        if (!(await hasFolder(tx, user.accountId, place))) throw request.problem("not_found");
        const id = await newId(tx);
        const content_type = tidyMediaType(named.content_type)!;
        const storage_key = newObjectKey({ ...space, id, file_name });
        const live_content_type = liveContentType(content_type);
        const document = { ...named, id, folder_id, content_type, storage_key, live_content_type };
        const isInserted = await insertDocument(tx, user, document);
        if (!isInserted) throw request.problem("document_name_taken");
        return { body: documentBody((await findDocument(tx, user, id))!) };
      },
    }),
    get({
      key: "documents.get",
      summary: "Get a document",
      description: "One document. 404 if you are not a member of its space.",
      path: `${path}/{document_id}`,
      scope: "documents:read",
      params,
      response: Document,
      find: (user, { document_id }) => findDocument(pool, user, document_id),
      bodyOf: documentBody,
    }),
    write({
      risk: "reversible",
      key: "documents.update",
      summary: "Rename a document",
      description:
        "Gives the document another name at once. Its object is moved to the new name afterwards, and can be " +
        "downloaded throughout: until then `storage_key` is the one before. For members who may rename: others get " +
        "403. 409 if the folder already has one with that name.",
      method: "PATCH",
      mode: "async",
      path: `${path}/{document_id}`,
      scope: "documents:write",
      params,
      body: jsonBody(Renamed),
      audit: ({ params: { document_id } }, { body: { file_name } }) => ({ document_id, file_name }),
      response: jsonResponse(200, Document),
      errors: ["not_found", "access_denied", "document_name_taken"],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { file_name } = body;
        const found = lockDocument(tx, user, params.document_id);
        const document = await requirePermission(request, "rename", found);
        const { id, space_id, has_content } = document;
        if (has_content) await requireRoomForLeftovers(tx, user);
        const key = newObjectKey({ ...document, file_name });
        const isRenamed = await renameDocument(tx, user.accountId, id, file_name, key);
        if (!isRenamed) throw request.problem("document_name_taken");
        if (has_content) await askForMove(tx, user, space_id, id);
        return { body: documentBody((await findDocument(tx, user, id))!) };
      },
    }),
  ];
}
