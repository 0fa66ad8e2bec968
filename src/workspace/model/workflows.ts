import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { Definition } from "./definition.ts";
import { TRIGGER_KINDS } from "./node-kinds.ts";
import { SPACE_ROLES } from "./roles.ts";
import { User } from "./spaces.ts";
import { ListedHook, Schedule } from "./triggers.ts";

export const WORKFLOW_STATUSES = ["ACTIVE", "ARCHIVED"] as const;
export type WorkflowStatus = (typeof WORKFLOW_STATUSES)[number];

/** `SPACE`: the members of its space have access, each by their role. There is no other yet. */
const WORKFLOW_ACCESS_MODES = ["SPACE"] as const;

/** Until it is given another. */
export const FIRST_WORKFLOW_NAME = "Untitled";

export const SUMMARY_CHARS_MAX = 1_000;
export const CHANGE_NOTE_CHARS_MAX = 1_000;

/** Of a run, and of each node in it. The last three are its end. */
export const RUN_STATUSES = ["QUEUED", "ACTIVE", "WAITING", "SUCCEEDED", "FAILED", "CANCELLED"] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** What happens to a run and its nodes, as its events tell. */
export const RUN_EVENT_KINDS = [
  "run.created",
  "run.started",
  "run.waiting",
  "run.succeeded",
  "run.failed",
  "run.cancelled",
  "node.started",
  "node.resumed",
  "node.progressed",
  "node.waiting",
  "node.retried",
  "node.succeeded",
  "node.failed",
  "node.cancelled",
] as const;
export type RunEventKind = (typeof RUN_EVENT_KINDS)[number];

/** Why a node, and with it its run, has failed. */
export const NODE_ERROR_CODES = [
  "folder_not_found",
  "run_too_large",
  "storage_full",
  "attempts_exhausted",
  "external_analysis_failed",
  "external_analysis_missing",
] as const;
export type NodeErrorCode = (typeof NODE_ERROR_CODES)[number];

/** Why a run has failed. */
export const RUN_ERROR_CODES = [...NODE_ERROR_CODES, "publish_refused"] as const;
export type RunErrorCode = (typeof RUN_ERROR_CODES)[number];

/** Why an item has no analysis. */
export const ITEM_ERROR_CODES = [
  "document_not_found",
  "document_not_uploaded",
  "document_gone",
  "document_too_large",
] as const;
export type ItemErrorCode = (typeof ITEM_ERROR_CODES)[number];

/** Of an account, at a time: they take turns. What all its runs hold, ended ones included, has a limit of its own. */
export const UNFINISHED_RUNS_MAX = 1_000;

/** What all nodes of one run hand on together. */
export const RUN_ITEMS_MAX = 100_000;
const RUN_ITEM_BYTES_MAX = 64 * 1_024 ** 2;
const RUN_ITEM_BYTES_MIN = 4 * 1_024 ** 2;
const ITEM_BYTES_PER_BROUGHT = 64;

/**
 * What they have together may be so many bytes, when the run's sources (its input, documents, analyses of others) have
 * brought it `broughtBytes`. A document's item is 200 bytes, and with an analysis 1 to 3 KB: that is room for several
 * nodes. Joined branches multiply what came in, 60 KB to gigabytes: that is no work that anybody wants.
 */
export function runItemBytesMax(broughtBytes: number): number {
  return Math.min(RUN_ITEM_BYTES_MIN + ITEM_BYTES_PER_BROUGHT * broughtBytes, RUN_ITEM_BYTES_MAX);
}

/** Of runs that failed for these, no items are kept: there are many, and none was of use. */
export const ITEMS_DROPPED_FOR: readonly NodeErrorCode[] = ["run_too_large", "storage_full"];

/** Times that a step is tried; with their waits a quarter of an hour or more: an object store restarts in less. */
export const STEP_ATTEMPTS_MAX = 15;

/** What a webhook has room for besides the rest of its analysis. */
export const RUN_SUMMARY_BYTES_MAX = 65_536;

const accessMode = z.enum(WORKFLOW_ACCESS_MODES).describe("`SPACE`: members of the space, by their roles.");

const Access = z.object({
  space_role: z
    .enum(SPACE_ROLES)
    .describe("Your role in the workflow's space; the following say what it allows."),
  share_role: z
    .string()
    .nullable()
    .describe("Null: shares are not offered; whoever is a member of the space has access."),
  access_mode: accessMode,
  is_creator: z.boolean().describe("Whether you made it."),
  can_view: z.boolean(),
  can_edit: z.boolean(),
  can_run: z.boolean(),
  can_publish: z.boolean(),
  can_share: z.boolean().describe("False: shares are not offered."),
  can_archive: z.boolean(),
  can_approve: z.boolean().describe("False: nothing needs approval yet."),
});

export const ListedWorkflowVersion = z
  .object({
    id,
    version: z.int().min(1).describe("1 for the first that was published."),
    change_note: z.string().nullable(),
    created_by: User,
    created_at: time,
  })
  .meta({ id: "ListedWorkflowVersion", description: "A published version, without its definition." });
export type ListedWorkflowVersion = z.output<typeof ListedWorkflowVersion>;

export const WorkflowVersion = ListedWorkflowVersion.extend({ definition: Definition }).meta({
  id: "WorkflowVersion",
  description: "A published version of a workflow, which never changes.",
});
export type WorkflowVersion = z.output<typeof WorkflowVersion>;

const LastRun = z.object({ id, status: z.enum(RUN_STATUSES), created_at: time });

const none = z.array(z.unknown()).max(0);

export const ListedWorkflow = z
  .object({
    id,
    space_id: id,
    name: z.string(),
    summary: z.string(),
    status: z.enum(WORKFLOW_STATUSES).describe("`ARCHIVED`: it stays as it is, and no run of it begins."),
    enabled: z.boolean().describe("False: it is switched off, and no run of it begins."),
    has_draft: z.boolean().describe("True: there always is one, even after publishing."),
    draft_differs: z.boolean().describe("Whether the draft differs from the current version."),
    draft_revision: z.int().min(1).describe("Counts the saves of the draft; the next save must name it."),
    current_version: ListedWorkflowVersion.nullable().describe("The version published last; null: none."),
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
    share_count: z.int().min(0).describe("0: shares are not offered."),
    webhooks: z.array(ListedHook).max(1).describe("If the current version begins at a hook: that."),
    triggers: z.array(Schedule).max(1).describe("If the current version begins at a schedule: that."),
    shares: none.describe("Empty: shares are not offered."),
    pins: none.describe("Empty: pins (items kept for a node) are not offered."),
  })
  .meta({
    id: "ListedWorkflow",
    description: "A workflow without its definition: get it by its id for that.",
  });
export type ListedWorkflow = z.output<typeof ListedWorkflow>;

export const Workflow = ListedWorkflow.extend({
  current_version: WorkflowVersion.nullable().describe("The version published last; null: none."),
  draft: Definition,
}).meta({ id: "Workflow", description: "Work on the documents of a space, as you see it." });
export type Workflow = z.output<typeof Workflow>;

/** What every workflow says of what is not offered. */
export const WORKFLOW_CONSTANTS = {
  has_draft: true,
  access_mode: "SPACE",
  share_count: 0,
  shares: [],
  pins: [],
} satisfies Partial<Workflow>;
