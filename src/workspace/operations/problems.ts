import { USER_SHARE } from "../../base/model/reader.ts";
import type { ProblemCatalogue } from "../../http/problems.ts";
import { DELETED_AT_ONCE_MAX } from "../model/bin.ts";
import { SPACES_JOINED_MAX, SPACES_OWNED_MAX } from "../store/spaces.ts";

/** The codes that the workspace adds. */
export const workspaceProblems = {
  space_owner_fixed: {
    status: 409,
    meaning: "The member is the space's owner, who stays a member and an ADMIN.",
    remedy: "Change the role of other members, or remove those; a space always has its owner.",
  },
  too_many_spaces: {
    status: 409,
    meaning:
      `The user owns ${SPACES_OWNED_MAX.toLocaleString("en")} spaces, or is a member of ` +
      `${SPACES_JOINED_MAX.toLocaleString("en")} others (from one owner, at most half of what other owners leave), ` +
      "and may have no more.",
    remedy:
      "Use an existing space, or another user; a member can leave a space. Spaces in the bin count until they are " +
      "deleted for good.",
  },
  folder_name_taken: {
    status: 409,
    meaning: "There is already a folder with this name in the same place.",
    remedy: "Use that folder (list the folders to get its id), or choose another name.",
  },
  document_name_taken: {
    status: 409,
    meaning: "There is already a document with this name in the same folder, perhaps one without content.",
    remedy: "Use that document (list the documents to get its id), or choose another name.",
  },
  document_already_uploaded: {
    status: 409,
    meaning: "The document has its content, which never changes.",
    remedy: "For other content, create a new document.",
  },
  document_being_uploaded: {
    status: 409,
    meaning: "Another upload of the document, with another Idempotency-Key, is in progress.",
    remedy:
      "Wait for that one to end. If it was yours and was interrupted, it ends within half a minute; then send it " +
      "again.",
  },
  document_not_uploaded: {
    status: 409,
    meaning: "The document was created, and nothing has been uploaded to it yet.",
    remedy: "Upload its content first, or wait until its creator does.",
  },
  page_changed: {
    status: 409,
    meaning: "The page was saved since the revision that the request names, or while it was published.",
    remedy: "Get the page, merge both texts, and send the result with the page's `revision`.",
    hasErrors: true,
  },
  page_already_published: {
    status: 409,
    meaning: "The page's title and text are those of its current version: there is nothing to publish.",
    remedy: "Save another text first. Links that are not pinned show the current version already.",
  },
  page_too_heavy: {
    status: 422,
    meaning:
      "The page's Markdown takes seconds to render, or becomes several megabytes of HTML, so it could not be shown.",
    remedy:
      "Make it simpler or shorter, or split it into several pages, save it, and publish it then. The usual causes " +
      "are lists or quotes nested dozens of levels deep, thousands of unclosed marks, and long addresses that " +
      "thousands of references repeat.",
  },
  page_not_published: {
    status: 409,
    meaning: "The page has not been published, so a link to it would show nothing.",
    remedy: "Publish the page first.",
  },
  pages_not_configured: {
    status: 409,
    meaning: "This installation has no host for pages, so no link to a page could be opened.",
    remedy: "Operators: set PAGES_URL to an origin whose host is not the API's.",
  },
  page_link_revoked: {
    status: 409,
    meaning: "The link was revoked, which cannot be undone.",
    remedy: "For that, create a new link to the page.",
  },
  page_link_expired: {
    status: 409,
    meaning: "The link's `expires_at` has passed.",
    remedy: "Give it a later `expires_at` first, or create a new link to the page.",
  },
  page_version_mismatch: {
    status: 422,
    meaning: "The link's page has no published version with this id.",
    remedy: "List the versions of the link's page, and send the `id` of one of them.",
  },
  draft_revision_outdated: {
    status: 409,
    meaning:
      "The workflow's draft is not at the revision that the request names: somebody has saved it since.",
    remedy: "Get the workflow, make your changes to its draft as it is now, and name its draft_revision.",
    hasErrors: true,
  },
  draft_not_changed: {
    status: 409,
    meaning: "The workflow's draft is the same as its current version: there is nothing to publish.",
    remedy: "Save a changed draft first. The current version can be run as it is.",
  },
  draft_invalid: {
    status: 409,
    meaning:
      "The workflow's draft was saved under earlier rules, and what `errors` lists is no longer allowed.",
    remedy: "Fix what `errors` lists, save the draft, then publish it.",
    hasErrors: true,
  },
  workflow_not_published: {
    status: 409,
    meaning: "No version of the workflow has been published yet, so there is nothing to run.",
    remedy: "Publish the workflow's draft first.",
  },
  hook_inactive: {
    status: 409,
    meaning: "The hook's workflow cannot be run by it now; `errors` says why.",
    remedy: "Whoever owns the workflow: fix what `errors` says. Nothing has been started.",
    hasErrors: true,
  },
  hook_signature_invalid: {
    status: 401,
    meaning:
      "The hook's workflow asks for signed requests, and `errors` says what is wrong with this one's signature.",
    remedy: "Sign the exact body with the hook's `signing_secret`, and send it within 300 seconds.",
    hasErrors: true,
  },
  workflow_deleted: {
    status: 409,
    meaning: "The workflow, or its space, is in the bin: the runs it has go on, and no other begins.",
    remedy: "Restore it first.",
  },
  workflow_archived: {
    status: 409,
    meaning: "The workflow is archived: it stays as it is, the runs it has go on, and no other begins.",
    remedy: "Take it out of the archive first.",
  },
  workflow_disabled: {
    status: 409,
    meaning: "The workflow is switched off: the runs it has go on, and no other begins.",
    remedy: "Switch it on first: update it with `enabled`.",
  },
  too_much_to_delete: {
    status: 409,
    meaning:
      `There is too much in it to delete it at once: more than ${DELETED_AT_ONCE_MAX.toLocaleString("en")} folders ` +
      "and documents, or as many links that are not revoked.",
    remedy: "Delete some of the folders or pages that are in it first, then the rest.",
  },
  space_too_large: {
    status: 413,
    meaning:
      "The space would have more documents, or more bytes of them, than the operator lets one space have: `errors` " +
      "names what. Nothing was changed.",
    remedy:
      "Use another space, or delete for good what is not needed (what is in the bin counts); the operator can allow " +
      "more.",
    hasErrors: true,
  },
  too_many_workflow_runs: {
    status: 409,
    meaning: `The account has as many unfinished runs as it may have, waiting ones included, ${USER_SHARE}`,
    remedy: "Wait until one of them has ended, or cancel one.",
  },
  workflow_run_ended: {
    status: 409,
    meaning: "The run has succeeded, failed or been cancelled.",
    remedy: "Get the run to see how it ended. To do its work again, start another run.",
  },
  workflow_run_not_failed: {
    status: 409,
    meaning: "The run is in progress or has succeeded: only failed and cancelled ones are retried.",
    remedy: "Wait for its end, or cancel it. To do again what has succeeded, start another run.",
  },
} as const satisfies ProblemCatalogue;

export type WorkspaceCode = keyof typeof workspaceProblems;
