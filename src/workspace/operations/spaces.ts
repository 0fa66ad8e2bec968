import { z } from "zod";
import { displayName, id, time } from "../../api/fields.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../../http/pagination.ts";
import { allows, SPACE_ROLES } from "../model/roles.ts";
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
import { read, requirePermission, userOf, type WorkspaceDependencies, write } from "./workspace-operation.ts";

const tag = "Spaces";
const path = "/v1/spaces";
const params = z.strictObject({ space_id: id });

const Space = z
  .object({
    id,
    idp_user_id: z.string().describe("The owner, as the account's identity provider knows them."),
    name: z.string(),
    storage_prefix: z.string().describe("Where the space's objects are kept."),
    created_at: time,
    role: z.enum(SPACE_ROLES).describe("Yours in this space; the following say what it allows."),
    is_owner: z.boolean().describe("Whether you own it; owners are ADMIN."),
    can_read: z.boolean(),
    can_download: z.boolean(),
    can_upload: z.boolean(),
    can_delete: z.boolean(),
    can_rename: z.boolean(),
    document_count: z.int().min(0),
    member_count: z.int().min(1),
    skill_count: z.int().min(0).describe("0: there are no skills yet."),
  })
  .meta({ id: "Space", description: "A room for documents, as you see it." });

const NamedSpace = z.strictObject({ name: displayName.describe("For people; several spaces may have it.") });

/** Rooms for documents, which belong to users and their members. */
export function spaceOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  const cursors = createCursors(id);
  return [
    read({
      key: "spaces.list",
      tag,
      summary: "List spaces",
      description: "Every space that you own or are a member of, newest first.",
      method: "GET",
      path,
      scope: "spaces:read",
      needsUser: true,
      query: z.strictObject(pageQuery),
      response: jsonResponse(200, pageOf(Space), totalCappedHeader),
      handle: async (request) => {
        const { cursor, limit } = request.query;
        const user = userOf(request);
        const page = await listSpaces(pool, user, cursors.read(cursor, user), limit);
        return { body: cursors.pageBody(page, user, spaceBody), headers: totalHeaders(page) };
      },
    }),
    write({
      key: "spaces.create",
      tag,
      summary: "Add a space",
      description: "Makes an empty space that you own.",
      method: "POST",
      path,
      scope: "spaces:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
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
    read({
      key: "spaces.get",
      tag,
      summary: "Get a space",
      description: "One space, with what you may do in it. 404 if you are not a member.",
      method: "GET",
      path: `${path}/{space_id}`,
      scope: "spaces:read",
      needsUser: true,
      params,
      response: jsonResponse(200, Space),
      errors: ["not_found"],
      handle: async (request) => {
        const space = await findSpace(pool, userOf(request), request.params.space_id);
        if (space === null) throw request.problem("not_found");
        return { body: spaceBody(space) };
      },
    }),
    write({
      key: "spaces.update",
      tag,
      summary: "Rename a space",
      description:
        "Gives the space another name, and with it another storage_prefix, both at once. What is stored is moved " +
        "there afterwards, and can be downloaded all the time. For members who may rename: others get 403.",
      method: "PATCH",
      path: `${path}/{space_id}`,
      scope: "spaces:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
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

function spaceBody(space: StoredSpace): z.output<typeof Space> {
  const { role } = space;
  return {
    id: space.id,
    idp_user_id: space.idpUserId,
    name: space.name,
    storage_prefix: space.storagePrefix,
    created_at: space.createdAt.toISOString(),
    role,
    is_owner: space.isOwner,
    can_read: allows(role, "read"),
    can_download: allows(role, "download"),
    can_upload: allows(role, "upload"),
    can_delete: allows(role, "delete"),
    can_rename: allows(role, "rename"),
    document_count: space.documentCount,
    member_count: space.memberCount,
    skill_count: 0,
  };
}
