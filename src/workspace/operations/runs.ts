import type { ClientBase, Pool } from "pg";
import { z } from "zod";
import { INTEGER_MAX, id, targetUrl } from "../../api/fields.ts";
import { refuseBeyondStorage } from "../../base/database/storage.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import { FIELD_ERRORS_MAX, PAGE_ITEMS_MAX } from "../../http/limits.ts";
import { bytesResponse, jsonBody, jsonResponse, type Operation } from "../../http/operation.ts";
import { createCursors, type PageBody, pageOf, pageQuery } from "../../http/pagination.ts";
import { invalidRequest, Problem } from "../../http/problems.ts";
import type { Definition } from "../model/definition.ts";
import { isTriggerKind } from "../model/node-kinds.ts";
import {
  NODE_RUN_CONSTANTS,
  NodeItem,
  type NodeRun,
  RUN_CONSTANTS,
  RunEvents,
  WorkflowRun,
} from "../model/runs.ts";
import type { NodeErrorCode } from "../model/workflows.ts";
import { listNodeRuns, readItems, type StoredItem, type StoredNodeRun } from "../store/node-runs.ts";
import { readRunEvents } from "../store/run-events.ts";
import {
  cancelRun,
  createRun,
  type FoundRun,
  findPublished,
  findRun,
  hasRoomForRun,
  lockRunnable,
} from "../store/runs.ts";
import { holdMember, isMemberOf } from "../store/spaces.ts";
import type { SpaceUser } from "../store/statements.ts";
import { operationsOf, requirePermission, type WorkspaceDependencies } from "./workspace-operation.ts";

const object = z.record(z.string(), z.unknown());

/** A number out of range (`1e400`) would be null in what the trigger hands on. */
const input = object.superRefine((item, context) => {
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

const NewRun = z.strictObject({
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
});

/** On a page, unless its first item alone has more: it is read for whoever asks, beside all others' requests. */
const ITEM_BYTES_PER_PAGE = 262_144;

/** Items go as the texts that are stored: reading megabytes and writing them again keeps the process. */
function pageBytes({ items, ...rest }: PageBody<string>) {
  return { bytes: Buffer.from(`{"items":[${items.join()}],${JSON.stringify(rest).slice(1)}`) };
}

const { get, read, write } = operationsOf("Workflow runs");
const path = "/v1/workflow-runs/{run_id}";
const params = z.strictObject({ run_id: id });

/** Workflows at work: what they hand on, and what happens in them. */
export function runOperations({
  pool,
  unsafeAllowedTargets,
}: Pick<WorkspaceDependencies, "pool" | "unsafeAllowedTargets">): readonly Operation[] {
  const cursors = createCursors(z.int().min(0).max(INTEGER_MAX));
  return [
    write({
      key: "workflows.runs.create",
      summary: "Run a workflow",
      description:
        "Starts a published version of the workflow. When the run has ended, its analysis is published: it has the " +
        "run's id, and a webhook delivers it. For members who may run workflows: others get 403. 409 if nothing is " +
        "published yet, if the workflow or its space is in the bin, or if the account has too many runs in progress.",
      method: "POST",
      path: "/v1/workflows/{workflow_id}/runs",
      scope: "workflows:run",
      mode: "async",
      params: z.strictObject({ workflow_id: id }),
      body: jsonBody(NewRun, { isOptional: true }),
      audit: ({ params: { workflow_id } }, { body: { id: run_id, version } }) => {
        return { run_id, workflow_id, version: version.version };
      },
      response: jsonResponse(202, WorkflowRun),
      errors: [
        ...(["not_found", "access_denied", "target_refused", "workflow_not_published"] as const),
        ...(["workflow_deleted", "too_many_workflow_runs", "billing_credits_exhausted"] as const),
      ],
      handle: async (request, tx) => {
        const { user, params, body, traceparent, caller } = request;
        const { input = {}, webhook_url, version = null } = body;
        const { workflow_id: workflowId } = params;
        await holdMember(tx, user, "workflow_id", workflowId);
        const found = lockRunnable(tx, user, workflowId, version);
        const workflow = await requirePermission(request, "run_workflows", found);
        const { spaceId, currentVersion, definition, isDeleted } = workflow;
        if (isDeleted) throw request.problem("workflow_deleted");
        const asked = version ?? currentVersion;
        if (asked === null) throw request.problem("workflow_not_published");
        if (definition === null) {
          throw invalidRequest(
            "body.version",
            `The workflow has no version ${version}. Omit it for the current one.`,
          );
        }
        const webhookUrl = webhook_url == null ? null : allowedUrl(webhook_url);
        await refuseBeyondStorage(tx, user.accountId, user.userId, null);
        if (!(await hasRoomForRun(tx, user))) throw request.problem("too_many_workflow_runs");
        const what = { spaceId, workflowId, version: asked, definition, input };
        const run = { ...what, webhookUrl, traceparent, keyId: caller.keyId };
        const runId = await createRun(tx, user, run);
        return { body: (await findWithNodes(tx, user, runId))! };
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
    // Both grow at their end alone, so that whoever reads on meets everything once.
    read({
      key: "workflows.runs.node_items",
      summary: "List a node's items",
      description:
        "The items that a node of the run has passed on so far, in order; fewer than asked for if they are large. A " +
        "run in progress adds more after those; one that failed because it was too large, or because the account's " +
        "storage was full, keeps nothing. 404 if the run has no such node, or you are not a member of its space.",
      path: `${path}/nodes/{node_id}/items`,
      scope: "workflows:read",
      params: params.extend({ node_id: z.string().describe("As in the definition.") }),
      query: z.strictObject(pageQuery),
      response: bytesResponse({ mediaType: "application/json", documentedAs: pageOf(NodeItem) }),
      errors: ["not_found"],
      handle: async (request) => {
        const { user, accountId } = request;
        const { cursor, limit } = request.query;
        const { run_id: runId, node_id: nodeId } = request.params;
        const filter = [user, runId, nodeId];
        const after = cursors.read(cursor, filter) ?? -1;
        const run = await findRun(pool, user, runId);
        if (!run?.definition.nodes.some((node) => node.id === nodeId)) throw request.problem("not_found");
        const nodeRun = (await listNodeRuns(pool, accountId, runId)).find((one) => one.node_id === nodeId);
        if (nodeRun === undefined) return pageBytes({ items: [], next_cursor: null, total: 0 });
        const { sequence, output_counts: counts } = nodeRun;
        const ofNode = { accountId, runId, sequence };
        const { items: found, bytes } = await readItems(pool, ofNode, after, limit + 1, ITEM_BYTES_PER_PAGE);
        const fitting = bytes > ITEM_BYTES_PER_PAGE ? Math.max(found.length - 1, 1) : found.length;
        const items = found.slice(0, Math.min(fitting, limit));
        // A run that failed as too large has none, whatever it has handed on.
        const isEmpty = after === -1 && found.length === 0;
        const total = isEmpty ? 0 : Math.max(counts.items, (found.at(-1)?.index ?? -1) + 1);
        const last = items.at(-1)?.index ?? total;
        // Their indices have no gaps.
        const page = { items, next: last + 1 < total ? last : null, total };
        const itemOf = ({ index, item }: StoredItem) =>
          `{"node_id":${JSON.stringify(nodeId)},"index":${index},"item":${item}}`;
        return pageBytes(cursors.pageBody(page, filter, itemOf));
      },
    }),
    read({
      key: "workflows.runs.events",
      summary: "List a run's events",
      description:
        "What has happened in the run after a cursor, in order; none if there is nothing new. 404 if you are " +
        "not a member of its space.",
      path: `${path}/events`,
      scope: "workflows:read",
      params,
      query: z.strictObject({
        after: z
          .int()
          .min(0)
          .max(INTEGER_MAX)
          .default(0)
          .describe("`events_cursor` of the run or of the previous answer; absent: from the first."),
        limit: z
          .int()
          .min(1)
          .max(PAGE_ITEMS_MAX)
          .default(PAGE_ITEMS_MAX)
          .describe("Maximum number of events."),
      }),
      response: jsonResponse(200, RunEvents),
      errors: ["not_found"],
      handle: async (request) => {
        const { after, limit } = request.query;
        const { run_id: runId } = request.params;
        const { user } = request;
        if (!(await isMemberOf(pool, user, "run_id", runId))) throw request.problem("not_found");
        const items = await readRunEvents(pool, user.accountId, runId, after, limit);
        return { body: { items: [...items], events_cursor: items.at(-1)?.sequence ?? after } };
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
  const { definition, status } = run;
  const wakeTimes = nodeRuns.flatMap(({ wake_at }) => wake_at ?? []).sort();
  return {
    ...run,
    ...RUN_CONSTANTS,
    trigger_node_id: definition.nodes.find(({ kind }) => isTriggerKind(kind))!.id,
    activations_total: nodeRuns.length,
    wake_at: status === "WAITING" ? (wakeTimes[0] ?? null) : null,
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
