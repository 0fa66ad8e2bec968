import { z } from "zod";
import { displayName, id } from "../../api/fields.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { allows } from "../model/roles.ts";
import { Space } from "../model/spaces.ts";
import { askForMove } from "../store/moves.ts";
import {
  findSpace,
  insertSpace,
  listSpaces,
  lockSpace,
  renameSpace,
  type StoredSpace,
} from "../store/spaces.ts";
import { requireRoomForLeftovers } from "../store/storage.ts";
import {
  get,
  list,
  requirePermission,
  reversible,
  userOf,
  type WorkspaceDependencies,
  write,
} from "./workspace-operation.ts";

const tag = "Spaces";
const path = "/v1/spaces";
const params = z.strictObject({ space_id: id });

const NamedSpace = z.strictObject({ name: displayName.describe("For people; several spaces may have it.") });

/** Rooms for documents, which belong to users and their members. */
export function spaceOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  return [
    list({
      key: "spaces.list",
      tag,
      summary: "List spaces",
      description: "Every space that you own or are a member of, newest first.",
      path,
      scope: "spaces:read",
      item: Space,
      position: id,
      isCapped: true,
      errors: [],
      readPage: (user, _, below, limit) => listSpaces(pool, user, below, limit),
      bodyOf: spaceBody,
    }),
    write({
      ...reversible,
      key: "spaces.create",
      tag,
      summary: "Add a space",
      description: "Makes an empty space that you own.",
      method: "POST",
      path,
      scope: "spaces:write",
      body: jsonBody(NamedSpace),
      audit: (_, { body: { id: space_id, name } }) => ({ space_id, name }),
      // Its owner is a member, always.
      judgeRepeat: async () => "again",
      response: jsonResponse(201, Space),
      handle: async (request, tx) => {
        const user = userOf(request);
        const spaceId = await insertSpace(tx, user, request.body.name);
        return { body: spaceBody((await findSpace(tx, user, spaceId))!) };
      },
    }),
    get({
      key: "spaces.get",
      tag,
      summary: "Get a space",
      description: "One space, with what you may do in it. 404 if you are not a member.",
      path: `${path}/{space_id}`,
      scope: "spaces:read",
      params,
      response: Space,
      find: (user, { space_id }) => findSpace(pool, user, space_id),
      bodyOf: spaceBody,
    }),
    write({
      ...reversible,
      key: "spaces.update",
      tag,
      summary: "Rename a space",
      description:
        "Gives the space another name, and with it another storage_prefix, both at once. What is stored is moved " +
        "there afterwards, and can be downloaded all the time. For members who may rename: others get 403.",
      method: "PATCH",
      path: `${path}/{space_id}`,
      scope: "spaces:write",
      params,
      body: jsonBody(NamedSpace),
      audit: ({ params: { space_id } }, { body: { name } }) => ({ space_id, name }),
      response: jsonResponse(200, Space),
      errors: ["not_found", "access_denied"],
      handle: async (request, tx) => {
        const { accountId, body } = request;
        const { space_id: spaceId } = request.params;
        const user = userOf(request);
        requirePermission(await lockSpace(tx, user, spaceId), "rename", request);
        await requireRoomForLeftovers(tx, accountId);
        await renameSpace(tx, accountId, spaceId, body.name);
        await askForMove(tx, accountId, spaceId, null);
        return { body: spaceBody((await findSpace(tx, user, spaceId))!) };
      },
    }),
  ];
}

function spaceBody(space: StoredSpace): Space {
  const { role } = space;
  return {
    ...space,
    can_read: allows(role, "read"),
    can_download: allows(role, "download"),
    can_upload: allows(role, "upload"),
    can_delete: allows(role, "delete"),
    can_rename: allows(role, "rename"),
    skill_count: 0,
  };
}
