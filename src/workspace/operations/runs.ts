import type { ClientBase, Pool } from "pg";
import { z } from "zod";
import { INTEGER_MAX, id, targetUrl } from "../../api/fields.ts";
import { refuseBeyondStorage } from "../../base/database/storage.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import { FIELD_ERRORS_MAX } from "../../http/limits.ts";
import { type ErasedRequest, jsonBody, jsonResponse, type Operation } from "../../http/operation.ts";
import { invalidRequest, Problem } from "../../http/problems.ts";
import { type Definition, triggerOf } from "../model/definition.ts";
import { NODE_RUN_CONSTANTS, type NodeRun, RUN_CONSTANTS, WorkflowRun } from "../model/runs.ts";
import type { NodeErrorCode } from "../model/workflows.ts";
import { listNodeRuns, type StoredNodeRun } from "../store/node-runs.ts";
import {
  cancelRun,
  type FoundRun,
  findPublished,
  findRun,
  lockRunnable,
  type RunnableWorkflow,
  roomForRuns,
} from "../store/runs.ts";
import { holdMember } from "../store/spaces.ts";
import type { SpaceUser } from "../store/statements.ts";
import type { Step } from "../store/steps.ts";
import { beginRuns, type NewRun } from "../store/triggers.ts";
import { operationsOf, requirePermission, type WorkspaceDependencies } from "./workspace-operation.ts";

const object = z.record(z.string(), z.unknown());

/** The trigger's item. A number out of range (`1e400`) would be null in what it hands on. */
export const input = object.superRefine((item, context) => {
  for (const path of findEndless(item)) {
    context.addIssue({
      code: "custom",
      path: [...path],
      message: "Too large for a number. Send it as text.",
    });
  }
});

/** The places of the first such numbers: a body has few enough levels, and room for many numbers. */
function findEndless(item: object): readonly (readonly string[])[] {
  const found: string[][] = [];
  const path: string[] = [];
  const look = (value: unknown): void => {
    if (typeof value === "number" && !Number.isFinite(value)) found.push([...path]);
    if (typeof value !== "object" || value === null) return;
    for (const [name, member] of Object.entries(value)) {
      path.push(name);
      look(member);
      path.pop();
      if (found.length === FIELD_ERRORS_MAX) return;
    }
  };
  look(item);
  return found;
}

const NewRunBody = z
  .strictObject({
    input: input
      .optional()
      .describe("The trigger's item; absent: {}. Numbers are doubles: send longer ones as text."),
    webhook_url: targetUrl
      .nullable()
      .optional()
      .describe("Where to report the run's end: a public https:// URL. Overrides the account's endpoint."),
    version: z
      .int()
      .min(1)
      .max(INTEGER_MAX)
      .optional()
      .describe("A published version; absent: the current one."),
    test_node_id: z
      .string()
      .optional()
      .describe("Tests this node: nothing runs but what leads to it, and nothing is published."),
  })
  .refine(({ test_node_id, webhook_url }) => test_node_id === undefined || webhook_url == null, {
    path: ["webhook_url"],
    error: "A test publishes nothing: omit the URL.",
  });

const { get, write } = operationsOf("Workflow runs");
const path = "/v1/workflow-runs/{run_id}";
const params = z.strictObject({ run_id: id });

const NOT_STARTED = [
  ...(["not_found", "access_denied", "target_refused", "too_many_workflow_runs"] as const),
  "billing_credits_exhausted",
] as const;
const NOT_RUNNABLE = ["workflow_deleted", "workflow_archived", "workflow_disabled"] as const;

/** Workflows at work: started, watched, cancelled, and started again. */
export function runOperations({
  pool,
  unsafeAllowedTargets,
}: Pick<WorkspaceDependencies, "pool" | "unsafeAllowedTargets">): readonly Operation[] {
  return [
    write({
      key: "workflows.runs.create",
      summary: "Run a workflow",
      description:
        "Starts a published version of the workflow. When the run has ended, its analysis is published: it has the " +
        "run's id, and a webhook delivers it. For members who may run workflows: others get 403. 409 if nothing is " +
        "published yet, if the workflow is switched off or archived, if it or its space is in the bin, or if the " +
        "account has too many runs in progress.",
      method: "POST",
      path: "/v1/workflows/{workflow_id}/runs",
      scope: "workflows:run",
      mode: "async",
      params: z.strictObject({ workflow_id: id }),
      body: jsonBody(NewRunBody, { isOptional: true }),
      audit: ({ params: { workflow_id }, body: { test_node_id } }, { body: { id: run_id, version } }) => {
        return { run_id, workflow_id, version: version.version, ...(test_node_id && { test_node_id }) };
      },
      response: jsonResponse(202, WorkflowRun),
      errors: [...NOT_STARTED, ...NOT_RUNNABLE, "workflow_not_published"],
      handle: async (request, tx) => {
        const { user, params, body } = request;
        const { input = {}, webhook_url = null, version = null, test_node_id: testNodeId = null } = body;
        const { workflow_id: workflowId } = params;
        await holdMember(tx, user, "workflow_id", workflowId);
        const found = lockRunnable(tx, user, workflowId, version);
        const workflow = await requirePermission(request, "run_workflows", found);
        const webhookUrl = allowedUrl(webhook_url, "body.webhook_url");
        const asked = { workflowId, version, input, webhookUrl, testNodeId, retryOf: null };
        return { body: await startRun(request, tx, workflow, asked) };
      },
    }),
    get({
      key: "workflows.runs.get",
      summary: "Get a workflow run",
      description:
        "One run with the definition that it executes and every node that it has reached. 404 if you are not a " +
        "member of its space.",
      path,
      scope: "workflows:read",
      params,
      response: WorkflowRun,
      find: (user, { run_id }) => findWithNodes(pool, user, run_id),
      bodyOf: (run) => run,
    }),
    write({
      key: "workflows.runs.cancel",
      summary: "Cancel a workflow run",
      description:
        "Stops the run where it is. Nothing is published. For members who may run workflows: others get 403. " +
        "409 if it has ended.",
      method: "POST",
      path: `${path}/cancel`,
      scope: "workflows:run",
      params,
      audit: ({ params: { run_id } }, { body: { workflow_id } }) => ({ run_id, workflow_id }),
      response: jsonResponse(200, WorkflowRun),
      errors: ["not_found", "access_denied", "workflow_run_ended"],
      handle: async (request, tx) => {
        const { user } = request;
        const { run_id: runId } = request.params;
        await holdMember(tx, user, "run_id", runId);
        await requirePermission(request, "run_workflows", findRun(tx, user, runId));
        if (!(await cancelRun(tx, user.accountId, runId))) throw request.problem("workflow_run_ended");
        return { body: (await findWithNodes(tx, user, runId))! };
      },
    }),
    write({
      key: "workflows.runs.retry",
      summary: "Retry a workflow run",
      description:
        "Starts a run of the same version with the same input and `test_node_id`, from its first node on; with the " +
        "same `webhook_url` only if the run was yours. `retry_of` names it, and it stays as it is. For members who " +
        "may run workflows: others get 403. 409 if it has not failed or been cancelled, or none can be started.",
      method: "POST",
      path: `${path}/retry`,
      scope: "workflows:run",
      mode: "async",
      params,
      audit: ({ params: { run_id: retry_of } }, { body: { id: run_id, workflow_id, version } }) => {
        return { run_id, workflow_id, version: version.version, retry_of };
      },
      response: jsonResponse(202, WorkflowRun),
      errors: [...NOT_STARTED, ...NOT_RUNNABLE, "workflow_run_not_failed"],
      handle: async (request, tx) => {
        const { user } = request;
        const { run_id: runId } = request.params;
        await holdMember(tx, user, "run_id", runId);
        const run = await requirePermission(request, "run_workflows", findRun(tx, user, runId));
        const { status, workflow_id: workflowId, input, test_node_id: testNodeId } = run;
        if (status !== "FAILED" && status !== "CANCELLED") throw request.problem("workflow_run_not_failed");
        const { version } = run.version;
        const workflow = await lockRunnable(tx, user, workflowId, version);
        // Deleted for good, and kept for its runs alone.
        if (workflow === null) throw request.problem("workflow_deleted");
        // Whoever started the other run may no longer be told of this space.
        const url = run.requested_by.id === user.userId ? run.webhook_url : null;
        const webhookUrl = allowedUrl(url, "run.webhook_url");
        const asked = { workflowId, version, input, webhookUrl, testNodeId, retryOf: runId };
        return { body: await startRun(request, tx, workflow, asked) };
      },
    }),
  ];

  /** In normal form. It is judged now, as when an analysis is published: at the run's end nobody could mend it. */
  function allowedUrl(url: string | null, path: string): string | null {
    if (url === null) return null;
    const verdict = judgeTargetUrl(url, { unsafeAllowedTargets });
    if (verdict.verdict === "allow") return verdict.href;
    throw new Problem("target_refused", { errors: [{ path, message: verdict.message }] });
  }
}

/** A run that is asked for. `version`: null, the current one. */
type AskedRun = Required<Pick<NewRun, "workflowId" | "webhookUrl" | "testNodeId" | "retryOf">> & {
  readonly version: number | null;
  readonly input: Step["input"];
};

/** Of a workflow that is locked, and that the user may run. */
async function startRun(
  { user, caller, traceparent, problem }: Pick<ErasedRequest, "user" | "caller" | "traceparent" | "problem">,
  tx: ClientBase,
  { spaceId, currentVersion, definition, refusal }: RunnableWorkflow,
  { input, ...asked }: AskedRun,
): Promise<WorkflowRun> {
  if (refusal !== null) throw problem(refusal);
  const version = asked.version ?? currentVersion;
  if (version === null) throw problem("workflow_not_published");
  if (definition === null) {
    throw invalidRequest(
      "body.version",
      `The workflow has no version ${version}. Omit it for the current one.`,
    );
  }
  const { testNodeId } = asked;
  if (testNodeId !== null && !definition.nodes.some(({ id }) => id === testNodeId)) {
    throw invalidRequest("body.test_node_id", `No node of version ${version} has this id.`);
  }
  await refuseBeyondStorage(tx, user.accountId, user.userId, null);
  const room = await roomForRuns(tx, user, 1);
  const of = { spaceId, version, userId: user.userId, nodeId: triggerOf(definition) };
  const run = { ...asked, ...of, traceparent, keyId: caller.keyId, input: JSON.stringify(input) };
  const [begun] = await beginRuns(tx, user.accountId, JSON.stringify([run]), room);
  if (!begun?.id) throw problem("too_many_workflow_runs");
  return (await findWithNodes(tx, user, begun.id))!;
}

/** Null: there is no such run, or the user is not a member of its space. */
async function findWithNodes(
  database: Pool | ClientBase,
  user: SpaceUser,
  runId: string,
): Promise<WorkflowRun | null> {
  const run = await findRun(database, user, runId);
  if (run === null) return null;
  const { role: _, ...told } = run;
  return runBody(told, await listNodeRuns(database, user.accountId, runId));
}

/** Null: the account has no such run, or it has published nothing. */
export async function findPublishedRun(
  pool: Pool,
  accountId: string,
  runId: string,
): Promise<WorkflowRun | null> {
  const run = await findPublished(pool, accountId, runId);
  return run && runBody(run, await listNodeRuns(pool, accountId, runId));
}

function runBody(run: Omit<FoundRun, "role">, nodeRuns: readonly StoredNodeRun[]): WorkflowRun {
  const { definition } = run;
  return {
    ...run,
    ...RUN_CONSTANTS,
    trigger_node_id: triggerOf(definition),
    activations_total: nodeRuns.length,
    node_runs: nodeRuns.map((nodeRun) => nodeRunBody(nodeRun, definition)),
  };
}

/** It was not the workflow's fault, nor that of what it was given. */
const RETRYABLE: ReadonlySet<NodeErrorCode> = new Set([
  "attempts_exhausted",
  "external_analysis_missing",
  "storage_full",
]);

function nodeRunBody({ awaitedAnalysisId, ...nodeRun }: StoredNodeRun, { nodes }: Definition): NodeRun {
  const { node_id, error_code } = nodeRun;
  const { kind: node_kind, name: node_name } = nodes.find(({ id }) => id === node_id)!;
  return {
    ...nodeRun,
    ...NODE_RUN_CONSTANTS,
    node_kind,
    node_name,
    retryable: error_code !== null && RETRYABLE.has(error_code),
    duration_ms: durationMs(nodeRun),
    wait: waitOf(nodeRun.wake_at, awaitedAnalysisId),
  };
}

function durationMs({
  started_at,
  completed_at,
}: Pick<NodeRun, "started_at" | "completed_at">): number | null {
  if (started_at === null || completed_at === null) return null;
  // A clock may be set back.
  return Math.max(Date.parse(completed_at) - Date.parse(started_at), 0);
}

function waitOf(until: string | null, analysis_id: string | null): NodeRun["wait"] {
  if (until === null) return null;
  return analysis_id === null ? { kind: "time", until } : { kind: "analysis", analysis_id, until };
}
