import { z } from "zod";
import { displayName, id, lineOfText } from "../../api/fields.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { Definition, FIRST_DEFINITION } from "../model/definition.ts";
import { isTriggerKind } from "../model/node-kinds.ts";
import { allows } from "../model/roles.ts";
import {
  CHANGE_NOTE_CHARS_MAX,
  FIRST_WORKFLOW_NAME,
  ListedWorkflow,
  SUMMARY_CHARS_MAX,
  WORKFLOW_CONSTANTS,
  Workflow,
} from "../model/workflows.ts";
import { lockSpace } from "../store/spaces.ts";
import {
  type FoundWorkflow,
  findWorkflow,
  insertWorkflow,
  listWorkflows,
  lockWorkflow,
  type StoredWorkflow,
  updateWorkflow,
} from "../store/workflows.ts";
import {
  get,
  list,
  requirePermission,
  reversible,
  userOf,
  type WorkspaceDependencies,
  write,
} from "./workspace-operation.ts";

const Changes = z
  .strictObject({
    name: displayName.describe("For people; several workflows may have it.").optional(),
    summary: lineOfText.max(SUMMARY_CHARS_MAX).optional(),
  })
  .refine(({ name, summary }) => name !== undefined || summary !== undefined, {
    error: "Give a name, a summary or both.",
  });

export const Draft = z.strictObject({
  revision: z.int().min(1).describe("The draft_revision that the new draft is based on."),
  definition: Definition,
});

export const Publication = z.strictObject({
  change_note: lineOfText.min(1).max(CHANGE_NOTE_CHARS_MAX).optional().describe("What is new, for people."),
  revision: z.int().min(1).optional().describe("The draft_revision that you mean; absent: whatever it is."),
});

function listedWorkflowBody(workflow: StoredWorkflow): ListedWorkflow {
  const { role, kinds, isCreator, ...row } = workflow;
  return {
    ...row,
    ...WORKFLOW_CONSTANTS,
    node_count: kinds.length,
    trigger_kinds: [...new Set(kinds.filter(isTriggerKind))],
    access: {
      space_role: role,
      share_role: null,
      access_mode: WORKFLOW_CONSTANTS.access_mode,
      is_creator: isCreator,
      can_view: allows(role, "read"),
      can_edit: allows(role, "edit_workflows"),
      can_run: allows(role, "run_workflows"),
      can_publish: allows(role, "publish_workflows"),
      can_share: false,
      can_archive: false,
      can_approve: false,
    },
    published_by: row.current_version?.created_by ?? null,
  };
}

export function workflowBody({ draft, definition, ...workflow }: FoundWorkflow): Workflow {
  const { current_version, ...listed } = listedWorkflowBody(workflow);
  return {
    ...listed,
    current_version: current_version && { ...current_version, definition: definition! },
    draft,
  };
}

const tag = "Workflows";
const path = "/v1/workflows";
const params = z.strictObject({ workflow_id: id });

/** What is done with documents of a space; how a draft becomes that is in workflow-drafts.ts. */
export function workflowOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  return [
    list({
      key: "workflows.list",
      tag,
      summary: "List workflows",
      description:
        "The workflows of a space, newest first, without what they do: get one by its id for that. 404 if you are " +
        "not a member.",
      path,
      scope: "workflows:read",
      filters: { space_id: id },
      item: ListedWorkflow,
      position: id,
      isCapped: true,
      readPage: (user, { space_id }, below, limit) => listWorkflows(pool, user, space_id, below, limit),
      bodyOf: listedWorkflowBody,
    }),
    write({
      ...reversible,
      key: "workflows.create",
      tag,
      summary: "Add a workflow",
      description:
        `Makes a workflow called “${FIRST_WORKFLOW_NAME}”, with a draft that has one node, a manual trigger. For ` +
        "members who may edit workflows: others get 403.",
      method: "POST",
      path,
      scope: "workflows:write",
      body: jsonBody(z.strictObject({ space_id: id })),
      audit: ({ body: { space_id } }, { body: { id: workflow_id } }) => ({ workflow_id, space_id }),
      response: jsonResponse(201, Workflow),
      errors: ["not_found", "access_denied"],
      handle: async (request, tx) => {
        const { space_id: spaceId } = request.body;
        const user = userOf(request);
        requirePermission(await lockSpace(tx, user, spaceId), "edit_workflows", request);
        const first = { name: FIRST_WORKFLOW_NAME, draft: FIRST_DEFINITION };
        const workflowId = await insertWorkflow(tx, user, spaceId, first);
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
      },
    }),
    get({
      key: "workflows.get",
      tag,
      summary: "Get a workflow",
      description:
        "One workflow, with its draft, its current version and what you may do. 404 if you are not a member of its " +
        "space.",
      path: `${path}/{workflow_id}`,
      scope: "workflows:read",
      params,
      response: Workflow,
      find: (user, { workflow_id }) => findWorkflow(pool, user, workflow_id),
      bodyOf: workflowBody,
    }),
    write({
      ...reversible,
      key: "workflows.update",
      tag,
      summary: "Rename a workflow",
      description:
        "Gives the workflow another name, another summary or both, at once: they are no part of the draft. For " +
        "members who may edit workflows: others get 403.",
      method: "PATCH",
      path: `${path}/{workflow_id}`,
      scope: "workflows:write",
      params,
      body: jsonBody(Changes),
      audit: ({ params: { workflow_id }, body }) => ({ workflow_id, ...body }),
      response: jsonResponse(200, Workflow),
      errors: ["not_found", "access_denied"],
      handle: async (request, tx) => {
        const { workflow_id: workflowId } = request.params;
        const { name = null, summary = null } = request.body;
        const user = userOf(request);
        const workflow = await lockWorkflow(tx, user, workflowId);
        requirePermission(workflow, "edit_workflows", request);
        await updateWorkflow(tx, user.accountId, workflowId, { name, summary });
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
      },
    }),
  ];
}
