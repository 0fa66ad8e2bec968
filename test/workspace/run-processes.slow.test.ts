// Dispatchers and the processes that they have for steps.
import { readdir, readFile, truncate } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { verifySignature } from "../../src/signing/verify.ts";
import { pathOf } from "../../src/workspace/objects/file-store.ts";
import { childrenOf } from "../support/child-processes.ts";
import { countRows, publishAny } from "../support/installation.ts";
import { ask } from "../support/sealpost-api.ts";
import type { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { openRunSite, type RunSite } from "./support/run-processes.ts";
import { chain, runsOf } from "./support/runs.ts";

/** As much as is analysed of a document: four of them take a second on a fast machine. */
const LARGE_BYTES = 256 * 1_024 ** 2;
/** Enough that the dispatcher can be stopped long before they are done. */
const LARGE_COUNT = 8;

let site: RunSite;
beforeAll(async () => {
  site = await openRunSite();
});
afterAll(() => site.close());

test("a run's webhook arrives, signed, soon after it was asked for", async () => {
  const { api, documents, runs, receiver } = site;
  const dispatcher = await site.startDispatcher();
  const { id: space_id } = await documents.newSpace();
  await documents.uploaded({ space_id });
  const workflow = await runs.newWorkflow(space_id, chain({ kind: "documents" }, { kind: "analyze" }));
  const first = await runs.started(workflow, { webhook_url: receiver.url("/own").href });
  const [request] = await receiver.waitForRequests(1);
  expect([request!.path, JSON.parse(request!.body.toString()).data.id]).toEqual(["/own", first.id]);
  const header = request!.headers["extract-signature"];
  verifySignature({
    body: request!.body,
    header,
    secrets: [api.account.secret],
    nowSeconds: Date.now() / 1_000,
  });

  const second = await runs.started(workflow);
  const run = await runs.ended(second.id);
  const tookMs = Date.parse(String(run.completed_at)) - Date.parse(String(run.created_at));
  console.log(`a run of three nodes took ${tookMs} ms`);
  expect(tookMs).toBeLessThan(patience(1_000));
  const [, other] = await receiver.waitForRequests(2);
  expect([other!.path, JSON.parse(other!.body.toString()).data.id]).toEqual(["/endpoint", second.id]);
  expect(await dispatcher.stop()).toBe(0);
});

test("a run goes on with the analysis that was published for it", async () => {
  const { api, runs, receiver } = site;
  const before = receiver.requests.length;
  const { id: space_id } = await site.documents.newSpace();
  const { id } = await runs.started(await runs.newWorkflow(space_id, chain({ kind: "external_analysis" })));
  const dispatcher = await site.startDispatcher();
  const { node_runs } = await runs.until(id, ["WAITING"]);
  const { analysis_id } = node_runs[1]!.wait as { analysis_id: string };
  const body = { analysis: { id: analysis_id, status: "succeeded", pages: 3 } };
  expect((await api.ask("POST", "/v1/analyses", { body })).status).toBe(202);
  expect((await runs.ended(id)).status).toBe("SUCCEEDED");
  expect(await runs.items(id, "node-0")).toEqual([body.analysis]);
  const requests = (await receiver.waitForRequests(before + 2)).slice(before);
  const told = requests.map((request) => JSON.parse(request.body.toString()).data.id);
  expect(told.sort()).toEqual([id, analysis_id].sort());
  expect(await dispatcher.stop()).toBe(0);
});

test("the workspace alone runs workflows, and what they publish waits for who delivers", async () => {
  const { api, database, documents, runs, receiver } = site;
  const serve = await site.startServe({ AREAS: "workspace" });
  const dispatcher = await site.startDispatcher({ AREAS: "workspace" });
  const { key } = api.account;
  const own = runsOf((method, path, options) => ask(serve.url, method, path, { key, ...options }));
  const { id: space_id } = await documents.newSpace();
  await documents.uploaded({ space_id });
  const workflow = await own.newWorkflow(space_id, chain({ kind: "documents" }, { kind: "analyze" }));
  const { id } = await own.started(workflow);
  const run = await own.ended(id);
  expect([run.status, run.delivery_id]).toEqual(["SUCCEEDED", expect.any(String)]);
  const isWebhooks = await ask(serve.url, "GET", "/v1/webhooks/deliveries", { key });
  expect(isWebhooks.status).toBe(404);
  const delivery = async () => (await api.ask("GET", `/v1/webhooks/deliveries/${run.delivery_id}`)).body;
  expect(await delivery()).toMatchObject({ analysis_id: id, status: "pending", attempts: [] });
  expect(await Promise.all([serve.stop(), dispatcher.stop()])).toEqual([0, 0]);

  const before = receiver.requests.length;
  const webhooks = await site.startDispatcher({ AREAS: "webhooks" });
  await receiver.waitForRequests(before + 1);
  expect(JSON.parse(receiver.requests[before]!.body.toString()).data.id).toBe(id);
  const waiting = await runs.started(workflow);
  await expect.poll(async () => (await delivery()).status).toBe("succeeded");
  expect([(await runs.get(waiting.id)).status, childrenOf(webhooks.pid)]).toEqual(["QUEUED", []]);
  expect((await runs.cancel(waiting.id)).status).toBe(200);
  expect(await webhooks.stop()).toBe(0);
  expect(await countRows(database.pool, "workspace.runs", { status: "QUEUED" })).toBe(0);
});

/** The values of the metrics of runs. */
async function metricsOf({ metricsUrl }: SealpostProcess): Promise<Readonly<Record<string, number>>> {
  const text = await (await fetch(`${metricsUrl}/metrics`)).text();
  const lines = text.matchAll(/^sealpost_(?:workflow_steps_(\w+)|(faults_total)\{work="runs"\}) (\S+)$/gm);
  return Object.fromEntries(
    [...lines].map(([, ofSteps, faults, value]) => [ofSteps ?? faults, Number(value)]),
  );
}

/** The process of its steps. */
async function stepsOf(dispatcher: SealpostProcess): Promise<number> {
  await expect.poll(() => childrenOf(dispatcher.pid)).toHaveLength(1);
  return childrenOf(dispatcher.pid)[0]!;
}

test("metrics tell what waits, how runs have ended, and that the process of their steps has died", async () => {
  const { api, runs } = site;
  const { id: space_id } = await site.documents.newSpace();
  const short = await runs.newWorkflow(space_id, chain());
  const long = await runs.newWorkflow(space_id, chain({ kind: "wait", parameters: { for_seconds: 3_600 } }));
  const dispatcher = await site.startDispatcher();
  const pid = await stepsOf(dispatcher);
  const waiting = await runs.started(long);
  await runs.until(waiting.id, ["WAITING"]);
  process.kill(pid, "SIGSTOP");
  const started = [await runs.started(short), await runs.started(short), await runs.started(short)];
  const [refused, ...others] = started.map(({ id }) => id);
  const body = { analysis: { id: refused, status: "failed" } };
  expect((await api.ask("POST", "/v1/analyses", { body })).status).toBe(202);
  const stopped = await metricsOf(dispatcher);
  expect(stopped.oldest_seconds).toBeGreaterThan(0);
  expect(stopped.oldest_seconds).toBeLessThan(patience(10));

  process.kill(pid, "SIGKILL");
  for (const id of others) expect((await runs.ended(id)).status).toBe("SUCCEEDED");
  expect((await runs.ended(refused)).status).toBe("FAILED");
  await expect
    .poll(() => metricsOf(dispatcher))
    .toEqual({
      faults_total: 1,
      oldest_seconds: 0,
      // Of one it may have died before it could tell.
      taken_total: expect.toSatisfy((steps) => steps === 4 || steps === 5),
      share: 1,
    });
  expect((await runs.cancel(waiting.id)).status).toBe(200);
  expect(await dispatcher.stop()).toBe(0);
});

/** How low the priority of each of its threads is. */
async function nicenessOf(pid: number): Promise<readonly number[]> {
  const threads = await readdir(`/proc/${pid}/task`);
  const stats = await Promise.all(threads.map((id) => readFile(`/proc/${pid}/task/${id}/stat`, "utf8")));
  // Behind the name, which may have spaces; the 19th value of all.
  return stats.map((stat) => Number(stat.slice(stat.lastIndexOf(")")).split(" ")[17]));
}

test("steps have a lower priority, and rest while many webhooks go out", async () => {
  const { api, database, receiver, runs } = site;
  const before = receiver.requests.length;
  const { id: space_id } = await site.documents.newSpace();
  const { id } = await runs.started(await runs.newWorkflow(space_id, chain()));
  const dispatcher = await site.startDispatcher();
  await runs.ended(id);
  const niceness = await nicenessOf(await stepsOf(dispatcher));
  expect(niceness.length).toBeGreaterThan(1);
  expect(new Set(niceness)).toEqual(new Set([10]));

  await expect.poll(() => metricsOf(dispatcher)).toMatchObject({ taken_total: 1, share: 1 });
  const share = async () => (await metricsOf(dispatcher)).share;
  let published = 1;
  const publish = async () => {
    await publishAny(database.pool, api.account.accountId, 100);
    published += 100;
    return await share();
  };
  await expect.poll(publish, { interval: 50, timeout: patience(20_000) }).toBeLessThan(1);
  await receiver.waitForRequests(before + published);
  await expect.poll(share, { timeout: patience(5_000) }).toBe(1);
  expect(await dispatcher.stop()).toBe(0);
});

test("a dispatcher whose steps' process dies again and again goes on delivering, and starts it again", async () => {
  const { api, receiver, runs } = site;
  const { id: space_id } = await site.documents.newSpace();
  const dispatcher = await site.startDispatcher({ LOG_LEVEL: "warn" });
  for (let deaths = 1; deaths <= 3; deaths++) {
    process.kill(await stepsOf(dispatcher), "SIGKILL");
    await expect.poll(async () => (await metricsOf(dispatcher)).faults_total).toBe(deaths);
    const before = receiver.requests.length;
    const body = { analysis: { id: `beside-${deaths}`, status: "succeeded" } };
    expect((await api.ask("POST", "/v1/analyses", { body })).status).toBe(202);
    await receiver.waitForRequests(before + 1);
  }
  const { id } = await runs.started(await runs.newWorkflow(space_id, chain()));
  expect((await runs.ended(id, 20_000)).status).toBe("SUCCEEDED");
  expect(await dispatcher.stop()).toBe(0);
});

test("a dispatcher that is stopped gives its step back at once", async () => {
  const { api, database, documents, runs } = site;
  const { id: space_id } = await documents.newSpace();
  for (let n = 0; n < LARGE_COUNT; n++) {
    const { id, storage_key } = await documents.uploaded({
      space_id,
      file_name: `${n}`,
      content_type: "a/b",
    });
    await truncate(join(api.stateDir, "objects", "keys", pathOf(String(storage_key))), LARGE_BYTES);
    await database.pool.query("update workspace.documents set file_size = $2 where id = $1", [
      id,
      LARGE_BYTES,
    ]);
  }
  const workflow = await runs.newWorkflow(space_id, chain({ kind: "documents" }, { kind: "analyze" }));
  const dispatcher = await site.startDispatcher();
  const { id } = await runs.started(workflow);
  const step = async () =>
    (
      await database.pool.query(
        `select status, attempt, is_ready, lease_token is null as is_free from workspace.node_runs
         where run_id = $1 and node_id = 'node-1'`,
        [id],
      )
    ).rows[0];
  await expect.poll(step, { interval: 10 }).toMatchObject({ status: "ACTIVE", is_free: false });
  expect(await dispatcher.stop()).toBe(0);
  expect(await step()).toEqual({ status: "ACTIVE", attempt: 1, is_ready: true, is_free: true });
  const other = await site.startDispatcher();
  expect((await runs.ended(id, 30_000)).status).toBe("SUCCEEDED");
  expect(await runs.items(id, "node-1")).toMatchObject(
    Array(LARGE_COUNT).fill({ analysis: { bytes: LARGE_BYTES, text: null } }),
  );
  expect((await runs.events(id)).some(({ kind }) => kind === "node.retried")).toBe(false);
  expect(await other.stop()).toBe(0);
});
