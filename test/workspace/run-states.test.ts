// What a run is in, and how it ends.
import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { writeSettings } from "../../src/publish/publish-call-sql.ts";
import { NodeFailedError } from "../../src/workspace/nodes/node-step.ts";
import { removeMember } from "../../src/workspace/store/spaces.ts";
import { type Json, startTestApi, type TestAccount } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import { newUser, setRole } from "./membership-world.ts";
import { api, database, documents, runs, space, stepping, useRuns } from "./run-world.ts";
import { documentsOf } from "./support/documents.ts";
import { chain, claimNext, publishedAnalyses, runsOf, stepAll, stepOnce, take } from "./support/runs.ts";

const SETTINGS = { analysisBytesMax: 1_048_576, unsafeAllowedTargets: [] };

useRuns();

const published = (account: TestAccount = api.account) => publishedAnalyses(database.pool, account.accountId);
const publicationOf = async (id: unknown) => (await published()).filter(({ analysis }) => analysis.id === id);
const WAIT = { kind: "wait", parameters: { for_seconds: 3_600 } } as const;

describe("a run is cancelled", () => {
  async function isCancelled(id: unknown, nodes: readonly string[]): Promise<void> {
    const { status, body } = await runs.cancel(id);
    expect([status, body.status, body.completed_at]).toEqual([200, "CANCELLED", expect.any(String)]);
    expect((body.node_runs as Json[]).map((node) => node.status)).toEqual(nodes);
    expect(body).toMatchObject({ wake_at: null, delivery_id: null, error_code: null });
    const events = await runs.events(id);
    expect(events.at(-1)).toMatchObject({ kind: "run.cancelled", sequence: body.events_cursor });
    expect(await stepAll(stepping())).toBeNull();
    expect(await publicationOf(id)).toEqual([]);
    const again = await runs.cancel(id);
    expect([again.status, again.body.code]).toEqual([409, "workflow_run_ended"]);
    expect(await runs.get(id)).toEqual(body);
  }

  test("before it begins", async () => {
    const { id } = await runs.started(await runs.newWorkflow(space.id, chain(WAIT)));
    await isCancelled(id, ["CANCELLED"]);
  });

  test("in the middle of a step, which cannot be recorded any more", async () => {
    const { id } = await runs.started(await runs.newWorkflow(space.id, chain(WAIT)));
    const step = (await claimNext(database.pool))!;
    const end = await take(
      {
        ...stepping(),
        nodeSteps: {
          manual_trigger: async () => {
            expect((await runs.get(id)).status).toBe("ACTIVE");
            await isCancelled(id, ["CANCELLED"]);
            return { kind: "succeeded", items: [{}] };
          },
        },
      },
      step,
    );
    expect(end).toBe("lost");
    expect(await runs.items(id, "trigger")).toEqual([]);
  });

  test("while it waits", async () => {
    const { id } = await runs.started(await runs.newWorkflow(space.id, chain(WAIT)));
    await stepAll(stepping());
    expect((await runs.get(id)).status).toBe("WAITING");
    await isCancelled(id, ["SUCCEEDED", "CANCELLED"]);
  });

  test("but not when it has ended", async () => {
    const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
    expect(await stepAll(stepping())).toBe("run_succeeded");
    const ended = await runs.get(id);
    expect((await runs.cancel(id)).status).toBe(409);
    expect(await runs.get(id)).toEqual(ended);
    expect(await publicationOf(id)).toHaveLength(1);
  });
});

test("a node that fails ends its run, and the nodes beside it stop", async () => {
  const definition = chain(WAIT, { kind: "documents" });
  definition.edges.splice(1, 1, { from: "trigger", to: "node-1" });
  const workflow_id = await runs.newWorkflow(space.id, definition);
  const { id } = await runs.started(workflow_id);
  for (let steps = 0; steps < 2; steps++) await stepOnce(stepping());
  // Folders are never deleted, so that only a space of another time could make it fail.
  await database.pool.query(
    `alter table workspace.workflow_versions disable trigger keep_version;
     update workspace.workflow_versions set definition = jsonb_set(definition, '{nodes,2,parameters,folder_id}',
       '"00000000-0000-4000-8000-000000000000"') where definition -> 'nodes' -> 2 ->> 'kind' = 'documents'`,
  );
  expect(await stepAll(stepping())).toBe("run_failed");
  const run = await runs.get(id);
  const message = expect.stringContaining("no folder 00000000-0000-4000-8000-000000000000");
  expect(run).toMatchObject({
    status: "FAILED",
    error_code: "folder_not_found",
    error_message: message,
    error_details: { node_id: "node-1" },
    wake_at: null,
  });
  expect(run.node_runs).toMatchObject([
    { status: "SUCCEEDED" },
    { status: "CANCELLED", wait: null },
    { status: "FAILED", error_code: "folder_not_found", error_message: message, retryable: false },
  ]);
  expect((await runs.events(id)).slice(-3).map(({ kind, node_id }) => [kind, node_id])).toEqual([
    ["node.failed", "node-1"],
    ["node.cancelled", "node-0"],
    ["run.failed", null],
  ]);
  const failed = {
    id,
    status: "failed",
    workflow_id,
    error_code: "folder_not_found",
    error_message: message,
  };
  expect(await publicationOf(id)).toEqual([{ analysis: failed, webhookUrl: null }]);
});

describe("whoever may no longer run workflows in the space", () => {
  const webhook_url = "https://hooks.example.com/theirs";

  /** An EDITOR's run, which waits; a document is added then. */
  async function waiting() {
    const [{ id: spaceId }, user] = [await documents.newSpace(), await newUser()];
    await setRole(spaceId, user, "EDITOR");
    const definition = chain(WAIT, { kind: "documents" }, { kind: "analyze" });
    const workflow = await runs.newWorkflow(spaceId, definition);
    const { id } = await runs.started(workflow, { webhook_url }, { key: user.key });
    await stepAll(stepping());
    await documents.uploaded({ space_id: spaceId, file_name: "later.txt" }, Buffer.from("Not theirs."));
    await database.pool.query(
      `update workspace.node_runs set started_at = started_at - interval '2 hours', next_at = now()
       where run_id = $1 and status = 'WAITING'`,
      [id],
    );
    return { id, spaceId, user };
  }
  const told = async (id: string) =>
    (await publicationOf(id)).map(({ analysis, webhookUrl }) => [analysis.status, webhookUrl]);

  test.each([
    [null, null],
    ["VIEWER", null],
    ["EDITOR", webhook_url],
    ["ADMIN", webhook_url],
  ])("is sent nothing by runs started before: as %s the URL is %s", async (role, url) => {
    const { id, spaceId, user } = await waiting();
    await setRole(spaceId, user, role);
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect(await told(id)).toEqual([["succeeded", url]]);
  });

  test.each([
    ["revoked_at = now()", null],
    ["expires_at = now()", null],
    ["expires_at = now() + interval '1 hour'", webhook_url],
  ])("is sent nothing once the key of the request is no longer valid: %s", async (change, url) => {
    const { id, user } = await waiting();
    await database.pool.query(`update sealpost.api_keys set ${change} where user_id = $1`, [user.userId]);
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect(await told(id)).toEqual([["succeeded", url]]);
  });

  test("nor why one failed", async () => {
    const { id, spaceId, user } = await waiting();
    await setRole(spaceId, user, null);
    const analyze = () => Promise.reject(new NodeFailedError("folder_not_found", "later.txt"));
    expect(await stepAll({ ...stepping(), nodeSteps: { analyze } })).toBe("run_failed");
    expect(await told(id)).toEqual([["failed", null]]);
  });

  test("is sent nothing by a run that ends while the removal is being committed", async () => {
    const { id, spaceId, user } = await waiting();
    const end = await inTransaction(database.pool, async (tx) => {
      await removeMember(tx, { accountId: api.account.accountId, userId: user.userId }, String(spaceId));
      const ending = stepAll(stepping());
      const blocked =
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
      await expect
        .poll(async () => (await database.pool.query(blocked)).rowCount, { timeout: patience(5_000) })
        .toBe(1);
      return { ending };
    });
    expect(await end.ending).toBe("run_succeeded");
    expect(await told(id)).toEqual([["succeeded", null]]);
  });
});

describe("publishing refuses a run's analysis", () => {
  test("for its size: the run has failed, and the least is told", async () => {
    const workflow_id = await runs.newWorkflow(space.id, chain());
    const webhook_url = "https://hooks.example.com/small";
    const { id } = await runs.started(workflow_id, { input: { text: "long ".repeat(100) }, webhook_url });
    await writeSettings(database.pool, { ...SETTINGS, analysisBytesMax: 300 });
    expect(await stepAll(stepping())).toBe("run_failed");
    await writeSettings(database.pool, SETTINGS);
    const run = await runs.get(id);
    expect(run).toMatchObject({
      status: "FAILED",
      error_code: "publish_refused",
      error_message: expect.stringContaining("300"),
      error_details: { publication: [{ code: "analysis_too_large" }] },
      delivery_id: expect.any(String),
    });
    const least = { id, status: "failed", workflow_id, error_code: "publish_refused" };
    expect(await publicationOf(id)).toEqual([{ analysis: least, webhookUrl: webhook_url }]);
  });

  test("never for its depth: an item that is too deep is left out", async () => {
    const workflow_id = await runs.newWorkflow(space.id, chain());
    const input = JSON.parse(`${'{"a":'.repeat(510)}1${"}".repeat(510)}`);
    const { id } = await runs.started(workflow_id, { input });
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect(await runs.items(id, "trigger")).toEqual([input]);
    expect(await publicationOf(id)).toMatchObject([{ analysis: { result: { items: [], items_total: 1 } } }]);
  });

  test("for its URL, which was allowed when it started: the endpoint is told", async () => {
    await writeSettings(database.pool, { ...SETTINGS, unsafeAllowedTargets: ["localhost:8443"] });
    const other = await startTestApi(database, { UNSAFE_ALLOWED_TARGETS: "localhost:8443" });
    const { key } = api.account;
    const workflow_id = await runs.newWorkflow(space.id, chain());
    const body = { webhook_url: "https://localhost:8443/" };
    const started = await other.ask("POST", `/v1/workflows/${workflow_id}/runs`, { key, body });
    expect(started.status).toBe(202);
    await other.close();
    await writeSettings(database.pool, SETTINGS);
    expect(await stepAll(stepping())).toBe("run_failed");
    const { id } = started.body;
    expect((await runs.get(id)).error_details).toMatchObject({ publication: [{ code: "target_refused" }] });
    expect(await publicationOf(id)).toMatchObject([
      { analysis: { error_code: "publish_refused" }, webhookUrl: null },
    ]);
  });

  test("for its id, and the least of it, too: the run alone tells", async () => {
    const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
    const body = { analysis: { id, status: "failed", mine: true } };
    expect((await api.ask("POST", "/v1/analyses", { body })).status).toBe(202);
    expect(await stepAll(stepping())).toBe("run_failed");
    expect(await runs.get(id)).toMatchObject({
      status: "FAILED",
      error_code: "publish_refused",
      error_details: { publication: [{ code: "analysis_conflict" }, { code: "analysis_conflict" }] },
      delivery_id: null,
    });
    expect((await publicationOf(id)).map(({ analysis }) => analysis.mine)).toEqual([true]);
  });
});

describe("a run is not started", () => {
  test.each([
    ["http://hooks.example.com/", "url_not_https"],
    ["https://127.0.0.1/", "not public"],
    ["https://user:word@hooks.example.com/", "user name"],
    ["https://hooks.example.com/#part", "#"],
  ])("with the webhook_url %s", async (webhook_url) => {
    const workflow = await runs.newWorkflow(space.id, chain());
    const { status, body } = await runs.start(workflow, { webhook_url });
    const told = await api.ask("POST", "/v1/analyses", {
      body: { analysis: { id: randomUUID(), status: "failed" }, webhook_url },
    });
    expect([status, body.code]).toEqual([422, "target_refused"]);
    expect(body.errors).toEqual(told.body.errors);
  });

  test("when the user has half of a thousand that go on, and again when one of them has ended", async () => {
    const account = await api.newAccount();
    const { key } = account;
    const own = runsOf((method, path, options) => api.ask(method, path, { key, ...options }));
    const { id } = await documentsOf((method, path, options) =>
      api.ask(method, path, { key, ...options }),
    ).newSpace();
    const workflow = await own.newWorkflow(id, chain());
    const first = await own.started(workflow);
    await database.pool.query(
      `insert into workspace.runs
         (account_id, space_id, workflow_id, version, input, requested_by, requested_key_id, status)
       select account_id, space_id, workflow_id, version, input, requested_by, requested_key_id, 'WAITING'
       from workspace.runs, generate_series(1, 498) where id = $1`,
      [first.id],
    );
    const both = await Promise.all([own.start(workflow), own.start(workflow)]);
    expect(both.map(({ status }) => status).sort()).toEqual([202, 409]);
    expect(both.find(({ status }) => status === 409)!.body.code).toBe("too_many_workflow_runs");
    const other = await api.newUser(account.accountId);
    const others = runsOf((method, path, options) => api.ask(method, path, { key: other.key, ...options }));
    await api.ask("PUT", `/v1/spaces/${id}/members/${other.userId}`, { key, body: { role: "EDITOR" } });
    await others.started(workflow);
    expect((await own.cancel(first.id)).status).toBe(200);
    await own.started(workflow);
    await stepAll(stepping());
  });
});

test("roles: viewers read runs, and others do not know them", async () => {
  const workflow = await runs.newWorkflow(space.id, chain(WAIT));
  const viewer = await api.newUser(api.account.accountId);
  const outsider = await api.newUser(api.account.accountId);
  const stranger = await api.newAccount();
  await api.ask("PUT", `/v1/spaces/${space.id}/members/${viewer.userId}`, { body: { role: "VIEWER" } });
  const { id } = await runs.started(workflow);
  for (const { key } of [outsider, stranger]) {
    const answers = [
      await runs.start(workflow, {}, { key }),
      await api.ask("GET", `/v1/workflow-runs/${id}`, { key }),
      await runs.itemPage(id, "trigger", "", { key }),
      await runs.eventPage(id, "", { key }),
      await runs.cancel(id, { key }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404, 404, 404]);
  }
  const { key } = viewer;
  expect((await runs.get(id, { key })).id).toBe(id);
  expect((await runs.itemPage(id, "trigger", "", { key })).status).toBe(200);
  expect((await runs.eventPage(id, "", { key })).status).toBe(200);
  expect((await runs.start(workflow, {}, { key })).body.code).toBe("access_denied");
  expect((await runs.cancel(id, { key })).body.code).toBe("access_denied");
  expect((await runs.cancel(id)).status).toBe(200);
});

test("a workflow tells its newest run", async () => {
  const workflow = await runs.newWorkflow(space.id, chain());
  const lastRun = async () => (await api.ask("GET", `/v1/workflows/${workflow}`)).body.last_run;
  expect(await lastRun()).toBeNull();
  await runs.started(workflow);
  const { id, created_at } = await runs.started(workflow);
  expect(await lastRun()).toEqual({ id, status: "QUEUED", created_at });
  await stepAll(stepping());
  expect(await lastRun()).toEqual({ id, status: "SUCCEEDED", created_at });
});
