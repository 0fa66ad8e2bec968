import { z } from "zod";
import { displayName, id } from "../../api/fields.ts";
import { jsonBody, jsonResponse, type Operation } from "../../http/operation.ts";
import { cancelReplaysOf } from "../../log/replays-sql.ts";
import { storagePrefix } from "../model/documents.ts";
import { PageLink } from "../model/pages.ts";
import { allows } from "../model/roles.ts";
import { Member, role, Space } from "../model/spaces.ts";
import { askForMove } from "../store/moves.ts";
import { listOpenLinksOf } from "../store/page-links.ts";
import {
  findMember,
  findSpace,
  insertSpace,
  listMembers,
  listSpaces,
  lockSpace,
  removeMember,
  renameSpace,
  type StoredMember,
  type StoredSpace,
  setMember,
} from "../store/spaces.ts";
import { requireRoomForLeftovers } from "../store/storage.ts";
import { linkBody } from "./page-links.ts";
import { operationsOf, requirePermission, type WorkspaceDependencies } from "./workspace-operation.ts";

const { get, list, write } = operationsOf("Spaces");
const path = "/v1/spaces";
const params = z.strictObject({ space_id: id });

const NamedSpace = z.strictObject({
  name: displayName.describe("For people; several spaces may have the same one."),
});

const membersPath = "/v1/spaces/{space_id}/members";
const memberParams = z.strictObject({ space_id: id, user_id: id });

const LINKS_TOLD_MAX = 100;

const RemovedMember = z
  .object({
    user_id: id,
    open_links: z
      .array(PageLink)
      .max(LINKS_TOLD_MAX)
      .describe(
        "The user's links to pages of the space that still open for anyone who has their URLs: " +
          `newest first, at most ${LINKS_TOLD_MAX}. Revoke those that nobody else needs.`,
      ),
    open_links_total: z.int().min(0).describe("How many there are, counted up to 10,001."),
  })
  .meta({ id: "RemovedMember", description: "Who was removed, and which of their links still open." });

/** Rooms for documents, which belong to users, and who may do what in them. */
export function spaceOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  return [
    list({
      key: "spaces.list",
      summary: "List spaces",
      description: "Every space that you own or are a member of, newest first, without those in the bin.",
      path,
      scope: "spaces:read",
      item: Space,
      filters: {
        deleted: z
          .boolean()
          .optional()
          .describe("True: those that were deleted, and can be restored, instead of the others."),
      },
      position: id,
      isCapped: true,
      errors: [],
      readPage: (user, { deleted = false }, below, limit) => listSpaces(pool, user, [deleted], below, limit),
      bodyOf: spaceBody,
    }),
    write({
      risk: "reversible",
      key: "spaces.create",
      summary: "Add a space",
      description: "Creates an empty space that you own.",
      method: "POST",
      path,
      scope: "spaces:write",
      body: jsonBody(NamedSpace),
      audit: (_, { body: { id: space_id, name } }) => ({ space_id, name }),
      // Its owner is a member, always.
      judgeRepeat: async () => "again",
      response: jsonResponse(201, Space),
      errors: ["too_many_spaces", "billing_credits_exhausted"],
      handle: async (request, tx) => {
        const { user, body } = request;
        const spaceId = await insertSpace(tx, user, body.name);
        if (spaceId === null) throw request.problem("too_many_spaces");
        return { body: spaceBody((await findSpace(tx, user, spaceId))!) };
      },
    }),
    get({
      key: "spaces.get",
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
      risk: "reversible",
      key: "spaces.update",
      summary: "Rename a space",
      description:
        "Gives the space another name, and with it another storage_prefix, both at once. Stored objects are " +
        "moved there afterwards, and can be downloaded throughout. For members who may rename: others get 403.",
      method: "PATCH",
      path: `${path}/{space_id}`,
      scope: "spaces:write",
      params,
      body: jsonBody(NamedSpace),
      audit: ({ params: { space_id } }, { body: { name } }) => ({ space_id, name }),
      response: jsonResponse(200, Space),
      errors: ["not_found", "access_denied"],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { space_id: spaceId } = params;
        await requirePermission(request, "rename", lockSpace(tx, user, spaceId));
        await requireRoomForLeftovers(tx, user);
        await renameSpace(tx, user.accountId, spaceId, body.name, storagePrefix(body.name, spaceId));
        await askForMove(tx, user, spaceId, null);
        return { body: spaceBody((await findSpace(tx, user, spaceId))!) };
      },
    }),
    list({
      key: "spaces.members.list",
      summary: "List members of a space",
      description: "Who may do what in the space, its owner included. 404 if you are not a member.",
      path: membersPath,
      scope: "spaces:read",
      params,
      item: Member,
      position: id,
      isCapped: false,
      readPage: (user, { space_id }, above, limit) => listMembers(pool, user, [space_id], above, limit),
      bodyOf: memberBody,
    }),
    write({
      risk: "reversible",
      key: "spaces.members.set",
      summary: "Set a member of a space",
      description:
        "Makes a user of the account a member, or changes their role. For ADMINs: other members get 403. 404 also " +
        "for an unknown user, 409 for the owner, who stays an ADMIN.",
      method: "PUT",
      path: `${membersPath}/{user_id}`,
      scope: "spaces:write",
      params: memberParams,
      body: jsonBody(z.strictObject({ role })),
      audit: ({ params, body }) => ({ ...params, role: body.role }),
      response: jsonResponse(200, Member),
      errors: ["not_found", "access_denied", "space_owner_fixed", "too_many_spaces"],
      handle: async (request, tx) => {
        const { space_id: spaceId, user_id: userId } = request.params;
        const member = { accountId: request.accountId, userId };
        await requirePermission(request, "manage_members", lockSpace(tx, request.user, spaceId));
        if ((await findMember(tx, member, spaceId))?.is_owner) throw request.problem("space_owner_fixed");
        const outcome = await setMember(tx, member, spaceId, request.body.role);
        if (outcome === "unknown_user") throw request.problem("not_found");
        if (outcome === "too_many_spaces") throw request.problem("too_many_spaces");
        return { body: memberBody((await findMember(tx, member, spaceId))!) };
      },
    }),
    write({
      risk: "reversible",
      key: "spaces.members.remove",
      summary: "Remove a member of a space",
      description:
        "The user no longer has access: a repeat with an Idempotency-Key is answered like " +
        "any non-member's. Bulk replays of the space's deliveries that the user has running stop. Links stay: those " +
        "that the user has created are listed, so that they can be revoked. For ADMINs, and for members who remove " +
        "themselves: others get 403. 409 for the owner.",
      method: "DELETE",
      path: `${membersPath}/{user_id}`,
      scope: "spaces:write",
      params: memberParams,
      audit: ({ params }, { body: { open_links_total } }) => ({ ...params, open_links: open_links_total }),
      response: jsonResponse(200, RemovedMember),
      errors: ["not_found", "access_denied", "space_owner_fixed"],
      handle: async (request, tx) => {
        const { space_id: spaceId, user_id: userId } = request.params;
        const { accountId, user } = request;
        const member = { accountId, userId };
        const permission = user.userId === userId ? "read" : "manage_members";
        await requirePermission(request, permission, lockSpace(tx, user, spaceId));
        const found = await findMember(tx, member, spaceId);
        if (found === null) throw request.problem("not_found");
        if (found.is_owner) throw request.problem("space_owner_fixed");
        await removeMember(tx, member, spaceId);
        await cancelReplaysOf(tx, member, spaceId);
        const links = await listOpenLinksOf(tx, member, spaceId, LINKS_TOLD_MAX);
        const open_links = links.map(({ total: _, ...link }) => linkBody(link));
        return { body: { user_id: userId, open_links, open_links_total: links[0]?.total ?? 0 } };
      },
    }),
  ];
}

function memberBody({ userId: _, ...member }: StoredMember): Member {
  return member;
}

export function spaceBody(space: StoredSpace): Space {
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
