import { z } from "zod";
import { id } from "../../api/fields.ts";
import { DISPLAY_NAME_CHARS_MAX } from "../../base/model/formats.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { Folder } from "../model/documents.ts";
import { isFolderName } from "../model/names.ts";
import { hasFolder, insertFolder, listFolders } from "../store/folders.ts";
import { lockSpace } from "../store/spaces.ts";
import {
  list,
  requirePermission,
  reversible,
  userOf,
  type WorkspaceDependencies,
  write,
} from "./workspace-operation.ts";

const tag = "Documents";
const path = "/v1/spaces/{space_id}/folders";
const params = z.strictObject({ space_id: id });

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
  return [
    list({
      key: "folders.list",
      tag,
      summary: "List folders",
      description:
        "The folders in a folder, or at the top of the space, oldest first. 404 for an unknown folder, or if you are " +
        "not a member.",
      path,
      scope: "documents:read",
      params,
      filters: { parent_id: id.optional().describe("Whose folders; absent: those at the top.") },
      item: Folder,
      position: id,
      isCapped: false,
      readPage: (user, { space_id: spaceId, parent_id: folderId = null }, above, limit) =>
        listFolders(pool, user, { spaceId, folderId }, above, limit),
      bodyOf: (folder) => folder,
    }),
    write({
      ...reversible,
      key: "folders.create",
      tag,
      summary: "Add a folder",
      description:
        "Makes a folder in another, or at the top of the space. For members who may upload: others get 403. 409 if " +
        "there is one of the same name.",
      method: "POST",
      path,
      scope: "documents:write",
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
        return { body: folder };
      },
    }),
  ];
}
