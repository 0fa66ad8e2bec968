// Nodes that wait for an analysis that somebody else publishes.
import { expect, test } from "vitest";
import { createAccount } from "../../src/accounts/accounts-sql.ts";
import type { Definition } from "../../src/workspace/model/definition.ts";
import type { ReadInput } from "../../src/workspace/nodes/node-step.ts";
import { NODE_STEPS, type NodeSteps } from "../../src/workspace/nodes/node-steps.ts";
import { countRows, SECRETS_KEY } from "../support/installation.ts";
import type { Json } from "../support/sealpost-api.ts";
import { EXTERNAL, publishIt, read, waiting } from "./external-world.ts";
import { api, database, runs, space, stepping, useRuns } from "./run-world.ts";
import { chain, endWaits, publishedAnalyses, stepAll, stepOnce } from "./support/runs.ts";

useRuns();

const readers = () => countRows(database.pool, "workspace.feed_readers", {});

test("an analysis that is published ends the wait and is handed on", async () => {
  const { run, analysisId } = await waiting();
  const [, nodeRun] = run.node_runs as [Json, Json];
  const until = new Date(Date.parse(String(nodeRun.started_at)) + 7 * 86_400_000).toISOString();
  expect(run).toMatchObject({ status: "WAITING", wake_at: until });
  expect(nodeRun).toMatchObject({
    status: "WAITING",
    wake_at: until,
    wait: { kind: "analysis", analysis_id: analysisId, until },
  });
  const [waits] = (await runs.events(run.id)).filter(({ kind }) => kind === "node.waiting");
  expect(waits!.details).toEqual({ until, analysis_id: analysisId });

  await read();
  expect(await stepOnce(stepping())).toBe(null);
  const analysis = `{"id":"${analysisId}","status":"succeeded","pages":[1,{"n":1e400}]}`;
  await publishIt(analysisId, analysis);
  await read();
  expect(await stepAll(stepping())).toBe("run_succeeded");
  const item = { id: analysisId, status: "succeeded", pages: [1, { n: "1e400" }] };
  expect(await runs.items(run.id, "node-0")).toEqual([item]);
  expect((await runs.get(run.id)).node_runs[1]).toMatchObject({
    status: "SUCCEEDED",
    wait: null,
    wake_at: null,
  });
  const published = await publishedAnalyses(database.pool, api.account.accountId);
  const [own] = published.filter(({ analysis: { id } }) => id === run.id);
  expect((own!.analysis.result as Json).items).toEqual([item]);
  // Nobody waits any more.
  await read();
  expect(await readers()).toBe(0);
});

test.each([
  [
    "in a code and a sentence",
    { error_code: "unreadable", error_message: "Page 3 is torn." },
    ": unreadable: Page 3 is torn.",
  ],
  ["in what no text can hold", { error_message: "a\u0000b\ud800" }, ": a b\ufffd."],
  ["at length", { error_message: `${"x".repeat(499)}\u{1f600}` }, `: ${"x".repeat(499)}\ufffd.`],
  ["in no text", { error_code: 7, error_message: null }, "."],
])("one that has failed fails the run, which says why: %s", async (_, more, reason) => {
  const { run, analysisId } = await waiting();
  await publishIt(analysisId, { status: "failed", ...more });
  await read();
  expect(await stepAll(stepping())).toBe("run_failed");
  const error = {
    error_code: "external_analysis_failed",
    error_message: `The analysis ${analysisId} has failed${reason}`,
  };
  expect(await runs.get(run.id)).toMatchObject({ status: "FAILED", ...error });
  const published = await publishedAnalyses(database.pool, api.account.accountId);
  expect(published.find(({ analysis: { id } }) => id === run.id)!.analysis).toMatchObject(error);
});

test("one that nobody publishes in time fails the run, which can be started again", async () => {
  const { run, analysisId } = await waiting(
    chain({ kind: "external_analysis", parameters: { timeout_seconds: 60 } }),
  );
  await endWaits(database.pool);
  // Woken too early, it waits on.
  expect(await stepAll(stepping())).toBe("recorded");
  expect(await runs.get(run.id)).toMatchObject({ status: "WAITING" });
  await database.pool.query(
    "update workspace.node_runs set started_at = started_at - interval '60 s', next_at = now() where run_id = $1",
    [run.id],
  );
  expect(await stepAll(stepping())).toBe("run_failed");
  const { error_code, error_message, node_runs } = await runs.get(run.id);
  expect([error_code, error_message, node_runs[1]!.retryable]).toEqual([
    "external_analysis_missing",
    `Nobody has published the analysis ${analysisId} within 60 seconds. Start the run again.`,
    true,
  ]);
});

test("one whose text is no longer kept fails the run", async () => {
  const { run, analysisId } = await waiting();
  const deliveryId = await publishIt(analysisId);
  await database.pool.query("delete from sealpost.bodies where delivery_id = $1", [deliveryId]);
  await endWaits(database.pool);
  expect(await stepAll(stepping())).toBe("run_failed");
  expect((await runs.get(run.id)).error_code).toBe("external_analysis_missing");
});

test("a run that is cancelled waits for nothing, and its analysis is one like any other", async () => {
  const { run, analysisId } = await waiting();
  expect(await readers()).toBe(1);
  const { body } = await runs.cancel(run.id);
  expect((body.node_runs as Json[])[1]).toMatchObject({ status: "CANCELLED", wait: null });
  await publishIt(analysisId);
  await read();
  expect([await stepOnce(stepping()), await readers()]).toEqual([null, 0]);
});

test("a run that an older version has ended stays as it is", async () => {
  const { run, analysisId } = await waiting();
  // As an older process cancels it: it knows of no analysis.
  await database.pool.query(
    `update workspace.node_runs set status = 'CANCELLED', completed_at = now(), wake_at = null, is_ready = false,
       next_at = null, lease_token = null
     where run_id = $1 and next_at is not null`,
    [run.id],
  );
  await database.pool.query(
    "update workspace.runs set status = 'CANCELLED', completed_at = now() where id = $1",
    [run.id],
  );
  await publishIt(analysisId);
  await read();
  expect([await stepOnce(stepping()), await readers()]).toEqual([null, 0]);
  expect((await runs.get(run.id)).status).toBe("CANCELLED");
});

test("analyses of other accounts, and of other ids, end no wait", async () => {
  const { run, analysisId } = await waiting();
  const { accountId } = await createAccount(database.pool, "other", SECRETS_KEY);
  await publishIt(analysisId, {}, accountId);
  await publishIt(analysisId.toUpperCase());
  await publishIt(`${run.node_runs[1]!.id}:${run.id}`);
  await read();
  expect(await stepOnce(stepping())).toBe(null);
  expect((await runs.cancel(run.id)).status).toBe(200);
});

test("large analyses are read few at a time, and none is left out", async () => {
  const engines = Array.from({ length: 12 }, (_, n) => `engine-${n}`);
  const node = (id: string, kind: "external_analysis" | "wait" | "analyze", parameters = {}) => ({
    id,
    kind,
    name: id,
    parameters,
  });
  const [trigger] = EXTERNAL.nodes;
  const definition = {
    nodes: [
      trigger!,
      ...engines.map((id) => node(id, "external_analysis")),
      node("joined", "wait", { until: "2020-01-01T00:00:00Z" }),
      node("analyzed", "analyze"),
    ],
    edges: [
      ...engines.flatMap((id) => [
        { from: trigger!.id, to: id },
        { from: id, to: "joined" },
      ]),
      { from: "joined", to: "analyzed" },
    ],
  } as Definition;
  const { id } = await runs.started(await runs.newWorkflow(space.id, definition));
  await stepAll(stepping());
  const waits = (await runs.get(id)).node_runs.slice(1) as { node_id: string; wait: Json }[];
  for (const { node_id, wait } of waits) {
    await publishIt(String(wait.analysis_id), { node_id, pages: "x".repeat(1_000_000) });
  }
  await read();
  const counts: number[] = [];
  const wait: NodeSteps["wait"] = (input) => {
    const readInput: ReadInput = async (...which) => {
      const found = await input.readInput(...which);
      counts.push(found.items.length);
      return found;
    };
    return NODE_STEPS.wait({ ...input, readInput });
  };
  expect(await stepAll({ ...stepping(), nodeSteps: { wait } })).toBe("run_succeeded");
  expect(counts).toEqual([5, 5, 2]);
  for (const nodeId of ["joined", "analyzed"]) {
    expect((await runs.items(id, nodeId)).map((item) => item.node_id)).toEqual(engines);
    expect((await runs.itemPage(id, nodeId)).body.items).toHaveLength(1);
    expect((await runs.itemPage(id, nodeId, "?limit=12")).body).toMatchObject({ total: 12 });
  }
  const published = await publishedAnalyses(database.pool, api.account.accountId);
  const { analysis } = published.find((one) => one.analysis.id === id)!;
  expect(analysis.result).toMatchObject({ items: [], items_total: 12 });
});

test.each([
  ["there is room for it", 508, 1],
  ["it is too deep for the run's own", 509, 0],
  ["it is as deep as one may be", 511, 0],
])("a deep analysis is handed on, and the run succeeds: %s", async (_, levels, told) => {
  const { run, analysisId } = await waiting();
  const pages = `${"[".repeat(levels)}${"]".repeat(levels)}`;
  await publishIt(analysisId, `{"id":"${analysisId}","status":"succeeded","pages":${pages}}`);
  await read();
  expect(await stepAll(stepping())).toBe("run_succeeded");
  const [item] = await runs.items(run.id, "node-0");
  expect(JSON.stringify(item!.pages)).toBe(pages);
  const published = await publishedAnalyses(database.pool, api.account.accountId);
  const { analysis } = published.find((one) => one.analysis.id === run.id)!;
  const { items, items_total } = analysis.result as Json;
  expect([analysis.status, (items as Json[]).length, items_total]).toEqual(["succeeded", told, 1]);
});
