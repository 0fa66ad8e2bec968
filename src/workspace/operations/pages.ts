import { z } from "zod";
import { displayName, INTEGER_MAX, id } from "../../api/fields.ts";
import { jsonBody, jsonResponse, type Operation } from "../../http/operation.ts";
import {
  isMarkdown,
  MARKDOWN_BYTES_MAX,
  Page,
  PageVersion,
  PageVersionWithText,
  PageWithText,
} from "../model/pages.ts";
import { allows } from "../model/roles.ts";
import {
  findPage,
  findVersion,
  insertPage,
  insertVersion,
  listPages,
  listVersions,
  lockPage,
  saveDraft,
  type WrittenPage,
} from "../store/pages.ts";
import { lockSpace } from "../store/spaces.ts";
import { RENDERER, type Rendering } from "../visiting/rendering.ts";
import {
  draftIsAt,
  operationsOf,
  requirePermission,
  type WorkspaceDependencies,
} from "./workspace-operation.ts";

const { get, list, write } = operationsOf("Pages");
const path = "/v1/pages";
const params = z.strictObject({ page_id: id });

const markdown = z
  .string()
  .refine(isMarkdown, {
    error: `Must have at most ${MARKDOWN_BYTES_MAX} bytes of UTF-8, without NUL or lone surrogates.`,
  })
  .meta({ maxLength: MARKDOWN_BYTES_MAX })
  .describe(
    "CommonMark with tables and strikethrough. HTML in it is shown as text, and images as their description.",
  );

const draft = { title: displayName.describe("Its heading, and its name in lists."), markdown };

/** JSON writes a character of two bytes in six. */
const DRAFT_BODY = { bytesMax: 4 * MARKDOWN_BYTES_MAX };

const NewPage = z.strictObject({ space_id: id, ...draft });

const revision = z.int().min(1).max(INTEGER_MAX);

const SavedDraft = z.strictObject({
  revision: revision.describe("The revision that it is based on: 409 if another was saved since."),
  ...draft,
});

const Publication = z.strictObject({
  revision: revision
    .optional()
    .describe("The revision to publish: 409 if another was saved since. Absent: the current one."),
});

export type PageDependencies = Pick<WorkspaceDependencies, "pool"> & {
  readonly rendering: Pick<Rendering, "render">;
};

/** Texts that are written in a space, and what is published of them. */
export function pageOperations({ pool, rendering }: PageDependencies): readonly Operation[] {
  return [
    list({
      key: "pages.list",
      summary: "List pages",
      description: "The pages of a space, newest first, without their texts. 404 if you are not a member.",
      path,
      scope: "pages:read",
      filters: { space_id: id },
      item: Page,
      position: id,
      isCapped: true,
      readPage: (user, { space_id }, below, limit) => listPages(pool, user, [space_id], below, limit),
      bodyOf: (page) => page,
    }),
    write({
      risk: "reversible",
      key: "pages.create",
      summary: "Add a page",
      description:
        "Creates a page in a space. Nobody else sees it until it is published and has a link. For ADMINs and " +
        "EDITORs: other members get 403.",
      method: "POST",
      path,
      scope: "pages:write",
      body: jsonBody(NewPage, DRAFT_BODY),
      audit: ({ body: { space_id } }, { body: { id: page_id, title } }) => ({ space_id, page_id, title }),
      response: jsonResponse(201, Page),
      errors: ["not_found", "access_denied", "billing_credits_exhausted"],
      handle: async (request, tx) => {
        const { user, body } = request;
        const { space_id: spaceId, title, markdown } = body;
        await requirePermission(request, "edit_pages", lockSpace(tx, user, spaceId));
        const page = (await insertPage(tx, user, spaceId, title, markdown))!;
        return { body: pageBody((await findPage(tx, user, page.id))!) };
      },
    }),
    get({
      key: "pages.get",
      summary: "Get a page",
      description: "One page, with its draft. 404 if you are not a member of its space.",
      path: `${path}/{page_id}`,
      scope: "pages:read",
      params,
      response: PageWithText,
      find: (user, { page_id }) => findPage(pool, user, page_id),
      bodyOf: ({ role: _, ...page }) => page,
    }),
    write({
      risk: "reversible",
      key: "pages.save",
      summary: "Save a page",
      description:
        "Replaces the draft, if nobody has saved since the revision that it is based on: 409 otherwise. " +
        "No link shows it until it is published. For ADMINs and EDITORs: other members get 403.",
      method: "PUT",
      path: `${path}/{page_id}/draft`,
      scope: "pages:write",
      params,
      body: jsonBody(SavedDraft, DRAFT_BODY),
      audit: ({ params: { page_id } }, { body: { title, revision } }) => ({ page_id, title, revision }),
      response: jsonResponse(200, Page),
      errors: ["not_found", "access_denied", "page_changed", "billing_credits_exhausted"],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { revision, title, markdown } = body;
        const page = await requirePermission(request, "edit_pages", lockPage(tx, user, params.page_id));
        if (page.revision !== revision) throw request.problem("page_changed", draftIsAt(page.revision));
        await saveDraft(tx, user.accountId, page.id, title, markdown);
        return { body: pageBody((await findPage(tx, user, page.id))!) };
      },
    }),
    write({
      risk: "reversible",
      key: "pages.publish",
      summary: "Publish a page",
      description:
        "Makes the draft the next version, which never changes. Links that are not pinned show it from now " +
        "on. 409 if the current version has the same text, 422 if it takes too much to show. For ADMINs and " +
        "EDITORs: other members get 403.",
      method: "POST",
      path: `${path}/{page_id}/publish`,
      scope: "pages:write",
      params,
      body: jsonBody(Publication, { isOptional: true }),
      audit: ({ params }, { body: { id: page_version_id, number } }) => ({
        ...params,
        page_version_id,
        number,
      }),
      response: jsonResponse(201, PageVersion),
      errors: [
        ...(["not_found", "access_denied", "page_changed", "page_already_published"] as const),
        ...(["page_too_heavy", "billing_credits_exhausted"] as const),
      ],
      // Not when it is saved: nobody is to lose what they have written, and nobody sees it before this.
      prepare: async (request, gone) => {
        const { user, params, body } = request;
        const page = await findPage(pool, user, params.page_id);
        // Nothing is rendered for what is refused.
        if (page === null || !allows(page.role, "edit_pages") || !page.draft_differs) return null;
        if ((body.revision ?? page.revision) !== page.revision) return null;
        const html = await rendering.render(request.sharer, page.markdown, gone);
        return { revision: page.revision, html };
      },
      handle: async (request, tx, rendered) => {
        const { user, params, body } = request;
        const page = await requirePermission(request, "edit_pages", lockPage(tx, user, params.page_id));
        const changed = () => request.problem("page_changed", draftIsAt(page.revision));
        if ((body.revision ?? page.revision) !== page.revision) throw changed();
        if (!page.draft_differs) throw request.problem("page_already_published");
        if (rendered?.revision !== page.revision) throw changed();
        const { html } = rendered;
        if (html === null) throw request.problem("page_too_heavy");
        return { body: (await insertVersion(tx, user, page.id, html, RENDERER))! };
      },
    }),
    list({
      key: "pages.versions.list",
      summary: "List versions of a page",
      description:
        "The published versions of a page, newest first. 404 if you are not a member of its space.",
      path: `${path}/{page_id}/versions`,
      scope: "pages:read",
      params,
      item: PageVersion,
      position: z.int().min(0).max(INTEGER_MAX),
      isCapped: false,
      readPage: (user, { page_id }, below, limit) => listVersions(pool, user, [page_id], below, limit),
      bodyOf: (version) => version,
    }),
    get({
      key: "pages.versions.get",
      summary: "Get a version of a page",
      description: "One version, with its text. 404 if you are not a member of its page's space.",
      path: `${path}/{page_id}/versions/{version_id}`,
      scope: "pages:read",
      params: params.extend({ version_id: id }),
      response: PageVersionWithText,
      find: (user, { page_id, version_id }) => findVersion(pool, user, page_id, version_id),
      bodyOf: (version) => version,
    }),
  ];
}

export function pageBody({ role: _, markdown: __, ...page }: WrittenPage): Page {
  return page;
}
