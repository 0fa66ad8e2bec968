// Nodes that wait for an analysis, and who publishes it.
import { expect } from "vitest";
import { eraseFromRuns } from "../../src/app/areas.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { eraseAnalysis, knowAsErased } from "../../src/delivery/erase-sql.ts";
import { publish } from "../support/installation.ts";
import { api, database, runs, space, stepping } from "./run-world.ts";
import { chain, type Run, readFeeds, stepAll } from "./support/runs.ts";

export const EXTERNAL = chain({ kind: "external_analysis" });

/** A run whose last node waits. */
export async function waiting(definition = EXTERNAL): Promise<{ run: Run; analysisId: string }> {
  const { id } = await runs.started(await runs.newWorkflow(space.id, definition));
  await stepAll(stepping());
  const run = await runs.get(id);
  return { run, analysisId: `${id}:${run.node_runs.at(-1)!.id}` };
}

export function publishIt(id: string, more: object | string = {}, accountId = api.account.accountId) {
  const text = typeof more === "string" ? more : JSON.stringify({ id, status: "succeeded", ...more });
  return publish(database.pool, accountId, text);
}

export const read = () => readFeeds(database.pool);

/** Whether any row of the workspace's runs has the text, or what is counted of them is not what there is. */
export async function isLeftOfRuns(text: string): Promise<readonly boolean[]> {
  const { rows } = await database.pool.query<[boolean, boolean]>({
    rowMode: "array",
    text: `select exists (select from workspace.runs as r where strpos(r::text, $2) > 0)
        or exists (select from workspace.node_items as i where strpos(i::text, $2) > 0),
      (select ended_runs from workspace.storage where account_id = $1 and holder_id = $1) is distinct from (
        select sum(workspace.run_bytes(input, item_bytes, item_count, node_run_count)) from workspace.runs
        where account_id = $1 and completed_at is not null)`,
    values: [api.account.accountId, text],
  });
  return rows[0]!;
}

/** As `erasures reapply` does. */
export async function eraseAgain(id: string): Promise<void> {
  await inTransaction(database.pool, async (tx) => {
    const { accountId } = api.account;
    const erased = await eraseAnalysis(tx, eraseFromRuns, accountId, id, "reapplying");
    if (erased === null) expect(await knowAsErased(tx, accountId, id)).toBe(true);
  });
}
