import { z } from "zod";
import type { Operation } from "../../api/operation.ts";
import { jsonBody, jsonResponse } from "../../api/operation-io.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../../api/pagination.ts";
import { id } from "../../operations/fields.ts";
import { FIRST_DEFINITION } from "../model/definition.ts";
import { FIRST_WORKFLOW_NAME } from "../model/workflows.ts";
import { lockSpace } from "../store/spaces.ts";
import {
  findWorkflow,
  insertWorkflow,
  listWorkflows,
  lockWorkflow,
  updateWorkflow,
} from "../store/workflows.ts";
import {
  Changes,
  ListedWorkflowSchema,
  listedWorkflowBody,
  Workflow,
  workflowBody,
} from "./workflow-schema.ts";
import { read, requirePermission, userOf, type WorkspaceDependencies, write } from "./workspace-operation.ts";

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
