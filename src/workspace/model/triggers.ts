import { z } from "zod";
import { id, time } from "../../api/fields.ts";
import { HOOK_AUTH_MODES } from "./node-kinds.ts";

/** Why a trigger starts no run, each with what to do. */
export const TRIGGER_ERRORS = {
  workflow_deleted: "The workflow, or its space, is in the bin. Restore it.",
  workflow_archived: "The workflow is archived. Take it out of the archive.",
  workflow_disabled: "The workflow is switched off. Switch it on.",
  access_denied:
    "Whoever published the current version may no longer run workflows in the space. Let a member who may publish it.",
  too_many_workflow_runs:
    "The account, or whoever published the current version, had as many unfinished runs as they may have.",
  storage_full:
    "The account, or whoever published the current version, may store no more, or start no more runs today.",
} as const;
export type TriggerError = keyof typeof TRIGGER_ERRORS;
const TRIGGER_ERROR_CODES = Object.keys(TRIGGER_ERRORS) as [TriggerError, ...TriggerError[]];

const never = "Null: no provider's webhooks are subscribed to.";

export const Schedule = z
  .object({
    id: id.describe("Runs that it starts have it as their `trigger_id`."),
    node_id: z.string(),
    kind: z.literal("schedule"),
    active: z.boolean().describe("False: no run begins now when it is due, and `last_error_code` says why."),
    next_fire_at: time.nullable().describe("When it is looked at next; null: it is never due again."),
    last_fired_at: time.nullable().describe("When it started a run; null: it has started none."),
    last_error_code: z.enum(TRIGGER_ERROR_CODES).nullable().describe("Null: it starts, or started, its run."),
    last_error_message: z.string().nullable(),
  })
  .meta({
    id: "WorkflowSchedule",
    description: "The schedule at which a workflow's current version begins.",
  });

export const ListedHook = z
  .object({
    id: id.nullable().describe("Runs that it starts have it as their `webhook_id`; null: it has no key."),
    node_id: z.string(),
    url: z.url().nullable().describe("Null: it is shown once, in the answer that makes it."),
    auth_mode: z.enum(HOOK_AUTH_MODES),
    methods: z.array(z.string()).describe("`POST`."),
    active: z.boolean().describe("False: no run begins now, as `last_error_code` says, or it has no key."),
    provider_key: z.string().nullable().describe(never),
    integration_mode: z.string().nullable().describe(never),
    events: z.array(z.string()).max(0).describe("Empty: whatever is sent to it starts a run."),
    has_signing_secret: z.boolean(),
    subscription_state: z.string().nullable().describe(never),
    subscription_count: z.int().min(0).describe("0: as above."),
    last_error_code: z
      .enum(TRIGGER_ERROR_CODES)
      .nullable()
      .describe("Null: nothing keeps a run from beginning."),
    subscription_synced_at: time.nullable().describe(never),
  })
  .meta({ id: "ListedWorkflowHook", description: "The hook at which a workflow's current version begins." });

export const CreatedHook = z
  .object({
    id: id.describe("Runs that it starts have it as their `webhook_id`."),
    workflow_id: id,
    url: z.url().describe("Where to POST. Store it now; it is shown only once."),
    signing_secret: z
      .string()
      .describe(
        "What requests are signed with if the version asks for it. Store it now; it is shown only once.",
      ),
    created_at: time,
    previous_ends_at: time.nullable().describe("Until when the hook before it works; null: there is none."),
  })
  .meta({ id: "CreatedWorkflowHook", description: "A hook that was just made." });
