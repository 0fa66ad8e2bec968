import { z } from "zod";
import type { Operation } from "../../api/operation.ts";
import { jsonBody, jsonResponse } from "../../api/operation-io.ts";
import { invalidRequest, Problem } from "../../api/problems.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import { id } from "../../operations/fields.ts";
import { listNodeRuns } from "../store/node-runs.ts";
import { cancelRun, createRun } from "../store/run-changes.ts";
import { findRun, findRunnable, hasRoomForRun } from "../store/runs.ts";
import { NewRun, runBody, WorkflowRun } from "./run-schema.ts";
import { read, requirePermission, userOf, type WorkspaceDependencies, write } from "./workspace-operation.ts";

const tag = "Workflow runs";
const path = "/v1/workflow-runs/{run_id}";
const params = z.strictObject({ run_id: id });

/** Workflows at work. What they hand on and what happens in them is in run-reads.ts. */
export function runOperations({
  pool,
  unsafeAllowedTargets,
}: Pick<WorkspaceDependencies, "pool" | "unsafeAllowedTargets">): readonly Operation[] {
  return [
    write({
      key: "workflows.runs.create",
      tag,
      summary: "Run a workflow",
      description:
        "Starts a published version of the workflow. When the run has ended, its analysis is published: it has the " +
        "run's id, and a webhook tells of it. For members who may run workflows: others get 403. 409 if nothing is " +
        "published yet, or if the account has too many runs that go on.",
      method: "POST",
      path: "/v1/workflows/{workflow_id}/runs",
      scope: "workflows:run",
      needsUser: true,
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      params: z.strictObject({ workflow_id: id }),
      body: jsonBody(NewRun, { isOptional: true }),
      audit: ({ params: { workflow_id } }, { body: { id: run_id, version } }) => {
        return { run_id, workflow_id, version: version.version };
      },
      response: jsonResponse(202, WorkflowRun),
      errors: [
        ...(["not_found", "access_denied", "target_refused", "workflow_not_published"] as const),
        "too_many_workflow_runs",
      ],
      handle: async (request, tx) => {
        const { workflow_id: workflowId } = request.params;
        const { input = {}, webhook_url, version = null } = request.body;
        const user = userOf(request);
        const workflow = await findRunnable(tx, user, workflowId, version);
        requirePermission(workflow?.role ?? null, "run_workflows", request);
        const { spaceId, currentVersion, definition } = workflow!;
        const asked = version ?? currentVersion;
        if (asked === null) throw request.problem("workflow_not_published");
        if (definition === null) {
          throw invalidRequest(
            "body.version",
            `The workflow has no version ${version}. Leave it out for the last.`,
          );
        }
        const webhookUrl = webhook_url == null ? null : allowedUrl(webhook_url);
        if (!(await hasRoomForRun(tx, user))) throw request.problem("too_many_workflow_runs");
        const { traceparent } = request;
        const run = { spaceId, workflowId, version: asked, definition, input, webhookUrl, traceparent };
        const runId = await createRun(tx, user, run);
        const found = (await findRun(tx, user, runId))!;
        return { body: runBody(found, await listNodeRuns(tx, user.accountId, runId)) };
      },
    }),
    read({
      key: "workflows.runs.get",
      tag,
      summary: "Get a workflow run",
      description:
        "One run with the definition that it carries out and every node that it has come to. 404 if you are not a " +
        "member of its space.",
      method: "GET",
      path,
      scope: "workflows:read",
      needsUser: true,
      params,
      response: jsonResponse(200, WorkflowRun),
      errors: ["not_found"],
      handle: async (request) => {
        const user = userOf(request);
        const { run_id: runId } = request.params;
        const run = await findRun(pool, user, runId);
        if (run === null) throw request.problem("not_found");
        return { body: runBody(run, await listNodeRuns(pool, user.accountId, runId)) };
      },
    }),
    write({
      key: "workflows.runs.cancel",
      tag,
      summary: "Cancel a workflow run",
      description:
        "Ends the run where it is. Nothing is published of it. For members who may run workflows: others get 403. " +
        "409 if it has ended.",
      method: "POST",
      path: `${path}/cancel`,
      scope: "workflows:run",
      needsUser: true,
      risk: "irreversible",
      mode: "sync",
      idempotency: "key_required",
      params,
      audit: ({ params: { run_id } }, { body: { workflow_id } }) => ({ run_id, workflow_id }),
      response: jsonResponse(200, WorkflowRun),
      errors: ["not_found", "access_denied", "workflow_run_ended"],
      handle: async (request, tx) => {
        const user = userOf(request);
        const { run_id: runId } = request.params;
        const run = await findRun(tx, user, runId);
        requirePermission(run?.role ?? null, "run_workflows", request);
        if (!(await cancelRun(tx, user.accountId, runId))) throw request.problem("workflow_run_ended");
        const found = (await findRun(tx, user, runId))!;
        return { body: runBody(found, await listNodeRuns(tx, user.accountId, runId)) };
      },
    }),
  ];

  /** In normal form. It is judged now, as when an analysis is published: at the run's end nobody could mend it. */
  function allowedUrl(url: string): string {
    const verdict = judgeTargetUrl(url, { unsafeAllowedTargets });
    if (verdict.verdict === "allow") return verdict.href;
    throw new Problem("target_refused", { errors: [{ path: "body.webhook_url", message: verdict.message }] });
  }
}
