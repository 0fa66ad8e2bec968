// What an account's workspace stores, by its rows, and runs that store much.
import type { Pool } from "pg";
import { expect } from "vitest";
import type { Definition } from "../../../src/workspace/model/definition.ts";
import { chain } from "./runs.ts";

/** What the rows are, counted anew, is what was added up as they came and went. */
export async function expectExact(pool: Pool, accountId: string): Promise<void> {
  const { rows } = await pool.query<{ kind: string; stored: number; counted: number }>(
    `with counted (kind, user_id, bytes) as (
       select 'documents', uploaded_by, 1024 + case when has_content then file_size else 0 end
         from workspace.documents where account_id = $1
       union all select 'documents', owner_id, 1024 from workspace.spaces where account_id = $1
       union all select 'documents', created_by, 1024 from workspace.folders where account_id = $1
       union all select case when is_reserved then 'documents' else 'leftovers' end, user_id,
           bytes + case when is_reserved then 0 else 1024 end
         from workspace.loose_objects where account_id = $1
       union all select 'pages', created_by, 1024 + octet_length(markdown) from workspace.pages where account_id = $1
       union all select 'pages', published_by, 1024 + octet_length(markdown) + octet_length(html)
         from workspace.page_versions where account_id = $1
       union all select 'pages', created_by, 1024 from workspace.page_links where account_id = $1
       union all select 'workflows', created_by, 1024 + octet_length(draft::text) from workspace.workflows
         where account_id = $1
       union all select 'workflows', created_by, 1024 + octet_length(definition::text)
         from workspace.workflow_versions where account_id = $1
       union all select 'runs', requested_by, 1024 + octet_length(input::text) from workspace.runs where account_id = $1
       union all select 'runs', r.requested_by, 1024 from workspace.node_runs as n
         join workspace.runs as r on r.id = n.run_id where n.account_id = $1
       union all select 'runs', r.requested_by, 256 + octet_length(item::text) from workspace.node_items as n
         join workspace.runs as r on r.id = n.run_id where n.account_id = $1
     ), summed as (
       select * from counted union all select kind, $1, bytes from counted
     )
     select kind, s.bytes::float8 as stored, coalesce(sum(c.bytes), 0)::float8 as counted
     from workspace.storage as s left join summed as c using (kind, user_id)
     where s.account_id = $1 group by kind, user_id, s.bytes`,
    [accountId],
  );
  for (const { kind, stored, counted } of rows) expect([kind, stored]).toEqual([kind, counted]);
}

/** Layers of five nodes, each joined with all of the layer before: every layer holds five times as much. */
export function joinedLayers(layers: number): Definition {
  const definition = chain(...Array.from({ length: 5 * layers }, () => ({ kind: "analyze" }) as const));
  definition.edges.splice(0);
  for (let n = 0; n < 5 * layers; n++) {
    const first = n - (n % 5) - 5;
    const before = n < 5 ? ["trigger"] : [0, 1, 2, 3, 4].map((of) => `node-${first + of}`);
    for (const from of before) definition.edges.push({ from, to: `node-${n}` });
  }
  return definition;
}
