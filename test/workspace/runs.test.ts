import { createHash, randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { TestApi } from "../support/sealpost-api.ts";
import { api, database, objects, runs, space, useRuns } from "./run-world.ts";
import { documentsOf } from "./support/documents.ts";
import { chain, publishedAnalyses, runsOf, startTestRunner } from "./support/runs.ts";

const TEXT = Buffer.from(
  "The cat sat on the mat.\nThe dog did not, and the report was written in English.\n",
);

let runner: ReturnType<typeof startTestRunner>;
useRuns();
beforeAll(async () => {
  runner = startTestRunner(database.pool, objects);
});
afterAll(async () => {
  await runner.stop();
  expect(runner.errors).toEqual([]);
});

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

test("a run of documents is followed from its start to the analysis that it publishes", async () => {
  const account = await api.newAccount();
  const { key, accountId, userId } = account;
  const { ask } = {
    ask: (...[method, path, options]: Parameters<TestApi["ask"]>) =>
      api.ask(method, path, { key, ...options }),
  };
  const own = runsOf(ask);
  const files = documentsOf(ask);
  const { id: space_id } = await files.newSpace("analysed");
  const text = await files.uploaded({ space_id, file_name: "Cat.txt" }, TEXT);
  const data = await files.uploaded(
    { space_id, file_name: "Data", content_type: "application/octet-stream" },
    Buffer.from([0, 1, 2]),
  );
  await files.created({ space_id, file_name: "Pending.txt" });
  const definition = chain({ kind: "documents" }, { kind: "analyze", parameters: { top_words: 2 } });
  const workflow_id = await own.newWorkflow(space_id, definition);

  const webhook_url = "https://hooks.example.com/runs";
  const headers = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };
  const started = await own.started(workflow_id, { input: { note: "first" }, webhook_url }, { headers });
  const user = { id: userId, email: expect.any(String), name: expect.any(String), image_url: null };
  const known = {
    id: expect.any(String),
    workflow_id,
    workflow_name: "Untitled",
    space_id,
    version: { id: expect.any(String), version: 1 },
    origin: "manual",
    actor_type: "api",
    trigger_id: null,
    webhook_id: null,
    parent_run_id: null,
    retry_of: null,
    trigger_node_id: "trigger",
    test_node_id: null,
    error_code: null,
    error_message: null,
    error_details: {},
    cost_micro_usd: 0,
    micro_credits: 0,
    requested_by: user,
    created_at: time,
    wake_at: null,
    input: { note: "first" },
    webhook_url,
    definition: started.definition,
    settings: {},
    trace_id: "0af7651916cd43dd8448eb211c80319c",
  };
  expect(started).toEqual({
    ...known,
    status: "QUEUED",
    started_at: null,
    completed_at: null,
    delivery_id: null,
    activations_total: 1,
    node_runs: [expect.objectContaining({ node_id: "trigger", status: "QUEUED", started_at: null })],
    events_cursor: 1,
  });

  const run = await own.ended(started.id);
  const nodeRun = {
    id: expect.any(String),
    context_key: "",
    iteration_path: [],
    attempt: 1,
    seeded: false,
    status: "SUCCEEDED",
    error_code: null,
    error_message: null,
    error_details: {},
    retryable: false,
    cost_micro_usd: 0,
    micro_credits: 0,
    duration_ms: expect.any(Number),
    wake_at: null,
    started_at: time,
    completed_at: time,
    wait: null,
  };
  expect(run).toEqual({
    ...known,
    id: started.id,
    status: "SUCCEEDED",
    started_at: time,
    completed_at: time,
    delivery_id: expect.any(String),
    activations_total: 3,
    node_runs: [
      {
        ...nodeRun,
        ...{ node_id: "trigger", node_kind: "manual_trigger", node_name: "Begin", sequence: 1 },
        ...{ input_count: 0, output_counts: { items: 1, errors: 0 } },
      },
      {
        ...nodeRun,
        ...{ node_id: "node-0", node_kind: "documents", node_name: "documents", sequence: 2 },
        ...{ input_count: 1, output_counts: { items: 2, errors: 0 } },
      },
      {
        ...nodeRun,
        ...{ node_id: "node-1", node_kind: "analyze", node_name: "analyze", sequence: 3 },
        ...{ input_count: 2, output_counts: { items: 2, errors: 0 } },
      },
    ],
    events_cursor: 9,
  });
  expect(run.definition).toMatchObject(definition);

  expect(await own.items(run.id, "trigger")).toEqual([{ note: "first" }]);
  const items = await own.items(run.id, "node-1");
  expect(items).toEqual([
    {
      ...{ document_id: text.id, file_name: "Cat.txt", content_type: "text/plain", file_size: TEXT.length },
      analysis: {
        content_type: "text/plain",
        bytes: TEXT.length,
        sha256: createHash("sha256").update(TEXT).digest("hex"),
        text: {
          ...{ lines: 2, words: 17, language: null },
          top_words: [
            { word: "the", count: 4 },
            { word: "and", count: 1 },
          ],
        },
      },
    },
    {
      ...{ document_id: data.id, file_name: "Data", content_type: "application/octet-stream", file_size: 3 },
      analysis: {
        content_type: "application/octet-stream",
        bytes: 3,
        sha256: createHash("sha256")
          .update(Buffer.from([0, 1, 2]))
          .digest("hex"),
        text: null,
      },
    },
  ]);
  expect((await own.events(run.id)).map(({ kind, node_id }) => [kind, node_id])).toEqual([
    ["run.created", null],
    ["run.started", null],
    ["node.started", "trigger"],
    ["node.succeeded", "trigger"],
    ["node.started", "node-0"],
    ["node.succeeded", "node-0"],
    ["node.started", "node-1"],
    ["node.succeeded", "node-1"],
    ["run.succeeded", null],
  ]);
  expect(await publishedAnalyses(database.pool, accountId)).toEqual([
    {
      analysis: {
        id: run.id,
        status: "succeeded",
        workflow_id,
        result: {
          nodes: [
            { node_id: "trigger", items: 1, errors: 0 },
            { node_id: "node-0", items: 2, errors: 0 },
            { node_id: "node-1", items: 2, errors: 0 },
          ],
          items,
          items_total: 2,
        },
      },
      webhookUrl: webhook_url,
    },
  ]);
  const delivery = await ask("GET", `/v1/webhooks/deliveries/${run.delivery_id}`);
  expect([delivery.status, delivery.body.analysis_id]).toEqual([200, run.id]);
});

test("a run that waits says until when, and goes on then", async () => {
  const workflow = await runs.newWorkflow(space.id, chain({ kind: "wait", parameters: { for_seconds: 2 } }));
  const { id } = await runs.started(workflow, { input: { n: 1 } });
  const waiting = await runs.until(id, ["WAITING"]);
  const [, wait] = waiting.node_runs;
  expect(waiting).toMatchObject({ wake_at: time, completed_at: null });
  expect(wait).toMatchObject({
    status: "WAITING",
    wake_at: waiting.wake_at,
    wait: { kind: "time", until: waiting.wake_at },
  });
  expect(Date.parse(String(waiting.wake_at)) - Date.parse(String(wait!.started_at))).toBe(2_000);
  const run = await runs.ended(id);
  expect(run).toMatchObject({ status: "SUCCEEDED", wake_at: null });
  expect(Date.parse(String(run.completed_at))).toBeGreaterThanOrEqual(Date.parse(String(waiting.wake_at)));
  expect(await runs.items(id, "node-0")).toEqual([{ n: 1 }]);
});

test("a workflow without a version is not run, nor one that nobody has published", async () => {
  const made = await api.ask("POST", "/v1/workflows", { body: { space_id: space.id } });
  const { status, body } = await runs.start(String(made.body.id));
  expect([status, body.code]).toEqual([409, "workflow_not_published"]);
  const workflow = await runs.newWorkflow(space.id, chain());
  const other = await runs.start(workflow, { version: 2 });
  expect([other.status, other.body.errors]).toEqual([
    400,
    [{ path: "body.version", message: expect.stringContaining("no version 2") }],
  ]);
  expect((await runs.start(randomUUID())).status).toBe(404);
});
