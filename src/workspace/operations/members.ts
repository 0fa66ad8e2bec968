import { z } from "zod";
import { id } from "../../api/fields.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { PageLink } from "../model/pages.ts";
import { Member, role } from "../model/spaces.ts";
import { findMember, listMembers, removeMember, type StoredMember, setMember } from "../store/members.ts";
import { listOpenLinksOf } from "../store/page-links.ts";
import { lockSpace } from "../store/spaces.ts";
import { linkBody } from "./page-links.ts";
import {
  list,
  requirePermission,
  reversible,
  userOf,
  type WorkspaceDependencies,
  write,
} from "./workspace-operation.ts";

const tag = "Spaces";
const path = "/v1/spaces/{space_id}/members";
const params = z.strictObject({ space_id: id });
const memberParams = z.strictObject({ space_id: id, user_id: id });

const LINKS_TOLD_MAX = 100;

const RemovedMember = z
  .object({
    user_id: id,
    open_links: z
      .array(PageLink)
      .max(LINKS_TOLD_MAX)
      .describe(
        "Links to pages of the space that the user has made, and that still open for whoever has their URLs: newest " +
          `first, at most ${LINKS_TOLD_MAX}. Revoke those that nobody else needs.`,
      ),
    open_links_total: z.int().min(0).describe("How many there are."),
  })
  .meta({ id: "RemovedMember", description: "Who was a member, and what is left of it." });

/** Who may do what in a space. */
export function memberOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  return [
    list({
      key: "spaces.members.list",
      tag,
      summary: "List members of a space",
      description: "Who may do what in the space, its owner included. 404 if you are not a member.",
      path,
      scope: "spaces:read",
      params,
      item: Member,
      position: id,
      isCapped: false,
      readPage: (user, { space_id }, above, limit) => listMembers(pool, user, space_id, above, limit),
      bodyOf: memberBody,
    }),
    write({
      ...reversible,
      key: "spaces.members.set",
      tag,
      summary: "Set a member of a space",
      description:
        "Makes a user of the account a member, or changes its role. For ADMINs: other members get 403. 404 also for " +
        "an unknown user, 409 for the owner, who stays an ADMIN.",
      method: "PUT",
      path: `${path}/{user_id}`,
      scope: "spaces:write",
      params: memberParams,
      body: jsonBody(z.strictObject({ role })),
      audit: ({ params, body }) => ({ ...params, role: body.role }),
      response: jsonResponse(200, Member),
      errors: ["not_found", "access_denied", "space_owner_fixed"],
      handle: async (request, tx) => {
        const { space_id: spaceId, user_id: userId } = request.params;
        const member = { accountId: request.accountId, userId };
        requirePermission(await lockSpace(tx, userOf(request), spaceId), "manage_members", request);
        if ((await findMember(tx, member, spaceId))?.is_owner) throw request.problem("space_owner_fixed");
        if ((await setMember(tx, member, spaceId, request.body.role)) === "unknown_user") {
          throw request.problem("not_found");
        }
        return { body: memberBody((await findMember(tx, member, spaceId))!) };
      },
    }),
    write({
      ...reversible,
      key: "spaces.members.remove",
      tag,
      summary: "Remove a member of a space",
      description:
        "The user has no access any more, and requests that are repeated under an Idempotency-Key are answered like " +
        "anybody's. Links to pages stay: those that the user has made are told, so that they can be revoked. For " +
        "ADMINs, who can remove themselves, too: other members get 403. 409 for the owner.",
      method: "DELETE",
      path: `${path}/{user_id}`,
      scope: "spaces:write",
      params: memberParams,
      audit: ({ params }, { body: { open_links_total } }) => ({ ...params, open_links: open_links_total }),
      response: jsonResponse(200, RemovedMember),
      errors: ["not_found", "access_denied", "space_owner_fixed"],
      handle: async (request, tx) => {
        const { space_id: spaceId, user_id: userId } = request.params;
        const member = { accountId: request.accountId, userId };
        requirePermission(await lockSpace(tx, userOf(request), spaceId), "manage_members", request);
        const found = await findMember(tx, member, spaceId);
        if (found === null) throw request.problem("not_found");
        if (found.is_owner) throw request.problem("space_owner_fixed");
        await removeMember(tx, member, spaceId);
        const { links, total } = await listOpenLinksOf(tx, member, spaceId, LINKS_TOLD_MAX);
        return {
          body: { user_id: userId, open_links: links.map(linkBody), open_links_total: total },
        };
      },
    }),
  ];
}

function memberBody({ userId: _, ...member }: StoredMember): Member {
  return member;
}
