import { z } from "zod";
import { INTEGER_MAX, id } from "../../api/fields.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../../http/pagination.ts";
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
} from "../store/pages.ts";
import { lockSpace } from "../store/spaces.ts";
import { RENDERER } from "../visiting/markdown-html.ts";
import type { Rendering } from "../visiting/rendering.ts";
import {
  DRAFT_BODY_BYTES_MAX,
  NewPage,
  Page,
  PageVersion,
  PageVersionWithText,
  PageWithText,
  Publication,
  pageBody,
  SavedDraft,
  versionBody,
} from "./page-schema.ts";
import {
  draftIsAt,
  read,
  requirePermission,
  userOf,
  type WorkspaceDependencies,
  write,
} from "./workspace-operation.ts";

const tag = "Pages";
const path = "/v1/pages";
const params = z.strictObject({ page_id: id });
const DRAFT_BODY = { bytesMax: DRAFT_BODY_BYTES_MAX };

export type PageDependencies = Pick<WorkspaceDependencies, "pool"> & {
  readonly rendering: Pick<Rendering, "render">;
};

/** Texts that are written in a space, and what is published of them. */
export function pageOperations({ pool, rendering }: PageDependencies): readonly Operation[] {
  const cursors = createCursors(id);
  const numbers = createCursors(z.int().min(0).max(INTEGER_MAX));
  return [
    read({
      key: "pages.list",
      tag,
      summary: "List pages",
      description: "The pages of a space, newest first, without their texts. 404 if you are not a member.",
      method: "GET",
      path,
      scope: "pages:read",
      needsUser: true,
      query: z.strictObject({ ...pageQuery, space_id: id }),
      response: jsonResponse(200, pageOf(Page), totalCappedHeader),
      errors: ["not_found"],
      handle: async (request) => {
        const { cursor, limit, space_id: spaceId } = request.query;
        const user = userOf(request);
        const filter = [user, spaceId];
        const page = await listPages(pool, user, spaceId, cursors.read(cursor, filter), limit);
        if (page === null) throw request.problem("not_found");
        return { body: cursors.pageBody(page, filter, pageBody), headers: totalHeaders(page) };
      },
    }),
    write({
      key: "pages.create",
      tag,
      summary: "Add a page",
      description:
        "Begins a page in a space. Nobody else sees it until it is published and has a link. For ADMINs and EDITORs: " +
        "other members get 403.",
      method: "POST",
      path,
      scope: "pages:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      body: jsonBody(NewPage, DRAFT_BODY),
      audit: ({ body: { space_id } }, { body: { id: page_id, title } }) => ({ space_id, page_id, title }),
      response: jsonResponse(201, Page),
      errors: ["not_found", "access_denied"],
      handle: async (request, tx) => {
        const { space_id: spaceId, ...draft } = request.body;
        const user = userOf(request);
        requirePermission(await lockSpace(tx, user, spaceId), "edit_pages", request);
        const pageId = await insertPage(tx, user, spaceId, draft);
        return { body: pageBody((await findPage(tx, user, pageId))!) };
      },
    }),
    read({
      key: "pages.get",
      tag,
      summary: "Get a page",
      description: "One page, with what is being written. 404 if you are not a member of its space.",
      method: "GET",
      path: `${path}/{page_id}`,
      scope: "pages:read",
      needsUser: true,
      params,
      response: jsonResponse(200, PageWithText),
      errors: ["not_found"],
      handle: async (request) => {
        const page = await findPage(pool, userOf(request), request.params.page_id);
        if (page === null) throw request.problem("not_found");
        return { body: { ...pageBody(page), markdown: page.markdown } };
      },
    }),
    write({
      key: "pages.save",
      tag,
      summary: "Save a page",
      description:
        "Replaces what is being written, if nobody has saved since the revision that it is based on: 409 otherwise. " +
        "No link shows it until it is published. For ADMINs and EDITORs: other members get 403.",
      method: "PUT",
      path: `${path}/{page_id}/draft`,
      scope: "pages:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      params,
      body: jsonBody(SavedDraft, DRAFT_BODY),
      audit: ({ params: { page_id } }, { body: { title, revision } }) => ({ page_id, title, revision }),
      response: jsonResponse(200, Page),
      errors: ["not_found", "access_denied", "page_changed"],
      handle: async (request, tx) => {
        const { revision, ...draft } = request.body;
        const user = userOf(request);
        const page = await lockPage(tx, user, request.params.page_id);
        requirePermission(page?.role ?? null, "edit_pages", request);
        if (page!.revision !== revision) throw request.problem("page_changed", draftIsAt(page!.revision));
        await saveDraft(tx, user.accountId, page!.id, draft);
        return { body: pageBody((await findPage(tx, user, page!.id))!) };
      },
    }),
    write({
      key: "pages.publish",
      tag,
      summary: "Publish a page",
      description:
        "Makes a version of what is being written, which never changes. Links that are not pinned show it from now " +
        "on. 409 if the current version has the same text, 422 if it takes too much to show. For ADMINs and " +
        "EDITORs: other members get 403.",
      method: "POST",
      path: `${path}/{page_id}/publish`,
      scope: "pages:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      params,
      body: jsonBody(Publication, { isOptional: true }),
      audit: ({ params: { page_id } }, { body: { id: page_version_id, number } }) => ({
        page_id,
        page_version_id,
        number,
      }),
      response: jsonResponse(201, PageVersion),
      errors: ["not_found", "access_denied", "page_changed", "page_already_published", "page_too_heavy"],
      // Not when it is saved: nobody is to lose what they have written, and nobody sees it before this.
      prepare: async (request, gone) => {
        const user = userOf(request);
        const page = await findPage(pool, user, request.params.page_id);
        // Nothing is rendered for what is refused.
        if (page === null || !allows(page.role, "edit_pages") || !page.draftDiffers) return null;
        if ((request.body.revision ?? page.revision) !== page.revision) return null;
        const html = await rendering.render(user.accountId, page.markdown, gone);
        return { revision: page.revision, html };
      },
      handle: async (request, tx, rendered) => {
        const { revision } = request.body;
        const user = userOf(request);
        const page = await lockPage(tx, user, request.params.page_id);
        requirePermission(page?.role ?? null, "edit_pages", request);
        const changed = () => request.problem("page_changed", draftIsAt(page!.revision));
        if (revision !== undefined && page!.revision !== revision) throw changed();
        if (!page!.draftDiffers) throw request.problem("page_already_published");
        if (rendered?.revision !== page!.revision) throw changed();
        const { html } = rendered;
        if (html === null) throw request.problem("page_too_heavy");
        const version = await insertVersion(tx, user, page!.id, { html, renderer: RENDERER });
        return { body: versionBody(version) };
      },
    }),
    read({
      key: "pages.versions.list",
      tag,
      summary: "List versions of a page",
      description: "What was published of a page, newest first. 404 if you are not a member of its space.",
      method: "GET",
      path: `${path}/{page_id}/versions`,
      scope: "pages:read",
      needsUser: true,
      params,
      query: z.strictObject(pageQuery),
      response: jsonResponse(200, pageOf(PageVersion)),
      errors: ["not_found"],
      handle: async (request) => {
        const { page_id: pageId } = request.params;
        const { cursor, limit } = request.query;
        const user = userOf(request);
        const filter = [user, pageId];
        const page = await listVersions(pool, user, pageId, numbers.read(cursor, filter), limit);
        if (page === null) throw request.problem("not_found");
        return { body: numbers.pageBody(page, filter, versionBody) };
      },
    }),
    read({
      key: "pages.versions.get",
      tag,
      summary: "Get a version of a page",
      description: "One version, with its text. 404 if you are not a member of its page's space.",
      method: "GET",
      path: `${path}/{page_id}/versions/{version_id}`,
      scope: "pages:read",
      needsUser: true,
      params: params.extend({ version_id: id }),
      response: jsonResponse(200, PageVersionWithText),
      errors: ["not_found"],
      handle: async (request) => {
        const { page_id: pageId, version_id: versionId } = request.params;
        const version = await findVersion(pool, userOf(request), pageId, versionId);
        if (version === null) throw request.problem("not_found");
        return { body: { ...versionBody(version), markdown: version.markdown } };
      },
    }),
  ];
}
