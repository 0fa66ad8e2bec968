import { z } from "zod";
import { analysisId, INTEGER_MAX, id, targetUrl, time } from "../../api/fields.ts";
import { FIELD_ERRORS_MAX } from "../../http/limits.ts";
import { Definition } from "../model/definition.ts";
import { isTriggerKind, NODE_KINDS } from "../model/node-kinds.ts";
import {
  NODE_ERROR_CODES,
  type NodeErrorCode,
  RUN_ERROR_CODES,
  RUN_EVENT_KINDS,
  RUN_STATUSES,
} from "../model/workflows.ts";
import type { StoredItem, StoredNodeRun } from "../store/node-runs.ts";
import type { StoredRunEvent } from "../store/run-events.ts";
import type { FoundRun } from "../store/runs.ts";
import { User, userBody } from "./workspace-operation.ts";

const object = z.record(z.string(), z.unknown());

/** A number out of range (`1e400`) would be null in what the trigger hands on. */
const input = object.superRefine((item, context) => {
  for (const path of findEndless(item)) {
    context.addIssue({ code: "custom", path: [...path], message: "No number is as large. Send it as text." });
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

export const NewRun = z.strictObject({
  input: input
    .optional()
    .describe("The trigger's item; absent: {}. Numbers are doubles: send longer ones as text."),
  webhook_url: targetUrl
    .nullable()
    .optional()
    .describe("Where to tell of the run's end: a public https:// URL. Overrides the account's endpoint."),
  version: z
    .int()
    .min(1)
    .max(INTEGER_MAX)
    .optional()
    .describe("A published version; absent: the current one."),
});

const count = z.int().min(0);
const unused = z.null();

const NodeRun = z
  .object({
    id,
    node_id: z.string(),
    node_kind: z.enum(NODE_KINDS),
    node_name: z.string(),
    context_key: z.string().describe("Empty: each node is activated once in a run."),
    iteration_path: z.array(z.unknown()).max(0),
    attempt: z
      .int()
      .min(1)
      .describe("Of the step that it is at: 1 and how often that has failed, or was cut."),
    sequence: z.int().min(1).describe("In the order in which the run came to its nodes."),
    seeded: z.boolean().describe("False: no node is given items that it has not made."),
    status: z.enum(RUN_STATUSES),
    input_count: count.describe("Items that it was given."),
    output_counts: z
      .object({ items: count, errors: count })
      .describe("Items that it has handed on so far, and those among them that tell of an error."),
    error_code: z.enum(NODE_ERROR_CODES).nullable(),
    error_message: z.string().nullable(),
    error_details: object.describe("Empty: `error_message` says all."),
    retryable: z.boolean().describe("Whether the same run may succeed when it is started again."),
    cost_micro_usd: count,
    micro_credits: count,
    duration_ms: count
      .nullable()
      .describe("From its start to its end, waits included; null: one is to come."),
    wake_at: time.nullable().describe("When it goes on at the latest; null: it does not wait."),
    started_at: time.nullable(),
    completed_at: time.nullable(),
    wait: z
      .discriminatedUnion("kind", [
        z.object({ kind: z.literal("time"), until: time }),
        z.object({
          kind: z.literal("analysis"),
          analysis_id: analysisId.describe("Publish an analysis of this id: the node goes on with it."),
          until: time.describe("Then the node fails."),
        }),
      ])
      .nullable()
      .describe("What it waits for; null: nothing."),
  })
  .meta({ id: "NodeRun", description: "A node that a run has come to." });

export const WorkflowRun = z
  .object({
    id: id.describe("Also of the analysis that its webhook tells of."),
    workflow_id: id,
    workflow_name: z.string(),
    space_id: id,
    version: z.object({ id, version: z.int().min(1) }),
    origin: z.literal("manual"),
    actor_type: z.literal("api"),
    trigger_id: unused,
    webhook_id: unused,
    parent_run_id: unused,
    retry_of: unused,
    trigger_node_id: z.string(),
    test_node_id: unused,
    status: z
      .enum(RUN_STATUSES)
      .describe(
        "`WAITING`: every node that goes on waits. `SUCCEEDED`, `FAILED` and `CANCELLED` are its end.",
      ),
    error_code: z.enum(RUN_ERROR_CODES).nullable(),
    error_message: z.string().nullable(),
    error_details: object.describe("Empty, unless there is more to tell of the error."),
    activations_total: count,
    cost_micro_usd: count,
    micro_credits: count,
    requested_by: User,
    created_at: time,
    started_at: time.nullable(),
    completed_at: time.nullable(),
    wake_at: time.nullable().describe("When it goes on at the latest; null: it does not wait."),
    input: object,
    webhook_url: z.string().nullable(),
    delivery_id: id.nullable().describe("The delivery that tells of its end; null: there is none."),
    definition: Definition,
    settings: object.describe("Empty: there are none yet."),
    trace_id: z.string().nullable().describe("Of the request that started it; null: it had none."),
    node_runs: z.array(NodeRun),
    events_cursor: count.describe("Its events up to here are in this answer: read those after it."),
  })
  .meta({ id: "WorkflowRun", description: "A workflow at work, with every node that it has come to." });

export const RunEvents = z
  .object({
    items: z.array(
      z.object({
        sequence: z.int().min(1),
        kind: z.enum(RUN_EVENT_KINDS),
        node_id: z.string().nullable().describe("Null: it is about the run."),
        details: object.describe(
          "Of a node that hands items on: how many so far, and how many of them tell an error.",
        ),
        created_at: time,
      }),
    ),
    events_cursor: count.describe("`after` of the next request."),
  })
  .meta({ id: "WorkflowRunEvents", description: "What has happened in a run, in its order." });

export const NodeItem = z
  .object({ node_id: z.string(), index: count, item: object })
  .meta({ id: "NodeItem", description: "What a node has handed on." });

/** It was not the workflow's fault, nor that of what it was given. */
const RETRYABLE: ReadonlySet<NodeErrorCode> = new Set([
  "attempts_exhausted",
  "external_analysis_missing",
  "storage_full",
]);

const timeOrNull = (moment: Date | null) => moment?.toISOString() ?? null;

export function runBody(run: FoundRun, nodeRuns: readonly StoredNodeRun[]): z.output<typeof WorkflowRun> {
  const { definition, status } = run;
  const wakeTimes = nodeRuns.flatMap(({ wakeAt }) => (wakeAt === null ? [] : [wakeAt.getTime()]));
  const isWaiting = status === "WAITING" && wakeTimes.length > 0;
  return {
    id: run.id,
    workflow_id: run.workflowId,
    workflow_name: run.workflowName,
    space_id: run.spaceId,
    version: run.version,
    origin: "manual",
    actor_type: "api",
    trigger_id: null,
    webhook_id: null,
    parent_run_id: null,
    retry_of: null,
    trigger_node_id: definition.nodes.find(({ kind }) => isTriggerKind(kind))!.id,
    test_node_id: null,
    status,
    error_code: run.errorCode,
    error_message: run.errorMessage,
    error_details: run.errorDetails ?? {},
    activations_total: nodeRuns.length,
    cost_micro_usd: 0,
    micro_credits: 0,
    requested_by: userBody(run.requestedBy),
    created_at: run.createdAt.toISOString(),
    started_at: timeOrNull(run.startedAt),
    completed_at: timeOrNull(run.completedAt),
    wake_at: isWaiting ? new Date(Math.min(...wakeTimes)).toISOString() : null,
    input: run.input,
    webhook_url: run.webhookUrl,
    delivery_id: run.deliveryId,
    definition,
    settings: {},
    trace_id: run.traceparent?.split("-")[1] ?? null,
    node_runs: nodeRuns.map((nodeRun) => nodeRunBody(nodeRun, run)),
    events_cursor: run.eventCount,
  };
}

function nodeRunBody(nodeRun: StoredNodeRun, { definition }: FoundRun): z.output<typeof NodeRun> {
  const { nodeId, startedAt, completedAt, wakeAt, errorCode } = nodeRun;
  const { kind, name } = definition.nodes.find(({ id }) => id === nodeId)!;
  // A clock may be set back.
  const durationMs = startedAt && completedAt && Math.max(+completedAt - +startedAt, 0);
  return {
    id: nodeRun.id,
    node_id: nodeId,
    node_kind: kind,
    node_name: name,
    context_key: "",
    iteration_path: [],
    attempt: nodeRun.attempt,
    sequence: nodeRun.sequence,
    seeded: false,
    status: nodeRun.status,
    input_count: nodeRun.inputCount,
    output_counts: { items: nodeRun.itemCount, errors: nodeRun.errorItemCount },
    error_code: errorCode,
    error_message: nodeRun.errorMessage,
    error_details: {},
    retryable: errorCode !== null && RETRYABLE.has(errorCode),
    cost_micro_usd: 0,
    micro_credits: 0,
    duration_ms: durationMs,
    wake_at: timeOrNull(wakeAt),
    started_at: timeOrNull(startedAt),
    completed_at: timeOrNull(completedAt),
    wait: waitOf(nodeRun),
  };
}

function waitOf({ wakeAt, awaitedAnalysisId: analysis_id }: StoredNodeRun): z.output<typeof NodeRun>["wait"] {
  if (wakeAt === null) return null;
  const until = wakeAt.toISOString();
  return analysis_id === null ? { kind: "time", until } : { kind: "analysis", analysis_id, until };
}

export function runEventsBody(events: readonly StoredRunEvent[], after: number): z.output<typeof RunEvents> {
  return {
    items: events.map(({ sequence, kind, nodeId, details, createdAt }) => {
      return { sequence, kind, node_id: nodeId, details: details ?? {}, created_at: createdAt.toISOString() };
    }),
    events_cursor: events.at(-1)?.sequence ?? after,
  };
}

export function nodeItemBody(nodeId: string, { index, item }: StoredItem): z.output<typeof NodeItem> {
  return { node_id: nodeId, index, item };
}
