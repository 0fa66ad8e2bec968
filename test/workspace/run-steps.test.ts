// Steps that fail, are cut, or are many.
import { beforeEach, expect, test } from "vitest";
import { STEP_ATTEMPTS_MAX } from "../../src/workspace/model/workflows.ts";
import { type ObjectStore, ObjectStoreAwayError } from "../../src/workspace/objects/object-store.ts";
import { removeEndedRuns } from "../../src/workspace/store/runs.ts";
import { giveBackStep, renewLease } from "../../src/workspace/store/steps.ts";
import { countRows } from "../support/installation.ts";
import type { TestAccount, TestApi } from "../support/sealpost-api.ts";
import { api, database, documents, objects, runs, space, stepping, useRuns } from "./run-world.ts";
import { documentsOf } from "./support/documents.ts";
import { passedOn } from "./support/object-stores.ts";
import {
  chain,
  claimNext,
  endWaits,
  publishedAnalyses,
  runsOf,
  startTestRunner,
  stepAll,
  stepOnce,
  take,
} from "./support/runs.ts";

useRuns();
beforeEach(async () => {
  expect(await claimNext(database.pool)).toBeNull();
});

const publicationsOf = async (id: unknown) =>
  (await publishedAnalyses(database.pool, api.account.accountId)).filter(
    ({ analysis }) => analysis.id === id,
  );

test("a step that fails is tried again later, and the node goes on when it works", async () => {
  const { id: document_id } = await documents.uploaded({ space_id: space.id, file_name: "flaky" });
  const workflow = await runs.newWorkflow(space.id, chain({ kind: "analyze" }));
  const { id } = await runs.started(workflow, { input: { document_id } });
  let failures = 2;
  const faults: unknown[] = [];
  const flaky: ObjectStore = {
    ...passedOn(objects),
    get: (...args) => {
      if (failures-- > 0) throw new ObjectStoreAwayError("get an object", "it is away");
      return objects.get(...args);
    },
  };
  const again = () => stepAll({ pool: database.pool, objects: flaky, faults });
  await again();
  expect((await runs.get(id)).node_runs[1]).toMatchObject({ status: "ACTIVE", attempt: 2, error_code: null });
  // It is not due yet.
  expect(await again()).toBeNull();
  await endWaits(database.pool);
  await again();
  await endWaits(database.pool);
  expect(await again()).toBe("run_succeeded");
  expect(faults).toEqual([expect.any(ObjectStoreAwayError), expect.any(ObjectStoreAwayError)]);
  expect((await runs.get(id)).node_runs[1]).toMatchObject({ status: "SUCCEEDED", attempt: 1 });
  const kinds = (await runs.events(id)).map(({ kind }) => kind);
  expect(kinds.filter((kind) => kind === "node.retried")).toHaveLength(2);
});

test("one that always fails is given up, and so is its run", async () => {
  const workflow_id = await runs.newWorkflow(space.id, chain({ kind: "documents" }));
  const { id } = await runs.started(workflow_id);
  const nodeSteps = {
    documents: async () => {
      throw new Error("as it always does");
    },
  };
  const faults: unknown[] = [];
  for (let attempt = 0; attempt <= STEP_ATTEMPTS_MAX; attempt++) {
    await stepAll({ ...stepping(), nodeSteps, faults });
    await endWaits(database.pool);
  }
  expect(faults).toHaveLength(STEP_ATTEMPTS_MAX);
  const run = await runs.get(id);
  expect(run).toMatchObject({ status: "FAILED", error_code: "attempts_exhausted" });
  expect(run.node_runs[1]).toMatchObject({ status: "FAILED", attempt: STEP_ATTEMPTS_MAX, retryable: true });
  expect(JSON.stringify(run)).not.toContain("as it always does");
  expect((await publicationsOf(id)).map(({ analysis }) => analysis.error_code)).toEqual([
    "attempts_exhausted",
  ]);
});

test("one that ends its process every time is given up, too", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  for (let attempt = 1; attempt <= STEP_ATTEMPTS_MAX; attempt++) {
    expect((await claimNext(database.pool))!.attempt).toBe(attempt);
    await endWaits(database.pool);
  }
  expect(await stepOnce(stepping())).toBe("run_failed");
  expect(await runs.get(id)).toMatchObject({
    status: "FAILED",
    error_code: "attempts_exhausted",
    node_runs: [{ attempt: STEP_ATTEMPTS_MAX }],
  });
});

test("a step whose lease has ended is somebody else's: only the second one is recorded", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  const first = (await claimNext(database.pool))!;
  expect(await claimNext(database.pool)).toBeNull();
  expect(await renewLease(database.pool, first, 60_000)).toBe(true);
  await endWaits(database.pool);
  const second = (await claimNext(database.pool))!;
  expect(await renewLease(database.pool, first, 60_000)).toBe(false);
  expect(second.attempt).toBe(2);
  expect(await take(stepping(), first)).toBe("lost");
  expect(await take(stepping(), second)).toBe("run_succeeded");
  expect(await take(stepping(), second)).toBe("lost");
  expect(await publicationsOf(id)).toHaveLength(1);
});

test("of two that record the same step at once, one does", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  const step = (await claimNext(database.pool))!;
  const ends = await Promise.all([1, 2, 3, 4].map(() => take(stepping(), step)));
  expect(ends.sort()).toEqual(["lost", "lost", "lost", "run_succeeded"]);
  expect(await runs.items(id, "trigger")).toEqual([{}]);
  expect(await publicationsOf(id)).toHaveLength(1);
});

test("a step that is given back is taken at once, and has not failed", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  await giveBackStep(database.pool, (await claimNext(database.pool))!);
  const stopping = new AbortController();
  const step = (await claimNext(database.pool))!;
  const nodeSteps = {
    manual_trigger: async () => {
      stopping.abort();
      throw stopping.signal.reason;
    },
  };
  expect(await take({ ...stepping(), nodeSteps, signal: stopping.signal }, step)).toBe("given_back");
  const again = (await claimNext(database.pool))!;
  expect(again.attempt).toBe(1);
  expect(await take(stepping(), again)).toBe("run_succeeded");
  expect((await runs.events(id)).some(({ kind }) => kind === "node.retried")).toBe(false);
});

test("what publishing cannot do for another reason is tried again, and told by the run when it never can", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  await database.pool.query(
    "alter function sealpost.publish_analyses(uuid[], json[], text[]) rename to away",
  );
  const faults: unknown[] = [];
  for (let attempt = 0; attempt <= STEP_ATTEMPTS_MAX; attempt++) {
    await stepAll({ ...stepping(), faults });
    await endWaits(database.pool);
  }
  await database.pool.query(
    "alter function sealpost.away(uuid[], json[], text[]) rename to publish_analyses",
  );
  expect(faults).toHaveLength(STEP_ATTEMPTS_MAX - 1);
  expect(await runs.get(id)).toMatchObject({
    status: "FAILED",
    error_code: "publish_refused",
    error_details: { publication: [{ code: "database_error" }, { code: "database_error" }] },
    delivery_id: null,
  });
  expect(await publicationsOf(id)).toEqual([]);
});

test("accounts take turns: one step of another's comes among a thousand", async () => {
  const accounts: TestAccount[] = [api.account, await api.newAccount(), await api.newAccount()];
  const counts = [30, 2, 2];
  const started = new Map<unknown, number>();
  for (const [n, { key }] of accounts.entries()) {
    const ask: TestApi["ask"] = (method, path, options) => api.ask(method, path, { key, ...options });
    const { id: space_id } = await documentsOf(ask).newSpace();
    const own = runsOf(ask);
    const workflow = await own.newWorkflow(space_id, chain());
    for (let run = 0; run < counts[n]!; run++) started.set((await own.started(workflow)).id, n);
  }
  const order: number[] = [];
  const runner = startTestRunner(database.pool, objects);
  await expect.poll(() => countRows(database.pool, "workspace.runs", { status: "QUEUED" })).toBe(0);
  await runner.stop();
  expect(runner.errors).toEqual([]);
  const { rows } = await database.pool.query<{ id: string }>(
    "select id from workspace.runs where id = any ($1) order by completed_at",
    [[...started.keys()]],
  );
  order.push(...rows.map(({ id }) => started.get(id)!));
  expect(order).toHaveLength(34);
  expect(order.lastIndexOf(1)).toBeLessThan(12);
  expect(order.lastIndexOf(2)).toBeLessThan(12);
});

test("two runners share the work, and each run ends once", async () => {
  const workflow = await runs.newWorkflow(space.id, chain({ kind: "documents" }));
  const ids: unknown[] = [];
  for (let n = 0; n < 20; n++) ids.push((await runs.started(workflow)).id);
  const runners = [startTestRunner(database.pool, objects), startTestRunner(database.pool, objects)];
  for (const id of ids) expect((await runs.ended(id)).status).toBe("SUCCEEDED");
  await Promise.all(runners.map((runner) => runner.stop()));
  expect(runners.flatMap(({ errors }) => errors)).toEqual([]);
  for (const id of ids) {
    expect(await publicationsOf(id)).toHaveLength(1);
    const kinds = (await runs.events(id)).map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === "run.succeeded")).toHaveLength(1);
  }
});

test("ended runs are removed when their time is over, with all they have; others stay", async () => {
  const workflow = await runs.newWorkflow(
    space.id,
    chain({ kind: "wait", parameters: { for_seconds: 3_600 } }),
  );
  const waiting = await runs.started(workflow);
  await stepAll(stepping());
  const ended = await countRows(database.pool, "workspace.runs");
  while (await removeEndedRuns(database.pool, 3_600_000));
  expect(await countRows(database.pool, "workspace.runs")).toBe(ended);
  while (await removeEndedRuns(database.pool, 0));
  for (const table of ["runs", "node_items", "run_events", "node_runs"]) {
    const { rows } = await database.pool.query(
      `select distinct ${table === "runs" ? "id" : "run_id"} as id from workspace.${table}`,
    );
    expect(rows, table).toEqual([{ id: waiting.id }]);
  }
  expect((await runs.cancel(waiting.id)).status).toBe(200);
});
