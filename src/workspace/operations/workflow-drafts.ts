import type { ClientBase } from "pg";
import { z } from "zod";
import { id } from "../../api/fields.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import type { FieldError } from "../../http/problems.ts";
import { invalidRequestFrom } from "../../http/request-validation.ts";
import { Definition } from "../model/definition.ts";
import { Workflow } from "../model/workflows.ts";
import { findFolders } from "../store/folders.ts";
import { findWorkflow, insertVersion, lockWorkflow, saveDraft } from "../store/workflows.ts";
import { Draft, Publication, workflowBody } from "./workflows.ts";
import { draftIsAt, requirePermission, reversible, userOf, write } from "./workspace-operation.ts";

const tag = "Workflows";
const path = "/v1/workflows/{workflow_id}";
const params = z.strictObject({ workflow_id: id });

/** A definition within its other limits has at most 180 KB: one that is too large is told so. */
const DRAFT_BYTES_MAX = 262_144;

/** The draft of a workflow, and the versions that are made of it. */
export function workflowDraftOperations(): readonly Operation[] {
  return [
    write({
      ...reversible,
      key: "workflows.draft.save",
      tag,
      summary: "Save a workflow's draft",
      description:
        "Replaces the draft, if it is still at the revision that you name: 409 otherwise, for somebody has saved it " +
        "since. The definition is checked whole, and every fault is told with its path. For members who may edit " +
        "workflows: others get 403.",
      method: "PUT",
      path: `${path}/draft`,
      scope: "workflows:write",
      params,
      body: jsonBody(Draft, { bytesMax: DRAFT_BYTES_MAX }),
      audit: ({ params: { workflow_id } }, { body: { draft_revision, node_count } }) => {
        return { workflow_id, draft_revision, node_count };
      },
      response: jsonResponse(200, Workflow),
      errors: ["not_found", "access_denied", "draft_revision_outdated"],
      handle: async (request, tx) => {
        const { workflow_id: workflowId } = request.params;
        const { revision, definition } = request.body;
        const user = userOf(request);
        const workflow = await lockWorkflow(tx, user, workflowId);
        requirePermission(workflow, "edit_workflows", request);
        const { draft_revision, space_id } = workflow;
        if (revision !== draft_revision) {
          throw request.problem("draft_revision_outdated", draftIsAt(draft_revision));
        }
        const faults = await findFolderFaults(tx, user.accountId, space_id, definition, "body.definition");
        if (faults.length > 0) throw request.problem("invalid_request", faults);
        await saveDraft(tx, user.accountId, workflow, definition);
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
      },
    }),
    write({
      ...reversible,
      key: "workflows.publish",
      tag,
      summary: "Publish a workflow",
      description:
        "Makes the draft the next version, which never changes and is the current one from now on. The draft stays. " +
        "409 if it has nothing that the current version has not. For members who may publish workflows: others get " +
        "403.",
      method: "POST",
      path: `${path}/publish`,
      scope: "workflows:write",
      params,
      body: jsonBody(Publication, { isOptional: true }),
      audit: ({ params: { workflow_id } }, { body: { current_version } }) => {
        const { version, change_note } = current_version!;
        return { workflow_id, version, change_note };
      },
      response: jsonResponse(200, Workflow),
      errors: ["not_found", "access_denied", "draft_revision_outdated", "draft_not_changed", "draft_invalid"],
      handle: async (request, tx) => {
        const { workflow_id: workflowId } = request.params;
        const { change_note: changeNote = null, revision } = request.body;
        const user = userOf(request);
        const workflow = await lockWorkflow(tx, user, workflowId);
        requirePermission(workflow, "publish_workflows", request);
        const { space_id, draft, draft_differs, draft_revision } = workflow;
        if (revision !== undefined && revision !== draft_revision) {
          throw request.problem("draft_revision_outdated", draftIsAt(draft_revision));
        }
        if (!draft_differs) throw request.problem("draft_not_changed");
        // It was checked when it was saved, perhaps by a version that allowed more.
        const { error } = Definition.safeParse(draft);
        const faults =
          error === undefined
            ? await findFolderFaults(tx, user.accountId, space_id, draft, "draft")
            : invalidRequestFrom("draft", error).errors;
        if (faults.length > 0) throw request.problem("draft_invalid", faults);
        await insertVersion(tx, user, workflowId, changeNote);
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
      },
    }),
  ];
}

/** Nodes can only name folders of the workflow's space. @param place what the definition's paths begin with */
async function findFolderFaults(
  tx: ClientBase,
  accountId: string,
  spaceId: string,
  { nodes }: Definition,
  place: string,
): Promise<readonly FieldError[]> {
  const named = nodes.flatMap((node, index) => {
    if (node.kind !== "documents" || node.parameters.folder_id === null) return [];
    return [{ folderId: node.parameters.folder_id, index }];
  });
  if (named.length === 0) return [];
  const wanted = named.map(({ folderId }) => folderId);
  const found = await findFolders(tx, accountId, spaceId, wanted);
  return named
    .filter(({ folderId }) => !found.has(folderId))
    .map(({ index }) => ({
      path: `${place}.nodes.${index}.parameters.folder_id`,
      message: "The space has no such folder. List its folders, or give null for its top.",
    }));
}
