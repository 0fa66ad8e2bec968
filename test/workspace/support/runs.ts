// Workflows that are run, and runners in the test's process.
import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import { expect } from "vitest";
import { sequenceEvents } from "../../../src/feed/feed-sql.ts";
import type { Definition, DefinitionNode } from "../../../src/workspace/model/definition.ts";
import { NODE_STEPS, type NodeSteps } from "../../../src/workspace/nodes/node-steps.ts";
import type { ObjectStore } from "../../../src/workspace/objects/object-store.ts";
import { type RunnerOptions, startRunner, takeStep } from "../../../src/workspace/running/runner.ts";
import type { StepEnd } from "../../../src/workspace/running/step-record.ts";
import { findReaders, wakeAwaiting } from "../../../src/workspace/store/awaited-analyses.ts";
import type { ClaimedStep } from "../../../src/workspace/store/statements.ts";
import { claimStep, makeStepsReady } from "../../../src/workspace/store/steps.ts";
import type { Asked, AskOptions, Json } from "../../support/sealpost-api.ts";
import { patience } from "../../support/time-limits.ts";
import { workflowsOf } from "./workflows.ts";

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
  const { published } = workflowsOf(ask);
  const newWorkflow = async (space_id: unknown, definition: Definition, options: AskOptions = {}) =>
    String((await published(space_id, definition, options)).id);
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
  const retry = (id: unknown, options: AskOptions = {}) =>
    ask("POST", `/v1/workflow-runs/${id}/retry`, options);
  const itemPage = (id: unknown, nodeId: string, query = "", options: AskOptions = {}) =>
    ask("GET", `/v1/workflow-runs/${id}/nodes/${nodeId}/items${query}`, options);
  const items = async (id: unknown, nodeId: string): Promise<Json[]> => {
    const found: Json[] = [];
    for (let query = ""; ; ) {
      const { body } = await itemPage(id, nodeId, query);
      found.push(...(body.items as { item: Json }[]).map(({ item }) => item));
      if (body.next_cursor === null) return found;
      query = `?cursor=${body.next_cursor}`;
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
  return {
    newWorkflow,
    start,
    started,
    get,
    until,
    ended,
    cancel,
    retry,
    itemPage,
    items,
    eventPage,
    events,
  };
}

/** A runner in this process. Whatever goes wrong in it is told in `errors`. */
export function startTestRunner(pool: Pool, objects: ObjectStore, options: Partial<RunnerOptions> = {}) {
  const errors: unknown[] = [];
  const runner = startRunner({
    pool,
    objects,
    random: Math.random,
    retentionMs: 86_400_000,
    onTaken: () => undefined,
    onError: (_, error) => errors.push(error),
    lookEveryMs: 20,
    ...options,
  });
  return { errors, ...runner };
}

const NOBODY = "00000000-0000-0000-0000-000000000000";
const SEQUENCER = randomUUID();
const NEVER = new AbortController().signal;

/** The step that is next, whosever it is. Null: nothing is to be done now. */
export async function claimNext(pool: Pool, leaseMs = 60_000): Promise<ClaimedStep | null> {
  await makeStepsReady(pool);
  return await claimStep(pool, NOBODY, leaseMs);
}

export type Stepping = {
  readonly pool: Pool;
  readonly objects: ObjectStore;
  /** In place of what kinds of nodes do. */
  readonly nodeSteps?: Partial<NodeSteps>;
  readonly faults?: unknown[];
  readonly signal?: AbortSignal;
};

/** Takes a step that was claimed. */
export function take({ pool, objects, nodeSteps, faults, signal = NEVER }: Stepping, step: ClaimedStep) {
  const onFault = (error: unknown) => void faults?.push(error);
  const all = { ...NODE_STEPS, ...nodeSteps };
  return takeStep({ pool, objects, nodeSteps: all, random: () => 0, onFault }, step, signal);
}

/** One step of a runner. Null: nothing is to be done now. */
export async function stepOnce(stepping: Stepping): Promise<StepEnd | null> {
  const step = await claimNext(stepping.pool);
  return step === null ? null : await take(stepping, step);
}

/** Steps until nothing is to be done now. Returns what the last one came to. */
export async function stepAll(stepping: Stepping): Promise<StepEnd | null> {
  for (let last: StepEnd | null = null; ; ) {
    const end = await stepOnce(stepping);
    if (end === null) return last;
    last = end;
  }
}

/** What was published has its place in the feed. */
export async function sequenceAll(pool: Pool): Promise<void> {
  while ((await sequenceEvents(pool, SEQUENCER, 60_000)).isFull);
}

/** And the feeds of all accounts that wait are read to their ends. */
export async function readFeeds(pool: Pool): Promise<void> {
  await sequenceAll(pool);
  for (const accountId of await findReaders(pool)) while (await wakeAwaiting(pool, accountId));
}

/** As if leases, waits and delays were over. */
export async function endWaits(pool: Pool): Promise<void> {
  await pool.query("update workspace.node_runs set next_at = now() where next_at > now()");
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
