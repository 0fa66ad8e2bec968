import type { Pool } from "pg";
import type { AnalysisOrigin, OriginStep, PublishedAnalysis } from "../../base/model/events.ts";
import { isUuid } from "../../base/model/formats.ts";
import type { AccountReader, DeliveredWorkflow, FindWorkflowDeliveries } from "../../base/model/origins.ts";
import { isTriggerKind, type NodeKind } from "../model/node-kinds.ts";
import { rowOf, rowsOf } from "./statements.ts";

type Row = { readonly name: string; readonly steps: readonly (OriginStep & { readonly kind: NodeKind })[] };

// A run publishes under its own id, once it has ended; under the same, a pipeline may have been first.
const findOrigin = rowOf<Row, string, [runId: string, deliveryId: string]>(`
select workflow.name, coalesce(steps.taken, '[]') as steps
from workspace.runs as run
join workspace.workflows as workflow on (workflow.account_id, workflow.id) = (run.account_id, run.workflow_id)
cross join lateral (
  select json_agg(json_build_object(
      'name', node.value ->> 'name',
      'kind', node.value ->> 'kind',
      'hasFailed', node_run.status = 'FAILED',
      'itemCount', node_run.item_count
    ) order by node_run.sequence) as taken
  from workspace.node_runs as node_run
  join workspace.workflow_versions as version
    on (version.account_id, version.workflow_id, version.version) = (run.account_id, run.workflow_id, run.version)
  join lateral jsonb_array_elements(version.definition -> 'nodes') as node
    on node.value ->> 'id' = node_run.node_id
  where (node_run.account_id, node_run.run_id) = (run.account_id, run.id)
    and node_run.status in ('SUCCEEDED', 'FAILED')
) as steps
where run.account_id = $1 and run.id = $2 and run.delivery_id = $3`);

/** The run that published this analysis; null: it was none. */
export async function findRunOrigin(
  pool: Pool,
  accountId: string,
  { analysisId, deliveryId }: PublishedAnalysis,
): Promise<AnalysisOrigin | null> {
  if (!isUuid(analysisId)) return null;
  const row = await findOrigin(pool, accountId, analysisId, deliveryId);
  if (row === null) return null;
  const steps = row.steps.filter(({ kind }) => !isTriggerKind(kind));
  return { name: row.name, runId: analysisId, steps };
}

// As above: by the run's id, and only with its delivery.
const findWorkflows = rowsOf<
  DeliveredWorkflow & { readonly deliveryId: string },
  AccountReader,
  [runIds: readonly string[], deliveryIds: readonly string[]]
>(
  `select run.delivery_id as "deliveryId", workflow.id, workflow.name, run.id as "runId"
   from unnest($3::uuid[], $4::uuid[]) as published (run_id, delivery_id)
   join workspace.runs as run on run.account_id = $1 and run.id = published.run_id
     and run.delivery_id = published.delivery_id
   join workspace.workflows as workflow on (workflow.account_id, workflow.id) = (run.account_id, run.workflow_id)
   where $2::uuid is null or exists (select from workspace.space_members as member
     where (member.account_id, member.space_id, member.user_id) = (run.account_id, run.space_id, $2))`,
  "find_workflows_of_deliveries",
);

/** The workflows whose runs published these, by their deliveries' ids: those in spaces that the user is a member of. */
export async function findWorkflowsOf(
  pool: Pool,
  reader: AccountReader,
  published: readonly PublishedAnalysis[],
): Promise<ReadonlyMap<string, DeliveredWorkflow>> {
  const byRuns = published.filter(({ analysisId }) => isUuid(analysisId));
  if (byRuns.length === 0) return new Map();
  const [runIds, deliveryIds] = [
    byRuns.map(({ analysisId }) => analysisId),
    byRuns.map(({ deliveryId }) => deliveryId),
  ];
  const rows = await findWorkflows(pool, reader, runIds, deliveryIds);
  return new Map(rows.map(({ deliveryId, ...workflow }) => [deliveryId, workflow]));
}

/** Newest runs that are looked at for those that have published. */
const RUNS_LOOKED_AT_MAX = 1_000;

/** By their runs, the newest first. */
export async function findWorkflowDeliveries(
  pool: Pool,
  ...[{ accountId, spaceIds }, workflowId, countMax]: Parameters<FindWorkflowDeliveries>
): Promise<readonly string[]> {
  const { rows } = await pool.query<{ id: string }>({
    name: "find_workflow_deliveries",
    text: `select delivery_id as id from (
        select id, delivery_id from workspace.runs
        -- Of what is not seen nothing is looked at.
        where account_id = $1 and workflow_id = (
          select id from workspace.workflows
          where account_id = $1 and id = $2 and ($3::uuid[] is null or space_id = any ($3::uuid[])))
        order by id desc limit ${RUNS_LOOKED_AT_MAX}
      ) as newest
      where delivery_id is not null order by newest.id desc limit $4`,
    values: [accountId, workflowId, spaceIds, countMax],
  });
  return rows.map(({ id }) => id);
}
