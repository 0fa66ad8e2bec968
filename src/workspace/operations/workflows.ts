import { z } from "zod";
import { displayName, id, lineOfText, time } from "../../api/fields.ts";
import type { Operation } from "../../http/operation.ts";
import { jsonBody, jsonResponse } from "../../http/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../../http/pagination.ts";
import { Definition, FIRST_DEFINITION } from "../model/definition.ts";
import { isTriggerKind, TRIGGER_KINDS } from "../model/node-kinds.ts";
import { allows, SPACE_ROLES } from "../model/roles.ts";
import {
  CHANGE_NOTE_CHARS_MAX,
  FIRST_WORKFLOW_NAME,
  RUN_STATUSES,
  SUMMARY_CHARS_MAX,
  WORKFLOW_ACCESS_MODES,
  WORKFLOW_STATUSES,
} from "../model/workflows.ts";
import { lockSpace } from "../store/spaces.ts";
import {
  findWorkflow,
  insertWorkflow,
  type ListedWorkflow,
  listWorkflows,
  lockWorkflow,
  type StoredWorkflow,
  updateWorkflow,
} from "../store/workflows.ts";
import {
  read,
  requirePermission,
  User,
  userBody,
  userOf,
  type WorkspaceDependencies,
  write,
} from "./workspace-operation.ts";

const accessMode = z.enum(WORKFLOW_ACCESS_MODES).describe("`SPACE`: members of the space, by their roles.");

const Access = z.object({
  space_role: z
    .enum(SPACE_ROLES)
    .describe("Yours in the workflow's space; the following say what it allows."),
  share_role: z.null().describe("Null: workflows cannot be shared with others yet."),
  access_mode: accessMode,
  is_creator: z.boolean().describe("Whether you made it."),
  can_view: z.boolean(),
  can_edit: z.boolean(),
  can_run: z.boolean(),
  can_publish: z.boolean(),
  can_share: z.boolean().describe("False: there are no shares yet."),
  can_archive: z.boolean().describe("False: workflows cannot be archived yet."),
  can_approve: z.boolean().describe("False: nothing needs approval yet."),
});

const ListedVersion = z.object({
  id,
  version: z.int().min(1).describe("1 for the first that was published."),
  change_note: z.string().nullable(),
  created_by: User,
  created_at: time,
});
const Version = ListedVersion.extend({ definition: Definition });

const LastRun = z.object({ id, status: z.enum(RUN_STATUSES), created_at: time });

const none = z.array(z.unknown()).max(0);

const listedFields = {
  id,
  space_id: id,
  name: z.string(),
  summary: z.string(),
  status: z.enum(WORKFLOW_STATUSES),
  enabled: z.boolean().describe("True: workflows cannot be switched off yet."),
  has_draft: z.boolean().describe("True: there always is one, also after it was published."),
  draft_differs: z.boolean().describe("Whether the draft has what the current version has not."),
  draft_revision: z.int().min(1).describe("Counts the saves of the draft; the next one names it."),
  current_version: ListedVersion.nullable().describe("What was published last; null: nothing was."),
  node_count: z.int().min(1).describe("Of the draft."),
  trigger_kinds: z.array(z.enum(TRIGGER_KINDS)).describe("Of the draft: how runs can begin."),
  last_run: LastRun.nullable().describe("The newest; null: none that is still kept."),
  created_at: time,
  updated_at: time,
  draft_updated_at: time,
  access: Access,
  access_mode: accessMode,
  created_by: User,
  published_by: User.nullable().describe("Who published the current version."),
  share_count: z.int().min(0).describe("0: there are no shares yet."),
  webhooks: none.describe("Empty: no webhook starts a workflow yet."),
  triggers: none.describe("Empty: nothing starts a workflow by itself yet."),
  shares: none.describe("Empty: there are no shares yet."),
  pins: none.describe("Empty: no items are kept for a node yet."),
};

const ListedWorkflowSchema = z.object(listedFields).meta({
  id: "ListedWorkflow",
  description: "A workflow without what it does: get it by its id.",
});

export const Workflow = z
  .object({
    ...listedFields,
    current_version: Version.nullable().describe("What was published last; null: nothing was."),
    draft: Definition,
  })
  .meta({ id: "Workflow", description: "What is done with documents of a space, as you see it." });

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

function listedWorkflowBody(workflow: ListedWorkflow): z.output<typeof ListedWorkflowSchema> {
  const { role, kinds, lastRun } = workflow;
  const { versionId, version, changeNote, publishedBy, publishedAt } = workflow;
  const published = publishedBy === null ? null : userBody(publishedBy);
  return {
    id: workflow.id,
    space_id: workflow.spaceId,
    name: workflow.name,
    summary: workflow.summary,
    status: "ACTIVE",
    enabled: workflow.enabled,
    has_draft: true,
    draft_differs: workflow.draftDiffers,
    draft_revision: workflow.draftRevision,
    current_version:
      published === null
        ? null
        : {
            id: versionId!,
            version: version!,
            change_note: changeNote,
            created_by: published,
            created_at: publishedAt!.toISOString(),
          },
    node_count: kinds.length,
    trigger_kinds: [...new Set(kinds.filter(isTriggerKind))],
    last_run: lastRun && {
      id: lastRun.id,
      status: lastRun.status,
      created_at: new Date(lastRun.createdAt).toISOString(),
    },
    created_at: workflow.createdAt.toISOString(),
    updated_at: workflow.updatedAt.toISOString(),
    draft_updated_at: workflow.draftUpdatedAt.toISOString(),
    access: {
      space_role: role,
      share_role: null,
      access_mode: "SPACE",
      is_creator: workflow.isCreator,
      can_view: allows(role, "read"),
      can_edit: allows(role, "edit_workflows"),
      can_run: allows(role, "run_workflows"),
      can_publish: allows(role, "publish_workflows"),
      can_share: false,
      can_archive: false,
      can_approve: false,
    },
    access_mode: "SPACE",
    created_by: userBody(workflow.createdBy),
    published_by: published,
    share_count: 0,
    webhooks: [],
    triggers: [],
    shares: [],
    pins: [],
  };
}

export function workflowBody(workflow: StoredWorkflow): z.output<typeof Workflow> {
  const { draft, definition } = workflow;
  const { current_version, ...listed } = listedWorkflowBody(workflow);
  return {
    ...listed,
    current_version: current_version === null ? null : { ...current_version, definition: definition! },
    draft,
  };
}

const tag = "Workflows";
const path = "/v1/workflows";
const params = z.strictObject({ workflow_id: id });

/** What is done with documents of a space; how a draft becomes that is in workflow-drafts.ts. */
export function workflowOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  const cursors = createCursors(id);
  return [
    read({
      key: "workflows.list",
      tag,
      summary: "List workflows",
      description:
        "The workflows of a space, newest first, without what they do: get one by its id for that. 404 if you are " +
        "not a member.",
      method: "GET",
      path,
      scope: "workflows:read",
      needsUser: true,
      query: z.strictObject({ space_id: id, ...pageQuery }),
      response: jsonResponse(200, pageOf(ListedWorkflowSchema), totalCappedHeader),
      errors: ["not_found"],
      handle: async (request) => {
        const { space_id: spaceId, cursor, limit } = request.query;
        const user = userOf(request);
        const filter = [user, spaceId];
        const page = await listWorkflows(pool, user, spaceId, cursors.read(cursor, filter), limit);
        if (page === null) throw request.problem("not_found");
        return { body: cursors.pageBody(page, filter, listedWorkflowBody), headers: totalHeaders(page) };
      },
    }),
    write({
      key: "workflows.create",
      tag,
      summary: "Add a workflow",
      description:
        `Makes a workflow called “${FIRST_WORKFLOW_NAME}”, with a draft that has one node, a manual trigger. For ` +
        "members who may edit workflows: others get 403.",
      method: "POST",
      path,
      scope: "workflows:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
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
    read({
      key: "workflows.get",
      tag,
      summary: "Get a workflow",
      description:
        "One workflow, with its draft, its current version and what you may do. 404 if you are not a member of its " +
        "space.",
      method: "GET",
      path: `${path}/{workflow_id}`,
      scope: "workflows:read",
      needsUser: true,
      params,
      response: jsonResponse(200, Workflow),
      errors: ["not_found"],
      handle: async (request) => {
        const workflow = await findWorkflow(pool, userOf(request), request.params.workflow_id);
        if (workflow === null) throw request.problem("not_found");
        return { body: workflowBody(workflow) };
      },
    }),
    write({
      key: "workflows.update",
      tag,
      summary: "Rename a workflow",
      description:
        "Gives the workflow another name, another summary or both, at once: they are no part of the draft. For " +
        "members who may edit workflows: others get 403.",
      method: "PATCH",
      path: `${path}/{workflow_id}`,
      scope: "workflows:write",
      needsUser: true,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
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
        requirePermission(workflow?.role ?? null, "edit_workflows", request);
        await updateWorkflow(tx, user.accountId, workflowId, { name, summary });
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
      },
    }),
  ];
}
