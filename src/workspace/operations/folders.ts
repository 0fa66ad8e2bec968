import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { DISPLAY_NAME_CHARS_MAX } from "../../base/model/formats.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { createCursors, pageOf, pageQuery } from "../../http/pagination.ts";
import { isFolderName } from "../model/names.ts";
import { hasFolder, insertFolder, listFolders, type StoredFolder } from "../store/folders.ts";
import { lockSpace } from "../store/spaces.ts";
import {
  NamedUser,
  namedUserBody,
  read,
  requirePermission,
  userOf,
  type WorkspaceDependencies,
  write,
} from "./workspace-operation.ts";

const tag = "Documents";
const path = "/v1/spaces/{space_id}/folders";
const params = z.strictObject({ space_id: id });

const Folder = z
  .object({
    id,
    space_id: id,
    parent_id: id.nullable().describe("The folder that it lies in; null: at the top of the space."),
    name: z.string(),
    created_by: NamedUser,
    created_at: time,
  })
  .meta({ id: "Folder", description: "A folder of a space." });

const NewFolder = z.strictObject({
  name: z
    .string()
    .refine(isFolderName, {
      error:
        `Must have 1 to ${DISPLAY_NAME_CHARS_MAX} characters, no control characters, slashes or backslashes, and no ` +
        "spaces around it, and be neither . nor ..",
    })
    .meta({ minLength: 1, maxLength: DISPLAY_NAME_CHARS_MAX })
    .describe("No other folder in the same place has it."),
  parent_id: id.optional().describe("The folder to make it in; absent: the top of the space."),
});

/** What documents of a space lie in. */
export function folderOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  const cursors = createCursors(id);
  return [
    read({
      key: "folders.list",
      tag,
      summary: "List folders",
      description:
        "The folders in a folder, or at the top of the space, oldest first. 404 for an unknown folder, or if you are " +
        "not a member.",
      method: "GET",
      path,
      scope: "documents:read",
      needsUser: true,
      params,
      query: z.strictObject({
        parent_id: id.optional().describe("Whose folders; absent: those at the top."),
        ...pageQuery,
      }),
      response: jsonResponse(200, pageOf(Folder)),
      errors: ["not_found"],
      handle: async (request) => {
        const { parent_id: folderId = null, cursor, limit } = request.query;
        const place = { spaceId: request.params.space_id, folderId };
        const user = userOf(request);
        const filter = [user, place];
        const page = await listFolders(pool, user, place, cursors.read(cursor, filter), limit);
        if (page === null) throw request.problem("not_found");
        return { body: cursors.pageBody(page, filter, folderBody) };
      },
    }),
    write({
      key: "folders.create",
      tag,
      summary: "Add a folder",
      description:
        "Makes a folder in another, or at the top of the space. For members who may upload: others get 403. 409 if " +
        "there is one of the same name.",
      method: "POST",
      path,
      scope: "documents:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      params,
      body: jsonBody(NewFolder),
      audit: ({ params }, { body: { id: folder_id, parent_id, name } }) => {
        return { ...params, folder_id, parent_id, name };
      },
      response: jsonResponse(201, Folder),
      errors: ["not_found", "access_denied", "folder_name_taken"],
      handle: async (request, tx) => {
        const { name, parent_id: folderId = null } = request.body;
        const user = userOf(request);
        const place = { spaceId: request.params.space_id, folderId };
        requirePermission(await lockSpace(tx, user, place.spaceId), "upload", request);
        if (!(await hasFolder(tx, user.accountId, place))) throw request.problem("not_found");
        const folder = await insertFolder(tx, user, place, name);
        if (folder === null) throw request.problem("folder_name_taken");
        return { body: folderBody(folder) };
      },
    }),
  ];
}

function folderBody(folder: StoredFolder): z.output<typeof Folder> {
  return {
    id: folder.id,
    space_id: folder.spaceId,
    parent_id: folder.parentId,
    name: folder.name,
    created_by: namedUserBody(folder.createdBy),
    created_at: folder.createdAt.toISOString(),
  };
}
