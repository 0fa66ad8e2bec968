import { z } from "zod";
import { displayName, INTEGER_MAX, id, lineOfText, moment } from "../../api/fields.ts";
import { digestSecret, newSecret } from "../../http/api-keys.ts";
import { jsonBody, jsonResponse, type Operation } from "../../http/operation.ts";
import { invalidRequest, TemporarilyUnavailable } from "../../http/problems.ts";
import { LINK_CONSTANTS, linkState, PageLink } from "../model/pages.ts";
import { allows, type SpaceRole } from "../model/roles.ts";
import {
  changeLink,
  type FoundLink,
  findLink,
  insertLink,
  listLinks,
  lockLink,
  pinLink,
  type StoredLink,
} from "../store/page-links.ts";
import { findPage, findVersion, lockPage } from "../store/pages.ts";
import type { SpaceUser } from "../store/statements.ts";
import { LINK_PATH, PASSWORD_CHARS_MAX } from "../visiting/visits.ts";
import { operationsOf, requirePermission, type WorkspaceDependencies } from "./workspace-operation.ts";

const { get, list, write } = operationsOf("Pages");
const pagePath = "/v1/pages/{page_id}/links";
const path = "/v1/page-links";
const pageParams = z.strictObject({ page_id: id });
const params = z.strictObject({ link_id: id });

/** Not `NewPageLink`: in Go, generators call the function that makes a `PageLink` by that name. */
const CreatedPageLink = PageLink.extend({
  url: z.url().describe("The link itself. Store it now; it is shown only once."),
}).meta({ id: "CreatedPageLink", description: "A link that was just made." });

const NOT_ENFORCED =
  "Must be empty: visitors are not asked who they are, so this could not be enforced. Use a password.";
const nobody = z
  // Of anything: each string of thousands would be judged before it is said that there may be none.
  .array(z.unknown())
  .refine(({ length }) => length === 0, { error: NOT_ENFORCED })
  .meta({ maxItems: 0, items: { type: "string" } })
  .describe(NOT_ENFORCED);

const settings = {
  label: displayName.describe("For people."),
  expires_at: moment
    .refine(isInOurYears, { error: "Must be in the years 1 to 9999, in UTC." })
    .nullable()
    .describe("When it expires; null: never. For a new link it must be in the future."),
  max_visits: z
    .int()
    .min(1)
    .max(INTEGER_MAX)
    .nullable()
    .describe("How often it can be opened, link previews included; null: no limit."),
  // Nobody could type a control character.
  password: lineOfText
    .min(8)
    .max(PASSWORD_CHARS_MAX)
    .nullable()
    .describe("Visitors are asked for it; null: they are not."),
  allowed_emails: nobody,
  allowed_domains: nobody,
};

const LinkSettings = z.strictObject(settings).partial().required({ label: true });

const LinkChanges = z
  .strictObject({
    ...settings,
    pinned: z.literal(false).describe("It follows new versions again. To pin it, retarget it."),
    status: z.literal("REVOKED").describe("It never opens again."),
  })
  .partial();

/** Those that PostgreSQL and our answers write in four digits. What is no moment at all is told so alone. */
function isInOurYears(text: string): boolean {
  const year = new Date(text).getUTCFullYear();
  return !(year < 1 || year > 9_999);
}

const Retargeting = z.strictObject({ page_version_id: id });

export type PageLinkDependencies = Pick<WorkspaceDependencies, "pool" | "pagesUrl"> & {
  /** Takes a while. @throws TemporarilyUnavailable when its turn does not come in time */
  readonly hashPassword: (sharer: string, password: string, gone: AbortSignal) => Promise<string>;
};

type WithPassword = {
  readonly user: SpaceUser;
  readonly sharer: string;
  readonly body: { readonly password?: string | null | undefined };
};

/** Links by which anybody can open a page. */
export function pageLinkOperations({
  pool,
  pagesUrl,
  hashPassword,
}: PageLinkDependencies): readonly Operation[] {
  /**
   * No transaction waits for it, and it is not done for whoever is refused anyway. Resolves with what tells it: null,
   * there is no password; undefined, it stays. That throws TemporarilyUnavailable for whoever was allowed only after
   * the look: there is never a link without its password.
   */
  async function hashOf(
    { user, sharer, body: { password } }: WithPassword,
    gone: AbortSignal,
    find: (user: SpaceUser) => Promise<{ readonly role: SpaceRole } | null>,
  ): Promise<() => string | null | undefined> {
    if (typeof password !== "string") return () => password;
    const found = await find(user);
    if (found === null || !allows(found.role, "edit_pages")) {
      return () => {
        throw new TemporarilyUnavailable("a role was changed meanwhile");
      };
    }
    const hash = await hashPassword(sharer, password, gone);
    return () => hash;
  }

  return [
    write({
      risk: "reversible",
      key: "pages.links_create",
      summary: "Add a link to a page",
      description:
        "Creates a link that shows the page's newest version to anyone who has its `url`, which is shown only once. " +
        "For ADMINs and EDITORs: other members get 403. 409 if nothing has been published, or this installation " +
        "does not serve pages.",
      method: "POST",
      path: pagePath,
      scope: "pages:write",
      holdsSecret: true,
      params: pageParams,
      body: jsonBody(LinkSettings),
      audit: ({ params }, { body: { id: link_id, label, expires_at, max_visits, has_password } }) => {
        return { ...params, link_id, label, expires_at, max_visits, has_password };
      },
      response: jsonResponse(201, CreatedPageLink),
      errors: [
        ...(["not_found", "access_denied", "page_not_published", "pages_not_configured"] as const),
        "billing_credits_exhausted",
      ],
      judgeRepeat: async (request, tx) => {
        const { user, params } = request;
        await requirePermission(request, "edit_pages", findPage(tx, user, params.page_id));
        return "again";
      },
      prepare: (request, gone) =>
        hashOf(request, gone, (user) => findPage(pool, user, request.params.page_id)),
      handle: async (request, tx, hashed) => {
        const { user, params, body } = request;
        const { password: _, ...settings } = body;
        const page = await requirePermission(request, "edit_pages", lockPage(tx, user, params.page_id));
        if (pagesUrl === null) throw request.problem("pages_not_configured");
        if (page.current_version === null) throw request.problem("page_not_published");
        const token = newSecret();
        const newLink = { ...settings, password_hash: hashed() };
        const link = await insertLink(tx, user, page.id, digestSecret(token), newLink);
        if (link === null) {
          const message = "Must be in the future: nobody could open the link. Give a later time, or null.";
          throw invalidRequest("body.expires_at", message);
        }
        const made = foundLinkBody((await findLink(tx, user, link.id))!);
        return { body: { ...made, url: `${pagesUrl}${LINK_PATH}/${token}` } };
      },
    }),
    list({
      key: "pages.links_list",
      summary: "List links to a page",
      description:
        "The links to a page, newest first, without their URLs. 404 if you are not a member of its space.",
      path: pagePath,
      scope: "pages:read",
      params: pageParams,
      item: PageLink,
      position: id,
      isCapped: true,
      readPage: (user, { page_id }, below, limit) => listLinks(pool, user, [page_id], below, limit),
      bodyOf: linkBody,
    }),
    get({
      key: "pages.links_get",
      summary: "Get a link to a page",
      description: "One link, without its URL. 404 if you are not a member of its page's space.",
      path: `${path}/{link_id}`,
      scope: "pages:read",
      params,
      response: PageLink,
      find: (user, { link_id }) => findLink(pool, user, link_id),
      bodyOf: foundLinkBody,
    }),
    write({
      risk: "reversible",
      key: "pages.links_update",
      summary: "Change a link to a page",
      description:
        "Changes the given fields. `pinned: false`: it follows new versions again. `status: REVOKED`: it never opens " +
        "again. For ADMINs and EDITORs: other members get 403. 409 if it was revoked before.",
      method: "PATCH",
      path: `${path}/{link_id}`,
      scope: "pages:write",
      params,
      body: jsonBody(LinkChanges),
      audit: ({ params, body: { password, ...changes } }) => ({
        ...params,
        ...changes,
        ...(password === undefined ? {} : { has_password: password !== null }),
      }),
      response: jsonResponse(200, PageLink),
      errors: ["not_found", "access_denied", "page_link_revoked"],
      prepare: (request, gone) =>
        hashOf(request, gone, (user) => findLink(pool, user, request.params.link_id)),
      handle: async (request, tx, hashed) => {
        const { user, params, body } = request;
        const { password: _, ...changes } = body;
        const link = await requirePermission(request, "edit_pages", lockLink(tx, user, params.link_id));
        if (link.status === "REVOKED") throw request.problem("page_link_revoked");
        await changeLink(tx, user.accountId, link.id, { ...changes, password_hash: hashed() });
        return { body: foundLinkBody((await findLink(tx, user, link.id))!) };
      },
    }),
    write({
      risk: "reversible",
      key: "pages.links_retarget",
      summary: "Point a link at another version",
      description:
        "The link shows this version of its page, and is pinned to it: it does not follow new versions until it is " +
        "changed to `pinned: false`. For ADMINs and EDITORs: other members get 403. 422 if it is not a version of " +
        "its page, 409 if the link was revoked or has expired.",
      method: "POST",
      path: `${path}/{link_id}/retarget`,
      scope: "pages:write",
      params,
      body: jsonBody(Retargeting),
      audit: ({ params, body }) => ({ ...params, ...body }),
      response: jsonResponse(200, PageLink),
      errors: [
        "not_found",
        "access_denied",
        "page_link_revoked",
        "page_link_expired",
        "page_version_mismatch",
      ],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { page_version_id: versionId } = body;
        const link = await requirePermission(request, "edit_pages", lockLink(tx, user, params.link_id));
        const { id: linkId, page_id: pageId, status, isExpired } = link;
        if (status === "REVOKED") throw request.problem("page_link_revoked");
        if (isExpired) throw request.problem("page_link_expired");
        if ((await findVersion(tx, user, pageId, versionId)) === null) {
          throw request.problem("page_version_mismatch");
        }
        await pinLink(tx, user.accountId, linkId, versionId);
        return { body: foundLinkBody((await findLink(tx, user, linkId))!) };
      },
    }),
  ];
}

/** What the API tells of a link. */
export function linkBody({ isExpired, ...link }: StoredLink): PageLink {
  return {
    ...link,
    ...LINK_CONSTANTS,
    state: linkState({ ...link, isExpired }),
    access_mode: link.has_password ? "PASSWORD" : "ANONYMOUS",
  };
}

function foundLinkBody({ role: _, ...link }: FoundLink): PageLink {
  return linkBody(link);
}
