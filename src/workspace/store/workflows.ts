import { timeText } from "../../base/database/time-text.ts";
import type { Definition } from "../model/definition.ts";
import type { NodeKind } from "../model/node-kinds.ts";
import type { SpaceRole } from "../model/roles.ts";
import type {
  ListedWorkflow,
  ListedWorkflowVersion,
  WORKFLOW_CONSTANTS,
  WorkflowStatus,
  WorkflowVersion,
} from "../model/workflows.ts";
import { isBelow, listOf } from "./lists.ts";
import { IS_MEMBER, joinMember, lockerOf, userJson } from "./spaces.ts";
import { change, rowOf, type SpaceUser } from "./statements.ts";
import { TRIGGERS } from "./triggers.ts";

/** A workflow as a member of its space sees it, without what it does. */
export type StoredWorkflow = Omit<
  ListedWorkflow,
  "node_count" | "trigger_kinds" | "access" | "published_by" | keyof typeof WORKFLOW_CONSTANTS
> & {
  /** Of the draft's nodes. */
  readonly kinds: readonly NodeKind[];
  /** The member's. */
  readonly role: SpaceRole;
  readonly isCreator: boolean;
};

/** With what it does. */
export type FoundWorkflow = StoredWorkflow & {
  readonly draft: Definition;
  /** The current version's. */
  readonly definition: Definition | null;
};

const LISTED = `w.id, w.space_id, w.name, w.summary, w.status, w.enabled, w.draft_revision,
  ${timeText("w.draft_updated_at")} as draft_updated_at, w.draft is distinct from v.definition as draft_differs,
  jsonb_path_query_array(w.draft, '$.nodes[*].kind') as kinds, ${userJson("c")} as created_by,
  ${timeText("w.created_at")} as created_at, ${timeText("w.updated_at")} as updated_at,
  m.role, w.created_by = m.user_id as "isCreator",
  case when v.id is not null then json_build_object('id', v.id, 'version', v.version, 'change_note', v.change_note,
    'created_by', ${userJson("p")}, 'created_at', ${timeText("v.created_at")}) end as current_version,
  (select json_build_object('id', r.id, 'status', r.status, 'created_at', ${timeText("r.created_at")})
   from workspace.runs as r where r.account_id = w.account_id and r.workflow_id = w.id
   order by r.id desc limit 1) as last_run, ${TRIGGERS}`;

/** Of the member $2. */
const WORKFLOWS = `workspace.workflows as w
  ${joinMember("w")}
  join sealpost.users as c on c.account_id = w.account_id and c.id = w.created_by
  left join workspace.workflow_versions as v
    on v.account_id = w.account_id and v.workflow_id = w.id and v.version = w.current_version
  left join sealpost.users as p on p.account_id = v.account_id and p.id = v.created_by`;

/** Null: there is no such workflow, or the user is not a member of its space. */
export const findWorkflow = rowOf<FoundWorkflow, SpaceUser, [workflowId: string]>(
  `select ${LISTED}, w.draft, v.definition from ${WORKFLOWS}
   where w.account_id = $1 and w.id = $3 and w.bin_id is null`,
  "find_workflow",
);

/** Changes of one workflow take turns. */
export const lockWorkflow = lockerOf("workflow_id", findWorkflow);

/** The workflows of a space, newest first. Null: there is no such space, or the user is not a member. */
export const listWorkflows = listOf<StoredWorkflow, [spaceId: string, status: WorkflowStatus]>({
  name: "list_workflows",
  isSeen: IS_MEMBER,
  total: {
    upToMax: "workspace.workflows where account_id = $1 and space_id = $3 and status = $4 and bin_id is null",
  },
  rows: `
    select ${LISTED} from ${WORKFLOWS}
    where w.account_id = $1 and w.space_id = $3 and w.status = $4 and w.bin_id is null and ${isBelow("w.id", "$5")}`,
  order: ["id", "desc"],
});

/** Whether the user $2 of the account $1 is a member of the space of the workflow. @param workflow SQL */
export const isWorkflowSeen = (workflow: string) => `
exists (select from workspace.workflows as w
  ${joinMember("w")}
  where w.account_id = $1 and w.id = ${workflow} and w.bin_id is null)`;

const VERSION = `v.id, v.version, v.change_note, ${userJson("p")} as created_by,
  ${timeText("v.created_at")} as created_at`;
const VERSIONS = `workspace.workflow_versions as v
  join sealpost.users as p on p.account_id = v.account_id and p.id = v.created_by`;

/** The versions of a workflow, newest first. Null: there is none, or the user is not a member of its space. */
export const listVersions = listOf<ListedWorkflowVersion, [workflowId: string], number>({
  isSeen: isWorkflowSeen("$3"),
  total: {
    exactly:
      "select coalesce(max(version), 0) from workspace.workflow_versions where account_id = $1 and workflow_id = $3",
  },
  rows: `
    select ${VERSION} from ${VERSIONS}
    where v.account_id = $1 and v.workflow_id = $3 and ($4::integer is null or v.version < $4)`,
  order: ["version", "desc"],
});

/** Null: the workflow has no such version, or the user is not a member of its space. */
export const findVersion = rowOf<WorkflowVersion, SpaceUser, [workflowId: string, versionId: string]>(
  `select ${VERSION}, v.definition from ${VERSIONS}
   where v.account_id = $1 and v.workflow_id = $3 and v.id = $4 and ${isWorkflowSeen("$3")}`,
);

/** Makes the version the draft again. The workflow is locked. Null: it has no such version. */
export const restoreVersion = rowOf<{ version: number }, string, [workflowId: string, versionId: string]>(
  `update workspace.workflows as w
   set draft = v.definition, draft_revision = w.draft_revision + 1, draft_updated_at = now(), updated_at = now()
   from workspace.workflow_versions as v
   where w.account_id = $1 and w.id = $2 and v.account_id = $1 and v.workflow_id = $2 and v.id = $3
   returning v.version`,
);

/** A workflow with a first draft. The space exists. */
export const insertWorkflow = rowOf<
  { id: string },
  SpaceUser,
  [spaceId: string, name: string, draft: Definition]
>(
  `insert into workspace.workflows (account_id, created_by, space_id, name, draft)
   values ($1, $2, $3, $4, $5) returning id`,
);

/** Null: it stays as it is. */
export const updateWorkflow = change<
  string,
  [workflowId: string, name: string | null, summary: string | null, enabled: boolean | null]
>(
  `update workspace.workflows
   set name = coalesce($3, name), summary = coalesce($4, summary), enabled = coalesce($5, enabled), updated_at = now()
   where account_id = $1 and id = $2`,
);

/** The workflow is locked. */
export const setStatus = change<string, [workflowId: string, status: WorkflowStatus]>(
  "update workspace.workflows set status = $3, updated_at = now() where account_id = $1 and id = $2",
);

/** The draft is replaced, which was seen at that revision; false: it is at another. The workflow is locked. */
export const saveDraft = change<string, [workflowId: string, revision: number, draft: Definition]>(
  `update workspace.workflows
   set draft = $4, draft_revision = draft_revision + 1, draft_updated_at = now(), updated_at = now()
   where account_id = $1 and id = $2 and draft_revision = $3`,
);

/** Makes the draft the next version, and that the current one. The workflow is locked. */
export const insertVersion = change<SpaceUser, [workflowId: string, changeNote: string | null]>(
  `with published as (
     insert into workspace.workflow_versions
       (account_id, workflow_id, version, definition, change_note, created_by)
     select account_id, id, coalesce(current_version, 0) + 1, draft, $4, $2
     from workspace.workflows where account_id = $1 and id = $3
     returning version
   )
   update workspace.workflows set current_version = published.version, updated_at = now()
   from published where account_id = $1 and id = $3`,
);
