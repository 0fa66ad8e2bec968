import type { Pool } from "pg";
import type { AnalysisOrigin, OriginStep, PublishedAnalysis } from "../../model/analysis-origin.ts";
import { isUuid } from "../../model/uuid.ts";
import { isTriggerKind, type NodeKind } from "../model/node-kinds.ts";

type Row = { readonly name: string; readonly steps: readonly (OriginStep & { readonly kind: NodeKind })[] };

// A run publishes under its own id, once it has ended; under the same, a pipeline may have been first.
const FIND = `
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
where run.account_id = $1 and run.id = $2 and run.delivery_id = $3`;

/** The run that published this analysis; null: it was none. */
export async function findRunOrigin(
  pool: Pool,
  accountId: string,
  { analysisId, deliveryId }: PublishedAnalysis,
): Promise<AnalysisOrigin | null> {
  if (!isUuid(analysisId)) return null;
  const { rows } = await pool.query<Row>(FIND, [accountId, analysisId, deliveryId]);
  const row = rows[0];
  if (row === undefined) return null;
  const steps = row.steps.filter(({ kind }) => !isTriggerKind(kind));
  return { name: row.name, runId: analysisId, steps };
}
