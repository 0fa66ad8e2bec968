import { z } from "zod";
import { analysisId, id, time } from "../../api/fields.ts";
import { Definition } from "./definition.ts";
import { NODE_KINDS } from "./node-kinds.ts";
import { User } from "./spaces.ts";
import { NODE_ERROR_CODES, RUN_ERROR_CODES, RUN_EVENT_KINDS, RUN_STATUSES } from "./workflows.ts";

const object = z.record(z.string(), z.unknown());
const count = z.int().min(0);
const cost = count.describe("0: costs are not offered.");
/** Always null, with the type that it would have: generators of clients know no schema that is null alone. */
const unused = id.nullable().describe("Null: not offered yet.");

export const NodeRun = z
  .object({
    id,
    node_id: z.string(),
    node_kind: z.enum(NODE_KINDS),
    node_name: z.string(),
    context_key: z.string().describe("Empty: each node is activated once in a run."),
    iteration_path: z.array(z.unknown()).max(0),
    attempt: z.int().min(1).describe("1, plus how often its current step has failed or was interrupted."),
    sequence: z.int().min(1).describe("In the order in which the run reached its nodes."),
    seeded: z.boolean().describe("False: each node produces its own items."),
    status: z.enum(RUN_STATUSES),
    input_count: count.describe("Items that it was given."),
    output_counts: z
      .object({ items: count, errors: count })
      .describe("Items that it has passed on so far, and how many of them report an error."),
    error_code: z.enum(NODE_ERROR_CODES).nullable(),
    error_message: z.string().nullable(),
    error_details: object.describe("Empty: `error_message` says everything."),
    retryable: z.boolean().describe("Whether the same run may succeed when it is started again."),
    cost_micro_usd: cost,
    micro_credits: cost,
    duration_ms: count
      .nullable()
      .describe("From its start to its end, waits included; null: one is to come."),
    wake_at: time.nullable().describe("When it continues at the latest; null: it is not waiting."),
    started_at: time.nullable(),
    completed_at: time.nullable(),
    wait: z
      .discriminatedUnion("kind", [
        z.object({ kind: z.literal("time"), until: time }),
        z.object({
          kind: z.literal("analysis"),
          analysis_id: analysisId.describe("Publish an analysis with this id: the node continues with it."),
          until: time.describe("Then the node fails."),
        }),
      ])
      .nullable()
      .describe("What it waits for; null: nothing."),
  })
  .meta({ id: "NodeRun", description: "A node that a run has reached." });
export type NodeRun = z.output<typeof NodeRun>;

/** What every node of a run says of what is not offered. */
export const NODE_RUN_CONSTANTS = {
  context_key: "",
  iteration_path: [],
  seeded: false,
  error_details: {},
  cost_micro_usd: 0,
  micro_credits: 0,
} satisfies Partial<NodeRun>;

/** What has started a run, and in whose name. */
const RUN_ORIGINS = ["manual", "schedule", "webhook"] as const;
const ACTOR_TYPES = ["api", "system", "webhook"] as const;

export const ListedWorkflowRun = z
  .object({
    id: id.describe("Also the id of the analysis in its webhook."),
    workflow_id: id,
    workflow_name: z.string(),
    space_id: id,
    version: z.object({ id, version: z.int().min(1) }),
    origin: z.enum(RUN_ORIGINS).describe("`manual`: somebody asked for it. Else its workflow's trigger did."),
    actor_type: z
      .enum(ACTOR_TYPES)
      .describe("`api`: a key. `system`: nobody, it was due. `webhook`: whoever has the hook's URL."),
    trigger_id: id.nullable().describe("The schedule that started it; null: none did."),
    webhook_id: id.nullable().describe("The hook that started it, which may have ended; null: none did."),
    parent_run_id: unused,
    retry_of: id.nullable().describe("The run that it does again, which may no longer be kept; null: none."),
    test_node_id: z
      .string()
      .nullable()
      .describe("It ends with this node, and publishes nothing; null: it is no test."),
    status: z
      .enum(RUN_STATUSES)
      .describe(
        "`WAITING`: every node in progress is waiting. `SUCCEEDED`, `FAILED` and `CANCELLED` are its end.",
      ),
    error_code: z.enum(RUN_ERROR_CODES).nullable(),
    error_message: z.string().nullable(),
    error_details: object.describe("Empty, unless there is more to say about the error."),
    activations_total: count,
    cost_micro_usd: cost,
    micro_credits: cost,
    requested_by: User.describe("Of a run that a trigger started: who published the version."),
    created_at: time,
    started_at: time.nullable(),
    completed_at: time.nullable(),
    wake_at: time.nullable().describe("When it continues at the latest; null: it is not waiting."),
    webhook_url: z.string().nullable(),
    delivery_id: id.nullable().describe("The delivery that reports its end; null: there is none."),
    settings: object.describe("Empty: there are none yet."),
    trace_id: z.string().nullable().describe("Of the request that started it; null: it had none."),
    events_cursor: count.describe("This response covers the run's events up to here: read on after it."),
  })
  .meta({
    id: "ListedWorkflowRun",
    description: "A run without its input, its definition and its nodes: get it by its id for these.",
  });
export type ListedWorkflowRun = z.output<typeof ListedWorkflowRun>;

export const WorkflowRun = ListedWorkflowRun.extend({
  trigger_node_id: z.string(),
  input: object,
  definition: Definition,
  node_runs: z.array(NodeRun),
}).meta({ id: "WorkflowRun", description: "A run of a workflow, with every node that it has reached." });
export type WorkflowRun = z.output<typeof WorkflowRun>;

/** What every run says of what is not offered yet. */
export const RUN_CONSTANTS = {
  parent_run_id: null,
  cost_micro_usd: 0,
  micro_credits: 0,
  settings: {},
} satisfies Partial<ListedWorkflowRun>;

const RunEvent = z.object({
  sequence: z.int().min(1),
  kind: z.enum(RUN_EVENT_KINDS),
  node_id: z.string().nullable().describe("Null: it is about the run."),
  details: object.describe(
    "Of a node that passes items on: how many so far, and how many of them report an error.",
  ),
  created_at: time,
});
export type RunEvent = z.output<typeof RunEvent>;

export const RunEvents = z
  .object({
    items: z.array(RunEvent),
    events_cursor: count.describe("`after` of the next request."),
  })
  .meta({ id: "WorkflowRunEvents", description: "What has happened in a run, in order." });

export const NodeItem = z
  .object({ node_id: z.string(), index: count, item: object })
  .meta({ id: "NodeItem", description: "What a node has passed on." });
