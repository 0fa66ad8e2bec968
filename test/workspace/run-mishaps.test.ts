// What comes between a run and its end, and requests that no run has an answer for.
import { setTimeout as sleep } from "node:timers/promises";
import { beforeEach, expect, test } from "vitest";
import { STEP_ATTEMPTS_MAX } from "../../src/workspace/model/workflows.ts";
import { analyze as analyzeStep } from "../../src/workspace/nodes/analyze.ts";
import { NodeFailedError } from "../../src/workspace/nodes/node-step.ts";
import type { NodeSteps } from "../../src/workspace/nodes/node-steps.ts";
import type { Json } from "../support/sealpost-api.ts";
import { api, database, documents, runs, space, stepping, useRuns } from "./run-world.ts";
import { chain, claimNext, endWaits, stepAll, take } from "./support/runs.ts";

useRuns();
beforeEach(async () => {
  expect(await claimNext(database.pool)).toBeNull();
});

/** As if the database refused to record that a node begins, or goes on. */
async function refuseStarts(during: () => Promise<unknown>): Promise<void> {
  await database.pool.query(
    `create function workspace.refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$;
     create trigger refuse before update of started_at on workspace.node_runs
     for each row execute function workspace.refuse()`,
  );
  await during();
  await database.pool.query("drop trigger refuse on workspace.node_runs; drop function workspace.refuse()");
}

/** So many transactions wait for a lock. A write that shares one with others does for 50 ms, and then in its own. */
async function untilWaiting(count: number): Promise<void> {
  const waiting = () =>
    database.pool.query(
      `select from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock' and now() - query_start > interval '100 ms'`,
    );
  await expect.poll(async () => (await waiting()).rowCount).toBe(count);
}

test("a node whose beginning could not be recorded begins when it is tried again", async () => {
  const definition = chain({ kind: "wait", parameters: { for_seconds: 3_600 } });
  const { id } = await runs.started(await runs.newWorkflow(space.id, definition));
  const faults: unknown[] = [];
  await refuseStarts(() => stepAll({ ...stepping(), faults }));
  expect(faults).toHaveLength(1);
  expect(await runs.get(id)).toMatchObject({
    status: "QUEUED",
    node_runs: [{ status: "QUEUED", attempt: 2, started_at: null }],
  });
  await endWaits(database.pool);
  await stepAll(stepping());
  const waiting = await runs.get(id);
  expect(waiting.status).toBe("WAITING");
  await database.pool.query(
    `update workspace.node_runs set next_at = now(), started_at = started_at - interval '1 hour'
     where wake_at is not null`,
  );
  await refuseStarts(() => stepAll({ ...stepping(), faults }));
  expect(faults).toHaveLength(2);
  expect(await runs.get(id)).toMatchObject({ status: "WAITING", wake_at: waiting.wake_at });
  await endWaits(database.pool);
  expect(await stepAll(stepping())).toBe("run_succeeded");
  expect((await runs.events(id)).map(({ kind }) => kind)).toEqual([
    ...["run.created", "node.retried", "run.started", "node.started", "node.succeeded"],
    ...["node.started", "node.waiting", "run.waiting", "node.retried", "node.resumed", "node.succeeded"],
    "run.succeeded",
  ]);
});

test("whoever cancels a run while a node begins ends it after that", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  const step = (await claimNext(database.pool))!;
  const client = await database.pool.connect();
  await client.query("begin; lock table workspace.space_members in access exclusive mode");
  const cancelling = runs.cancel(id);
  await untilWaiting(1);
  const manual_trigger: NodeSteps["manual_trigger"] = async () => {
    await client.query("commit");
    client.release();
    await cancelling;
    return { kind: "succeeded", items: [{}] };
  };
  expect(await take({ ...stepping(), nodeSteps: { manual_trigger } }, step)).toBe("lost");
  const { status, body } = await cancelling;
  expect([status, body.status]).toEqual([200, "CANCELLED"]);
  const [nodeRun] = body.node_runs as Json[];
  for (const { started_at, completed_at } of [body, nodeRun!]) {
    expect(Date.parse(String(completed_at))).toBeGreaterThanOrEqual(Date.parse(String(started_at)));
  }
  const times = (await runs.events(id)).map(({ created_at }) => created_at);
  expect(times).toEqual([...times].sort());
});

test("whoever cancels a run while it ends comes too late", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  const client = await database.pool.connect();
  await client.query("begin; lock table sealpost.bodies in share row exclusive mode");
  const ending = stepAll(stepping());
  await untilWaiting(1);
  const cancelling = runs.cancel(id);
  await untilWaiting(2);
  await client.query("commit");
  client.release();
  expect(await ending).toBe("run_succeeded");
  const { status, body } = await cancelling;
  expect([status, body.code]).toEqual([409, "workflow_run_ended"]);
  expect(await runs.get(id)).toMatchObject({ status: "SUCCEEDED", delivery_id: expect.any(String) });
});

test("a run waits also when a node beside one that waits has ended last", async () => {
  const definition = chain({ kind: "wait", parameters: { for_seconds: 3_600 } }, { kind: "documents" });
  definition.edges.splice(1, 1, { from: "trigger", to: "node-1" });
  const { id } = await runs.started(await runs.newWorkflow(space.id, definition));
  await stepAll(stepping());
  expect(await runs.get(id)).toMatchObject({ status: "WAITING", wake_at: expect.any(String) });
  expect((await runs.events(id)).at(-1)).toMatchObject({ kind: "run.waiting" });
  expect((await runs.cancel(id)).status).toBe(200);
});

test("a node that fails ends its run, though nothing of it can be published for the last time", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  await database.pool.query("update workspace.node_runs set attempt = $2 where run_id = $1", [
    id,
    STEP_ATTEMPTS_MAX,
  ]);
  const manual_trigger: NodeSteps["manual_trigger"] = async () => {
    throw new NodeFailedError("run_too_large", "as it is");
  };
  const rename = (from: string, to: string) =>
    database.pool.query(`alter function sealpost.${from}(uuid[], json[], text[]) rename to ${to}`);
  await rename("publish_analyses", "away");
  expect(await stepAll({ ...stepping(), nodeSteps: { manual_trigger } })).toBe("run_failed");
  await rename("away", "publish_analyses");
  expect(await runs.get(id)).toMatchObject({
    status: "FAILED",
    error_code: "run_too_large",
    error_details: { publication: [{ code: "database_error" }, { code: "database_error" }] },
    delivery_id: null,
  });
});

test("documents are analysed, however long it takes to read which", async () => {
  const workflow = await runs.newWorkflow(space.id, chain({ kind: "analyze" }));
  const { id } = await runs.started(workflow, { input: { a: 1 } });
  const analyze: NodeSteps["analyze"] = (input) =>
    analyzeStep({
      ...input,
      readInput: async (...which) => {
        await sleep(501);
        return await input.readInput(...which);
      },
    });
  const faults: unknown[] = [];
  expect(await stepAll({ ...stepping(), nodeSteps: { analyze }, faults })).toBe("run_succeeded");
  expect(faults).toEqual([]);
  expect(await runs.items(id, "node-0")).toEqual([{ a: 1, analysis: null }]);
});

test("an input is an object, whose numbers have an end", async () => {
  const workflow = await runs.newWorkflow(space.id, chain());
  for (const [input, path, message] of [
    ["[]", "body.input", "Must be an object."],
    ['{"a":[1,{"b":-1e400}]}', "body.input.a.1.b", "Too large for a number. Send it as text."],
  ]) {
    const body = `{"input":${input}}`;
    const answer = await api.ask("POST", `/v1/workflows/${workflow}/runs`, { body });
    expect([answer.status, answer.body.errors]).toEqual([400, [{ path, message }]]);
  }
  const { id } = await runs.started(workflow, { input: { a: 1.7e308, b: 2 ** 53, c: null } });
  await stepAll(stepping());
  expect(await runs.items(id, "trigger")).toEqual([{ a: 1.7e308, b: 2 ** 53, c: null }]);
});

test("numbers that no column holds are refused: a version, and a place in a list", async () => {
  const workflow = await runs.newWorkflow(space.id, chain({ kind: "documents" }));
  const { status, body } = await runs.start(workflow, { version: 2_147_483_648 });
  expect([status, body.code]).toEqual([400, "invalid_request"]);
  for (const file_name of ["one", "two"]) await documents.uploaded({ space_id: space.id, file_name });
  const { id } = await runs.started(workflow);
  await stepAll(stepping());
  const page = await runs.itemPage(id, "node-0", "?limit=1");
  const [version, digest] = JSON.parse(Buffer.from(String(page.body.next_cursor), "base64url").toString());
  const forged = Buffer.from(JSON.stringify([version, digest, 2_147_483_648])).toString("base64url");
  const answer = await runs.itemPage(id, "node-0", `?limit=1&cursor=${forged}`);
  expect([answer.status, answer.body.code]).toEqual([400, "invalid_request"]);
});
