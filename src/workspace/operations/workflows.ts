import type { ClientBase } from "pg";
import { z } from "zod";
import { displayName, INTEGER_MAX, id, lineOfText } from "../../api/fields.ts";
import { type ErasedRequest, jsonBody, jsonResponse, type Operation } from "../../http/operation.ts";
import type { FieldError } from "../../http/problems.ts";
import { invalidRequestFrom } from "../../http/request-validation.ts";
import { Definition, FIRST_DEFINITION } from "../model/definition.ts";
import { isTriggerKind } from "../model/node-kinds.ts";
import { allows, type SpacePermission } from "../model/roles.ts";
import {
  CHANGE_NOTE_CHARS_MAX,
  FIRST_WORKFLOW_NAME,
  ListedWorkflow,
  ListedWorkflowVersion,
  SUMMARY_CHARS_MAX,
  WORKFLOW_CONSTANTS,
  WORKFLOW_STATUSES,
  Workflow,
  WorkflowVersion,
} from "../model/workflows.ts";
import { findFolders } from "../store/documents.ts";
import { lockSpace } from "../store/spaces.ts";
import {
  type FoundWorkflow,
  findVersion,
  findWorkflow,
  insertVersion,
  insertWorkflow,
  listVersions,
  listWorkflows,
  lockWorkflow,
  restoreVersion,
  type StoredWorkflow,
  saveDraft,
  setStatus,
  updateWorkflow,
} from "../store/workflows.ts";
import { findCronFaults, schedulePublished } from "./triggers.ts";
import {
  draftIsAt,
  operationsOf,
  requirePermission,
  type WorkspaceDependencies,
} from "./workspace-operation.ts";

const Changes = z
  .strictObject({
    name: displayName.describe("For people; several workflows may have the same one.").optional(),
    summary: lineOfText.max(SUMMARY_CHARS_MAX).optional(),
    enabled: z.boolean().optional().describe("False: no run of it begins until it is true again."),
  })
  .refine((changes) => Object.keys(changes).length > 0, {
    error: "Give at least one of name, summary and enabled.",
  });

const Draft = z.strictObject({
  revision: z.int().min(1).describe("The draft_revision that the new draft is based on."),
  definition: Definition,
});

const Publication = z.strictObject({
  change_note: lineOfText.min(1).max(CHANGE_NOTE_CHARS_MAX).optional().describe("What is new, for people."),
  revision: z.int().min(1).optional().describe("The draft_revision to publish; absent: the current one."),
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
      can_archive: allows(role, "archive_workflows"),
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

const { get, list, write } = operationsOf("Workflows");
const path = "/v1/workflows";
const params = z.strictObject({ workflow_id: id });
const ofVersion = params.extend({ version_id: id });
const NOT_CHANGED = ["not_found", "access_denied", "workflow_archived"] as const;

/** A definition within its other limits has at most 180 KB: one that is too large is told so. */
const DRAFT_BYTES_MAX = 262_144;

/** What is done with documents of a space: drafts, and the versions that are made of them. */
export function workflowOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  return [
    list({
      key: "workflows.list",
      summary: "List workflows",
      description:
        "The workflows of a space, newest first, without their definitions: get one by its id for that. 404 if you " +
        "are not a member.",
      path,
      scope: "workflows:read",
      filters: {
        space_id: id,
        status: z.enum(WORKFLOW_STATUSES).default("ACTIVE").describe("`ARCHIVED`: those in the archive."),
      },
      item: ListedWorkflow,
      position: id,
      isCapped: true,
      readPage: (user, { space_id, status }, below, limit) =>
        listWorkflows(pool, user, [space_id, status], below, limit),
      bodyOf: listedWorkflowBody,
    }),
    write({
      risk: "reversible",
      key: "workflows.create",
      summary: "Add a workflow",
      description:
        `Creates a workflow called “${FIRST_WORKFLOW_NAME}”, with a draft that has one node, a manual trigger. For ` +
        "members who may edit workflows: others get 403.",
      method: "POST",
      path,
      scope: "workflows:write",
      body: jsonBody(z.strictObject({ space_id: id })),
      audit: ({ body: { space_id } }, { body: { id: workflow_id } }) => ({ workflow_id, space_id }),
      response: jsonResponse(201, Workflow),
      errors: ["not_found", "access_denied", "billing_credits_exhausted"],
      handle: async (request, tx) => {
        const { user } = request;
        const { space_id: spaceId } = request.body;
        await requirePermission(request, "edit_workflows", lockSpace(tx, user, spaceId));
        const { id } = (await insertWorkflow(tx, user, spaceId, FIRST_WORKFLOW_NAME, FIRST_DEFINITION))!;
        return { body: workflowBody((await findWorkflow(tx, user, id))!) };
      },
    }),
    get({
      key: "workflows.get",
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
      risk: "reversible",
      key: "workflows.update",
      summary: "Rename a workflow, or switch it off or on",
      description:
        "Gives the workflow another name or summary, or switches it off or on, at once: they are not part of the " +
        "draft. While it is off, the runs it has go on, and no other begins. For members who may edit workflows: " +
        "others get 403. 409 if it is archived.",
      method: "PATCH",
      path: `${path}/{workflow_id}`,
      scope: "workflows:write",
      params,
      body: jsonBody(Changes),
      audit: ({ params: { workflow_id }, body }) => ({ workflow_id, ...body }),
      response: jsonResponse(200, Workflow),
      errors: NOT_CHANGED,
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { name = null, summary = null, enabled = null } = body;
        const { workflow_id: workflowId } = params;
        await lockToChange(request, tx, "edit_workflows", workflowId);
        await updateWorkflow(tx, user.accountId, workflowId, name, summary, enabled);
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
      },
    }),
    write({
      risk: "reversible",
      key: "workflows.draft.save",
      summary: "Save a workflow's draft",
      description:
        "Replaces the draft, if it is still at the revision that you name: 409 otherwise, as somebody has saved it " +
        "since. The whole definition is checked, and every fault is reported with its path. For members who may edit " +
        "workflows: others get 403. 409 if it is archived.",
      method: "PUT",
      path: `${path}/{workflow_id}/draft`,
      scope: "workflows:write",
      params,
      body: jsonBody(Draft, { bytesMax: DRAFT_BYTES_MAX }),
      audit: ({ params: { workflow_id } }, { body: { draft_revision, node_count } }) => {
        return { workflow_id, draft_revision, node_count };
      },
      response: jsonResponse(200, Workflow),
      errors: [...NOT_CHANGED, "draft_revision_outdated", "billing_credits_exhausted"],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { revision, definition } = body;
        const { workflow_id: workflowId } = params;
        const { draft_revision, space_id } = await lockToChange(request, tx, "edit_workflows", workflowId);
        if (revision !== draft_revision) {
          throw request.problem("draft_revision_outdated", draftIsAt(draft_revision));
        }
        const faults = await findNodeFaults(tx, user.accountId, space_id, definition, "body.definition");
        if (faults.length > 0) throw request.problem("invalid_request", faults);
        const isSaved = await saveDraft(tx, user.accountId, workflowId, revision, definition);
        if (!isSaved)
          throw new Error(`The draft of workflow ${workflowId} was to be at revision ${revision}.`);
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
      },
    }),
    write({
      risk: "reversible",
      key: "workflows.publish",
      summary: "Publish a workflow",
      description:
        "Makes the draft the next version, which never changes and is the current one from now on. The draft stays. " +
        "409 if it is the same as the current version, or the workflow is archived. For members who may publish " +
        "workflows: others get 403.",
      method: "POST",
      path: `${path}/{workflow_id}/publish`,
      scope: "workflows:write",
      params,
      body: jsonBody(Publication, { isOptional: true }),
      audit: ({ params: { workflow_id } }, { body: { current_version } }) => {
        const { version, change_note } = current_version!;
        return { workflow_id, version, change_note };
      },
      response: jsonResponse(200, Workflow),
      errors: [
        ...NOT_CHANGED,
        ...([
          "draft_revision_outdated",
          "draft_not_changed",
          "draft_invalid",
          "billing_credits_exhausted",
        ] as const),
      ],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { workflow_id: workflowId } = params;
        const workflow = await lockToChange(request, tx, "publish_workflows", workflowId);
        const { space_id, draft, draft_differs, draft_revision } = workflow;
        if ((body.revision ?? draft_revision) !== draft_revision) {
          throw request.problem("draft_revision_outdated", draftIsAt(draft_revision));
        }
        if (!draft_differs) throw request.problem("draft_not_changed");
        // It was checked when it was saved, perhaps by a version that allowed more.
        const { error } = Definition.safeParse(draft);
        const faults =
          error === undefined
            ? await findNodeFaults(tx, user.accountId, space_id, draft, "draft")
            : invalidRequestFrom("draft", error).errors;
        if (faults.length > 0) throw request.problem("draft_invalid", faults);
        await insertVersion(tx, user, workflowId, body.change_note ?? null);
        await schedulePublished(tx, user.accountId, workflowId, draft);
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
      },
    }),
    list({
      key: "workflows.versions.list",
      summary: "List versions of a workflow",
      description:
        "The published versions of a workflow, newest first, without their definitions. 404 if you are not a member " +
        "of its space.",
      path: `${path}/{workflow_id}/versions`,
      scope: "workflows:read",
      params,
      item: ListedWorkflowVersion,
      position: z.int().min(0).max(INTEGER_MAX),
      isCapped: false,
      readPage: (user, { workflow_id }, below, limit) =>
        listVersions(pool, user, [workflow_id], below, limit),
      bodyOf: (version) => version,
    }),
    get({
      key: "workflows.versions.get",
      summary: "Get a version of a workflow",
      description: "One version, with its definition. 404 if you are not a member of its workflow's space.",
      path: `${path}/{workflow_id}/versions/{version_id}`,
      scope: "workflows:read",
      params: ofVersion,
      response: WorkflowVersion,
      find: (user, { workflow_id, version_id }) => findVersion(pool, user, workflow_id, version_id),
      bodyOf: (version) => version,
    }),
    write({
      risk: "reversible",
      key: "workflows.versions.restore",
      summary: "Restore a version of a workflow",
      description:
        "Makes the version the draft, if that is still at the revision that you name: 409 otherwise. Publish the " +
        "draft to run it; what is no longer allowed in it is reported then. For members who may edit workflows: " +
        "others get 403. 409 if it is archived.",
      method: "POST",
      path: `${path}/{workflow_id}/versions/{version_id}/restore`,
      scope: "workflows:write",
      params: ofVersion,
      body: jsonBody(Draft.pick({ revision: true })),
      audit: ({ params }, { audited }) => ({ ...params, ...audited }),
      response: jsonResponse(200, Workflow),
      errors: [...NOT_CHANGED, "draft_revision_outdated", "billing_credits_exhausted"],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { workflow_id: workflowId, version_id: versionId } = params;
        const { draft_revision } = await lockToChange(request, tx, "edit_workflows", workflowId);
        if (body.revision !== draft_revision) {
          throw request.problem("draft_revision_outdated", draftIsAt(draft_revision));
        }
        const audited = await restoreVersion(tx, user.accountId, workflowId, versionId);
        if (audited === null) throw request.problem("not_found");
        return { body: workflowBody((await findWorkflow(tx, user, workflowId))!), audited };
      },
    }),
    ...(["archive", "unarchive"] as const).map((verb) =>
      write({
        risk: "reversible",
        key: `workflows.${verb}`,
        summary: verb === "archive" ? "Archive a workflow" : "Take a workflow out of the archive",
        description:
          "What is archived stays as it is, apart from the others: its runs go on, and no other begins. Out of the " +
          "archive, it is on or off as before. For members who may archive workflows: others get 403.",
        method: "POST",
        path: `${path}/{workflow_id}/${verb}`,
        scope: "workflows:write",
        params,
        audit: ({ params }) => params,
        response: jsonResponse(200, Workflow),
        errors: ["not_found", "access_denied"],
        handle: async (request, tx) => {
          const { user } = request;
          const { workflow_id: workflowId } = request.params;
          await requirePermission(request, "archive_workflows", lockWorkflow(tx, user, workflowId));
          await setStatus(tx, user.accountId, workflowId, verb === "archive" ? "ARCHIVED" : "ACTIVE");
          return { body: workflowBody((await findWorkflow(tx, user, workflowId))!) };
        },
      }),
    ),
  ];
}

/** @throws Problem as `requirePermission`; and what is archived stays as it is */
async function lockToChange(
  request: Pick<ErasedRequest, "user" | "problem">,
  tx: ClientBase,
  permission: SpacePermission,
  workflowId: string,
): Promise<FoundWorkflow> {
  const found = lockWorkflow(tx, request.user, workflowId);
  const workflow = await requirePermission(request, permission, found);
  if (workflow.status === "ARCHIVED") throw request.problem("workflow_archived");
  return workflow;
}

/** Nodes can only name folders of the space, and times that come. @param place what their paths begin with */
async function findNodeFaults(
  tx: ClientBase,
  accountId: string,
  spaceId: string,
  definition: Definition,
  place: string,
): Promise<readonly FieldError[]> {
  const folders = definition.nodes.map((node) =>
    node.kind === "documents" ? node.parameters.folder_id : null,
  );
  const wanted = folders.filter((id) => id !== null);
  const found = new Set((await findFolders(tx, accountId, spaceId, wanted)).map(({ id }) => id));
  const message = "The space has no such folder. List its folders, or give null for its top.";
  const unknown = folders.flatMap((id, index) =>
    id === null || found.has(id) ? [] : [{ path: `${place}.nodes.${index}.parameters.folder_id`, message }],
  );
  return [...unknown, ...(await findCronFaults(tx, definition, place))];
}
