import type { ClientBase, Pool } from "pg";
import { timeText } from "../../base/database/time-text.ts";
import type { AnalysisOrigin, OriginStep, PublishedAnalysis } from "../../base/model/events.ts";
import { isUuid } from "../../base/model/formats.ts";
import { isTriggerKind, type NodeKind } from "../model/node-kinds.ts";
import type { RunEvent } from "../model/runs.ts";
import type { RunEventKind } from "../model/workflows.ts";
import { rowOf, rowsOf } from "./statements.ts";

export type NewRunEvent = {
  readonly kind: RunEventKind;
  /** Null: the whole run. */
  readonly nodeId: string | null;
  readonly details?: Readonly<Record<string, unknown>>;
};

/** In this order, behind those that the run has. It is locked, so that nobody sees a later one first. */
export async function insertRunEvents(
  tx: ClientBase,
  accountId: string,
  runId: string,
  events: readonly NewRunEvent[],
): Promise<void> {
  await tx.query({
    name: "insert_run_events",
    text: `
      with counted as (
        update workspace.runs set event_count = event_count + json_array_length($3::json)
        where account_id = $1 and id = $2 returning event_count - json_array_length($3::json) as before
      )
      insert into workspace.run_events (account_id, run_id, sequence, kind, node_id, details, created_at)
      select $1, $2, counted.before + event.n, event.kind, event.node_id, event.details, clock_timestamp()
      from counted, rows from (json_to_recordset($3) as (kind text, "nodeId" text, details json))
        with ordinality as event (kind, node_id, details, n)`,
    values: [accountId, runId, JSON.stringify(events)],
  });
}

/** Those behind the first `after`, in their order. */
export const readRunEvents = rowsOf<RunEvent, string, [runId: string, after: number, limit: number]>(
  `select sequence, kind, node_id, coalesce(details, '{}') as details, ${timeText("created_at")} as created_at
   from workspace.run_events where account_id = $1 and run_id = $2 and sequence > $3 order by sequence limit $4`,
);

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
