// Runs that are started again, and tests of one node.
import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Definition } from "../../src/workspace/model/definition.ts";
import { NodeFailedError } from "../../src/workspace/nodes/node-step.ts";
import type { Asked, AskOptions, Json } from "../support/sealpost-api.ts";
import { newUser, setRole } from "./membership-world.ts";
import { api, database, documents, runs, space, stepping, useRuns } from "./run-world.ts";
import { binOf } from "./support/bin.ts";
import { chain, publishedAnalyses, stepAll } from "./support/runs.ts";

useRuns();
const bin = binOf((...asked) => api.ask(...asked));
const WAIT = { kind: "wait", parameters: { for_seconds: 3_600 } } as const;

const publishedBy = async (id: unknown) =>
  (await publishedAnalyses(database.pool, api.account.accountId)).filter(
    ({ analysis }) => analysis.id === id,
  );
const failing = () => Promise.reject(new NodeFailedError("folder_not_found", "Nothing there."));

/** Each takes all along that has not ended: the first come first. */
const ENDS: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
  SUCCEEDED: async () => {
    // No way leads through three waits.
    for (let waits = 0; waits < 3; waits++) {
      await database.pool.query(
        `update workspace.node_runs set started_at = started_at - interval '2 hours', next_at = now()
         where status = 'WAITING'`,
      );
      await stepAll(stepping());
    }
  },
  FAILED: () => stepAll({ ...stepping(), nodeSteps: { manual_trigger: failing } }),
  CANCELLED: (id) => runs.cancel(id),
  WAITING: () => stepAll(stepping()),
  QUEUED: async () => undefined,
};

async function runIn(status: string, workflow: string, body: object = {}): Promise<string> {
  const { id } = await runs.started(workflow, body);
  await ENDS[status]!(id);
  expect((await runs.get(id)).status).toBe(status);
  return id;
}

describe("a retry", () => {
  test.each(["FAILED", "CANCELLED"])(
    "of a %s run does the same again, as a run of its own",
    async (status) => {
      const workflow = await runs.newWorkflow(space.id, chain(WAIT));
      const webhook_url = "https://hooks.example.com/again";
      const before = await runs.get(await runIn(status, workflow, { input: { n: 1.5 }, webhook_url }));
      // A newer version changes nothing: the same is done again.
      await api.ask("PUT", `/v1/workflows/${workflow}/draft`, { body: { revision: 2, definition: chain() } });
      expect((await api.ask("POST", `/v1/workflows/${workflow}/publish`)).body.current_version).toMatchObject(
        {
          version: 2,
        },
      );
      const { status: answered, body } = await runs.retry(before.id);
      expect(answered).toBe(202);
      const { workflow_id, workflow_name, space_id, version, input, definition } = before;
      expect(body).toMatchObject({
        ...{ workflow_id, workflow_name, space_id, version, input, definition, webhook_url },
        ...{ status: "QUEUED", retry_of: before.id, test_node_id: null, delivery_id: null },
        requested_by: before.requested_by,
      });
      expect(before.retry_of).toBeNull();
      expect(body.id).not.toBe(before.id);
      await ENDS.SUCCEEDED!("");
      expect(await runs.get(body.id)).toMatchObject({ status: "SUCCEEDED", retry_of: before.id });
      expect(await runs.items(body.id, "node-0")).toEqual([{ n: 1.5 }]);
      expect(await publishedBy(body.id)).toMatchObject([
        { analysis: { status: "succeeded" }, webhookUrl: webhook_url },
      ]);
      expect(await runs.get(before.id)).toEqual(before);
    },
  );

  test("by somebody else is theirs, and does not report to the other's URL", async () => {
    const [user, other] = [await newUser(), await newUser()];
    for (const one of [user, other]) await setRole(space.id, one, "EDITOR");
    const workflow = await runs.newWorkflow(space.id, chain());
    const body = { webhook_url: "https://hooks.example.com/theirs" };
    const { id } = await runs.started(workflow, body, { key: user.key });
    await runs.cancel(id);
    await setRole(space.id, user, null);
    const retried = (await runs.retry(id, { key: other.key })).body;
    expect(retried).toMatchObject({ retry_of: id, webhook_url: null, requested_by: { id: other.userId } });
    await stepAll(stepping());
    expect(await publishedBy(retried.id)).toMatchObject([{ webhookUrl: null }]);
  });

  test("under one Idempotency-Key happens once, and under another again", async () => {
    const id = await runIn("CANCELLED", await runs.newWorkflow(space.id, chain()));
    const idempotencyKey = randomUUID();
    const answers = await Promise.all(Array.from({ length: 5 }, () => runs.retry(id, { idempotencyKey })));
    const made = new Set(answers.filter(({ status }) => status === 202).map(({ body }) => body.id));
    expect(made.size).toBe(1);
    const again = await runs.retry(id, { idempotencyKey });
    expect([again.status, again.headers.get("idempotent-replayed")]).toEqual([202, "true"]);
    expect(made.has(again.body.id)).toBe(true);
    expect(made.has((await runs.retry(id)).body.id)).toBe(false);
    const { rows } = await database.pool.query("select id from workspace.runs where retry_of = $1", [id]);
    expect(rows).toHaveLength(2);
    await stepAll(stepping());
  });

  test("of a run that is no longer kept is none; its own retries stay", async () => {
    const id = await runIn("CANCELLED", await runs.newWorkflow(space.id, chain()));
    const retried = (await runs.retry(id)).body;
    await runs.cancel(retried.id);
    await database.pool.query("delete from workspace.runs where id = $1", [id]);
    expect((await runs.retry(id)).status).toBe(404);
    const { status, body } = await runs.retry(retried.id);
    expect([status, body.retry_of]).toEqual([202, retried.id]);
    expect((await runs.get(retried.id)).retry_of).toBe(id);
    await stepAll(stepping());
  });

  test("counts as a run: of those that may be unfinished, and towards what is stored", async () => {
    const account = await api.newAccount();
    const { key } = account;
    const ask = (method: string, path: string, options: AskOptions = {}) =>
      api.ask(method, path, { key, ...options });
    const made = await ask("POST", "/v1/spaces", { body: { name: "full" } });
    const workflow = await runs.newWorkflow(made.body.id, chain(), { key });
    const { id } = await runs.started(workflow, {}, { key });
    await runs.cancel(id, { key });
    await database.pool.query(
      `insert into workspace.runs
         (account_id, space_id, workflow_id, version, input, requested_by, requested_key_id, status)
       select account_id, space_id, workflow_id, version, input, requested_by, requested_key_id, 'WAITING'
       from workspace.runs, generate_series(1, 500) where id = $1`,
      [id],
    );
    const refused = await runs.retry(id, { key });
    expect([refused.status, refused.body.code]).toEqual([409, "too_many_workflow_runs"]);
  });

  test("to a URL that is no longer allowed is refused", async () => {
    const id = await runIn("CANCELLED", await runs.newWorkflow(space.id, chain()));
    await database.pool.query("update workspace.runs set webhook_url = 'https://10.0.0.1/' where id = $1", [
      id,
    ]);
    const { status, body } = await runs.retry(id);
    expect([status, body.code, body.errors]).toEqual([
      ...[422, "target_refused"],
      [{ path: "run.webhook_url", message: expect.any(String) }],
    ]);
  });
});

describe("a test of a node", () => {
  const STEPS = [{ kind: "documents" }, { kind: "analyze" }] as const;

  test("runs what leads to it, and publishes nothing", async () => {
    const { id: space_id } = await documents.newSpace();
    await documents.uploaded({ space_id, file_name: "one.txt" });
    const definition = chain(...STEPS, WAIT);
    // Beside the node, and of it.
    definition.nodes.push(
      { ...definition.nodes[3]!, id: "beside" },
      { ...definition.nodes[3]!, id: "joined" },
    );
    definition.edges.push({ from: "trigger", to: "beside" }, { from: "beside", to: "joined" });
    definition.edges.push({ from: "node-1", to: "joined" });
    const workflow = await runs.newWorkflow(space_id, definition);
    const started = await runs.started(workflow, { test_node_id: "node-1", input: { n: 1 } });
    expect(started).toMatchObject({ test_node_id: "node-1", retry_of: null });
    expect(started.definition).toEqual((await runs.get(started.id)).definition);
    expect(await stepAll(stepping())).toBe("run_succeeded");
    const run = await runs.get(started.id);
    expect(run).toMatchObject({ status: "SUCCEEDED", delivery_id: null, activations_total: 3 });
    expect(run.node_runs.map(({ node_id, status }) => [node_id, status])).toEqual([
      ["trigger", "SUCCEEDED"],
      ["node-0", "SUCCEEDED"],
      ["node-1", "SUCCEEDED"],
    ]);
    expect((run.definition as Definition).nodes).toHaveLength(6);
    expect(await runs.items(run.id, "node-1")).toMatchObject([{ file_name: "one.txt", analysis: {} }]);
    expect(await publishedBy(run.id)).toEqual([]);
    expect((await runs.events(run.id)).at(-1)).toMatchObject({ kind: "run.succeeded" });
    // Whichever has several: all of them.
    const joined = await runs.started(workflow, { test_node_id: "joined" });
    await ENDS.SUCCEEDED!("");
    expect((await runs.get(joined.id)).node_runs.map(({ node_id }) => node_id).sort()).toEqual(
      ["beside", "joined", "node-0", "node-1", "trigger"].sort(),
    );
    expect(await runs.items(joined.id, "joined")).toHaveLength(2);
  });

  test("publishes nothing when it fails, and retrying it tests again", async () => {
    const workflow = await runs.newWorkflow(space.id, chain(...STEPS));
    const { id } = await runs.started(workflow, { test_node_id: "node-0" });
    await stepAll({ ...stepping(), nodeSteps: { documents: failing } });
    expect(await runs.get(id)).toMatchObject({
      ...{ status: "FAILED", error_code: "folder_not_found", delivery_id: null },
      error_details: { node_id: "node-0" },
    });
    const { body } = await runs.retry(id);
    expect(body).toMatchObject({ test_node_id: "node-0", retry_of: id });
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect((await runs.get(body.id)).node_runs).toHaveLength(2);
    expect([await publishedBy(id), await publishedBy(body.id)]).toEqual([[], []]);
  });

  test("needs a node of the version, and has no URL to report to", async () => {
    const workflow = await runs.newWorkflow(space.id, chain(...STEPS));
    const errors = async (body: object) => {
      const answer = await runs.start(workflow, body);
      return [answer.status, answer.body.errors];
    };
    for (const test_node_id of ["none", "constructor", ""]) {
      expect(await errors({ test_node_id })).toEqual([
        ...[400, [{ path: "body.test_node_id", message: "No node of version 1 has this id." }]],
      ]);
    }
    const webhook_url = "https://hooks.example.com/";
    expect(await errors({ test_node_id: "node-0", webhook_url })).toEqual([
      ...[400, [{ path: "body.webhook_url", message: "A test publishes nothing: omit the URL." }]],
    ]);
    const { id } = await runs.started(workflow, { test_node_id: "trigger", webhook_url: null });
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect((await runs.get(id)).node_runs).toHaveLength(1);
  });
});

const ROLES = ["ADMIN", "EDITOR", "VIEWER", "nobody", "stranger"] as const;
const PROBLEMS: Readonly<Record<string, string | null>> = {
  there: null,
  "switched off": "workflow_disabled",
  archived: "workflow_archived",
  "switched off and archived": "workflow_archived",
  "in the bin": "workflow_deleted",
  "in a space in the bin": "workflow_deleted",
};

describe.each(Object.keys(PROBLEMS))("of a workflow that is %s", (state) => {
  test("runs are started, tested and retried by those who may", async () => {
    const { id: space_id } = await documents.newSpace();
    const workflow = await runs.newWorkflow(space_id, chain(WAIT));
    const people: Record<string, AskOptions> = { ADMIN: {}, stranger: { key: (await api.newAccount()).key } };
    for (const role of ["EDITOR", "VIEWER", "nobody"]) {
      const user = await newUser();
      people[role] = { key: user.key };
      if (role !== "nobody") await setRole(space_id, user, role);
    }
    const made: Record<string, string> = {};
    for (const status of Object.keys(ENDS)) made[status] = await runIn(status, workflow);
    const path = `/v1/workflows/${workflow}`;
    if (state.startsWith("switched off")) await api.ask("PATCH", path, { body: { enabled: false } });
    if (state.endsWith("archived")) await api.ask("POST", `${path}/archive`);
    if (state === "in the bin") await bin.remove({ path });
    if (state === "in a space in the bin") await bin.remove({ path: `/v1/spaces/${space_id}` });

    const asks: Record<string, (by: AskOptions) => Promise<Asked>> = {
      start: (by) => runs.start(workflow, {}, by),
      test: (by) => runs.start(workflow, { test_node_id: "node-0" }, by),
    };
    for (const [status, id] of Object.entries(made)) asks[`retry ${status}`] = (by) => runs.retry(id, by);
    for (const [what, ask] of Object.entries(asks)) {
      const isRetry = what.startsWith("retry");
      const isRetried = /FAILED|CANCELLED/.test(what);
      for (const role of ROLES.toReversed()) {
        const { status, body } = await ask(people[role]!);
        const told = [status, (body as Json).code ?? null];
        const problem = isRetry && !isRetried ? "workflow_run_not_failed" : PROBLEMS[state];
        // What is in a space that is in the bin is found by who would start a run alone.
        const isUnseen =
          role === "nobody" || role === "stranger" || (isRetry && state === "in a space in the bin");
        const expected = isUnseen
          ? [404, "not_found"]
          : role === "VIEWER"
            ? [403, "access_denied"]
            : problem === null || problem === undefined
              ? [202, null]
              : [409, problem];
        expect([what, role, ...told]).toEqual([what, role, ...expected]);
      }
    }
    // Whatever the workflow is: what has begun goes on to its end.
    await ENDS.SUCCEEDED!("");
    const ended = await database.pool.query("select status from workspace.runs where id = any ($1)", [
      [made.QUEUED, made.WAITING],
    ]);
    expect(ended.rows).toEqual([{ status: "SUCCEEDED" }, { status: "SUCCEEDED" }]);
    expect(await publishedBy(made.QUEUED)).toHaveLength(1);
  });
});
