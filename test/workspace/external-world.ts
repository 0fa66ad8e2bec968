// Nodes that wait for an analysis, and who publishes it.
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
