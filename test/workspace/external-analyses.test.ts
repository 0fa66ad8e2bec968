// Nodes that wait for an analysis that somebody else publishes.
import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createAccount } from "../../src/store/accounts.ts";
import { sequenceEvents } from "../../src/store/feed.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { createExternalAnalysisStep } from "../../src/workspace/nodes/external-analysis.ts";
import { recordResult, recordStart } from "../../src/workspace/running/step-record.ts";
import { wakeAwaiting } from "../../src/workspace/store/awaited-analyses.ts";
import { readStep } from "../../src/workspace/store/steps.ts";
import { countRows, publish } from "../support/installation.ts";
import type { Json } from "../support/sealpost-api.ts";
import { api, database, runs, space, stepping, useRuns } from "./run-world.ts";
import {
  chain,
  claimNext,
  endWaits,
  publishedAnalyses,
  type Run,
  stepAll,
  stepOnce,
  take,
} from "./support/runs.ts";

useRuns();

const HOLDER = randomUUID();
const EXTERNAL = chain({ kind: "external_analysis" });

/** A run whose last node waits. */
async function waiting(definition = EXTERNAL): Promise<{ run: Run; analysisId: string }> {
  const { id } = await runs.started(await runs.newWorkflow(space.id, definition));
  await stepAll(stepping());
  const run = await runs.get(id);
  return { run, analysisId: `${id}:${run.node_runs.at(-1)!.id}` };
}

function publishIt(id: string, more: object | string = {}, accountId = api.account.accountId) {
  const text = typeof more === "string" ? more : JSON.stringify({ id, status: "succeeded", ...more });
  return publish(database.pool, accountId, text);
}

/** What was published has its place in the feed, and the feed is read. */
async function read(): Promise<void> {
  await sequenceEvents(database.pool, HOLDER, 60_000);
  await wakeAwaiting(database.pool);
}

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

test("analyses of other accounts, and of other ids, end no wait", async () => {
  const { run, analysisId } = await waiting();
  const { accountId } = await createAccount(database.pool, "other", Buffer.alloc(32, 1));
  await publishIt(analysisId, {}, accountId);
  await publishIt(analysisId.toUpperCase());
  await publishIt(`${run.node_runs[1]!.id}:${run.id}`);
  await read();
  expect(await stepOnce(stepping())).toBe(null);
  expect((await runs.cancel(run.id)).status).toBe(200);
});

describe("no wake-up is lost", () => {
  test("when the analysis was there before the node began", async () => {
    const { id } = await runs.started(await runs.newWorkflow(space.id, EXTERNAL));
    expect(await stepOnce(stepping())).toBe("recorded");
    const [, nodeRun] = (await runs.get(id)).node_runs;
    await publishIt(`${id}:${nodeRun!.id}`);
    await read();
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect((await runs.events(id)).some(({ kind }) => kind === "node.waiting")).toBe(false);
  });

  test("when the feed was read between the node's look and the record of its wait", async () => {
    const { run: other } = await waiting();
    const { id } = await runs.started(await runs.newWorkflow(space.id, EXTERNAL));
    const look = createExternalAnalysisStep(database.pool);
    const nodeSteps = {
      external_analysis: async (input: Parameters<typeof look>[0]) => {
        const result = await look(input);
        if (result.kind === "waiting") {
          await publishIt(`${input.runId}:${input.nodeRunId}`);
          await read();
        }
        return result;
      },
    };
    expect(await stepAll({ ...stepping(), nodeSteps })).toBe("run_succeeded");
    expect((await runs.get(id)).status).toBe("SUCCEEDED");
    const kinds = (await runs.events(id)).map(({ kind }) => kind);
    expect(kinds).toEqual(expect.arrayContaining(["node.waiting", "node.resumed"]));
    expect((await runs.cancel(other.id)).status).toBe(200);
  });

  test("when the feed was read before the record of a wait was committed", async () => {
    const { run: other } = await waiting();
    const { id } = await runs.started(await runs.newWorkflow(space.id, EXTERNAL));
    expect(await stepOnce(stepping())).toBe("recorded");
    const step = (await claimNext(database.pool))!;
    const facts = (await readStep(database.pool, step))!;
    await inTransaction(database.pool, (tx) => recordStart(tx, step, facts));
    const analysisId = `${id}:${facts.nodeRunId}`;
    await inTransaction(database.pool, async (tx) => {
      const until = new Date(Date.now() + 3_600_000);
      expect(await recordResult(tx, step, facts, { kind: "waiting", until, analysisId })).toBe("recorded");
      await publishIt(analysisId);
      await read();
    });
    await read();
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect((await runs.get(id)).status).toBe("SUCCEEDED");
    expect((await runs.cancel(other.id)).status).toBe(200);
  });

  test("when somebody has just taken the step, whose it stays", async () => {
    const { run, analysisId } = await waiting();
    await endWaits(database.pool);
    const step = (await claimNext(database.pool))!;
    await publishIt(analysisId);
    await read();
    expect(await claimNext(database.pool)).toBe(null);
    expect(await take(stepping(), step)).toBe("run_succeeded");
    expect((await runs.get(run.id)).status).toBe("SUCCEEDED");
  });

  test("when waits begin while analyses are published and several processes read", async () => {
    const workflow = await runs.newWorkflow(space.id, EXTERNAL);
    const started = await Promise.all(Array.from({ length: 40 }, () => runs.started(workflow)));
    // All have come to the node that will wait.
    for (const _ of started) expect(await stepOnce(stepping())).toBe("recorded");
    const look = createExternalAnalysisStep(database.pool);
    const publishing: Promise<unknown>[] = [];
    const nodeSteps = {
      external_analysis: async (input: Parameters<typeof look>[0]) => {
        const result = await look(input);
        if (result.kind === "waiting") publishing.push(publishIt(`${input.runId}:${input.nodeRunId}`));
        return result;
      },
    };
    const isOver = new AbortController();
    const reading = [1, 2].map(async () => {
      while (!isOver.signal.aborted) await read();
    });
    const steppingOn = async () => {
      for (const deadline = Date.now() + 20_000; Date.now() < deadline; ) {
        await stepAll({ ...stepping(), nodeSteps });
        if (
          (await countRows(database.pool, "workspace.runs", {
            status: "SUCCEEDED",
            workflow_id: workflow,
          })) === 40
        )
          return;
      }
    };
    await Promise.all([steppingOn(), steppingOn()]);
    isOver.abort();
    await Promise.all([...reading, ...publishing]);
    expect(
      await countRows(database.pool, "workspace.runs", { status: "SUCCEEDED", workflow_id: workflow }),
    ).toBe(40);
  });

  test("when more was published before than one read takes", async () => {
    const { run, analysisId } = await waiting();
    await database.pool.query(
      `select sealpost.publish_analysis($1, json_build_object('id', gen_random_uuid(), 'status', 'succeeded'))
       from generate_series(1, 1500)`,
      [api.account.accountId],
    );
    await publishIt(analysisId);
    while ((await sequenceEvents(database.pool, HOLDER, 60_000)).sequenced > 0);
    await wakeAwaiting(database.pool);
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect((await runs.get(run.id)).status).toBe("SUCCEEDED");
  });
});
