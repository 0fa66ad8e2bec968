// Workflows that are run, and runners in the test's process.
import type { Pool } from "pg";
import { expect } from "vitest";
import type { Definition, DefinitionNode } from "../../../src/workspace/model/definition.ts";
import type { ObjectStore } from "../../../src/workspace/objects/object-store.ts";
import { Runner, type RunnerOptions } from "../../../src/workspace/running/runner.ts";
import type { Asked, AskOptions, Json } from "../../support/sealpost-api.ts";
import { patience } from "../../support/time-limits.ts";

type Ask = (method: string, path: string, options?: AskOptions) => Promise<Asked>;

const TRIGGER: DefinitionNode = {
  id: "trigger",
  kind: "manual_trigger",
  name: "Begin",
  parameters: {},
};

/** One node after the other, behind the trigger. */
export function chain(
  ...nodes: readonly (Pick<DefinitionNode, "kind"> & { parameters?: object })[]
): Definition {
  const all = [
    TRIGGER,
    ...nodes.map((node, n) => ({ parameters: {}, ...node, id: `node-${n}`, name: node.kind })),
  ];
  const edges = all.slice(1).map(({ id }, n) => ({ from: all[n]!.id, to: id }));
  return { nodes: all as DefinitionNode[], edges };
}

const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED"];

export type Run = Json & {
  readonly id: string;
  readonly status: string;
  readonly node_runs: readonly Json[];
  readonly events_cursor: number;
};

/** Requests about runs; `options` say who asks. */
export function runsOf(ask: Ask) {
  const newWorkflow = async (space_id: unknown, definition: Definition, options: AskOptions = {}) => {
    const made = await ask("POST", "/v1/workflows", { ...options, body: { space_id } });
    const path = `/v1/workflows/${made.body.id}`;
    const saved = await ask("PUT", `${path}/draft`, { ...options, body: { revision: 1, definition } });
    expect([saved.status, saved.body.errors]).toEqual([200, undefined]);
    const published = await ask("POST", `${path}/publish`, options);
    expect([published.status, published.body.code]).toEqual(
      saved.body.draft_differs ? [200, undefined] : [409, "draft_not_changed"],
    );
    return String(made.body.id);
  };
  const start = (workflowId: string, body: object = {}, options: AskOptions = {}) =>
    ask("POST", `/v1/workflows/${workflowId}/runs`, { ...options, body });
  const started = async (workflowId: string, body: object = {}, options: AskOptions = {}): Promise<Run> => {
    const { status, body: run } = await start(workflowId, body, options);
    expect([status, run.code]).toEqual([202, undefined]);
    return run as Run;
  };
  const get = async (id: unknown, options: AskOptions = {}) =>
    (await ask("GET", `/v1/workflow-runs/${id}`, options)).body as Run;
  const until = async (id: unknown, statuses: readonly string[], timeoutMs = 10_000): Promise<Run> => {
    await expect
      .poll(async () => statuses.includes((await get(id)).status), {
        timeout: patience(timeoutMs),
        interval: 20,
      })
      .toBe(true);
    return await get(id);
  };
  const ended = (id: unknown, timeoutMs = 10_000) => until(id, ENDED, timeoutMs);
  const cancel = (id: unknown, options: AskOptions = {}) =>
    ask("POST", `/v1/workflow-runs/${id}/cancel`, options);
  const itemPage = (id: unknown, nodeId: string, query = "", options: AskOptions = {}) =>
    ask("GET", `/v1/workflow-runs/${id}/node-items?node_id=${nodeId}${query}`, options);
  const items = async (id: unknown, nodeId: string): Promise<Json[]> => {
    const found: Json[] = [];
    for (let query = ""; ; ) {
      const { body } = await itemPage(id, nodeId, query);
      found.push(...(body.items as { item: Json }[]).map(({ item }) => item));
      if (body.next_cursor === null) return found;
      query = `&cursor=${body.next_cursor}`;
    }
  };
  const eventPage = (id: unknown, query = "", options: AskOptions = {}) =>
    ask("GET", `/v1/workflow-runs/${id}/events${query}`, options);
  const events = async (id: unknown): Promise<Json[]> => {
    const found: Json[] = [];
    for (let after = 0; ; ) {
      const { items, events_cursor } = (await eventPage(id, `?after=${after}`)).body;
      if ((items as Json[]).length === 0) return found;
      found.push(...(items as Json[]));
      after = Number(events_cursor);
    }
  };
  return { newWorkflow, start, started, get, until, ended, cancel, itemPage, items, eventPage, events };
}

/** A runner in this process. Whatever goes wrong in it is told in `errors`. */
export function startTestRunner(pool: Pool, objects: ObjectStore, options: Partial<RunnerOptions> = {}) {
  const errors: unknown[] = [];
  const runner = new Runner({
    pool,
    objects,
    random: Math.random,
    retentionMs: 86_400_000,
    onEnded: () => undefined,
    onError: (_, error) => errors.push(error),
    lookEveryMs: 20,
    ...options,
  });
  runner.start();
  return { errors, stop: () => runner.stop() };
}

export type PublishedAnalysis = { readonly analysis: Json; readonly webhookUrl: string | null };

/** What was published for an account, in this order. */
export async function publishedAnalyses(
  pool: Pool,
  accountId: string,
): Promise<readonly PublishedAnalysis[]> {
  const { rows } = await pool.query<{ text: string; url: string | null }>(
    `select analysis::text as text, webhook_url as url from sealpost.bodies
     where account_id = $1 order by delivery_id`,
    [accountId],
  );
  return rows.map(({ text, url }) => ({ analysis: JSON.parse(text) as Json, webhookUrl: url }));
}
