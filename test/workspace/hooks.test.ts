// Workflows that others run by a URL.
import { describe, expect, test } from "vitest";
import { writeQuotas } from "../../src/base/database/storage.ts";
import { begin, countRows, untilSomebodyWaits } from "../support/installation.ts";
import type { Asked } from "../support/sealpost-api.ts";
import {
  atHook,
  codeOf,
  type Hook,
  hookOf,
  makeHook,
  post,
  published,
  signed,
  workflows,
} from "./hook-world.ts";
import { api, database, runs, stepping, useRuns } from "./run-world.ts";
import { stepAll } from "./support/runs.ts";

useRuns();

test("what is posted to a hook runs its workflow, in the name of whoever published it", async () => {
  const { workflowId, hook } = await published();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const answer = await post(hook.path, { order: 7, note: "a\u0000b" }, { headers: { traceparent } });
  expect([answer.status, answer.body]).toEqual([202, { run_id: expect.any(String) }]);
  const run = await runs.get(answer.body.run_id);
  expect(run).toMatchObject({
    ...{
      workflow_id: workflowId,
      origin: "webhook",
      actor_type: "webhook",
      webhook_id: hook.id,
      trigger_id: null,
    },
    ...{
      trigger_node_id: "hook",
      status: "QUEUED",
      webhook_url: null,
      requested_by: { id: api.account.userId },
    },
    ...{ input: { order: 7, note: "a\u0000b" }, trace_id: "0af7651916cd43dd8448eb211c80319c" },
  });
  expect(await stepAll(stepping())).toBe("run_succeeded");
  expect(await runs.items(run.id, "hook")).toEqual([{ order: 7, note: "a\u0000b" }]);
  const byHand = await runs.started(workflowId, { input: { by: "hand" } });
  expect(byHand).toMatchObject({ origin: "manual", actor_type: "api", webhook_id: null, trigger_id: null });
});

test("its key and its secret are shown once, and are in no row and no log", async () => {
  const { workflowId, hook } = await published("signature");
  await post(hook.path, "{}", signed("{}", hook.secret));
  await post(hook.path, "no JSON");
  await post(`${hook.path}x`);
  const { webhooks } = (await workflows.get(workflowId)).body;
  expect(webhooks).toEqual([
    {
      ...{ id: hook.id, node_id: "hook", url: null, auth_mode: "signature", methods: ["POST"], active: true },
      ...{ provider_key: null, integration_mode: null, events: [], has_signing_secret: true },
      ...{
        subscription_state: null,
        subscription_count: 0,
        last_error_code: null,
        subscription_synced_at: null,
      },
    },
  ]);
  const { rows } = await database.pool.query(
    "select h::text, (select json_agg(a)::text from sealpost.audit_log as a) as log from workspace.hooks as h",
  );
  const everything = JSON.stringify([rows, api.log]);
  for (const secret of [hook.key, hook.secret, hook.secret.slice(6)])
    expect(everything).not.toContain(secret);
  expect(api.log.some(({ operation, status }) => operation === "hook" && status === 202)).toBe(true);
});

describe("401, the same for all", () => {
  const answers: unknown[] = [];
  test.each([
    ["no key", "/v1/workflows/hooks"],
    ["an empty one", "/v1/workflows/hooks/"],
    ["an unknown one", `/v1/workflows/hooks/${"x".repeat(43)}`],
    ["another path's word", "/v1/workflows/hooks/publish"],
  ])("%s", async (_, path) => {
    const { status, body } = await post(path, { a: 1 });
    const { request_id: __, ...told } = body;
    answers.push(told);
    expect([status, told]).toEqual([
      path.includes("%") ? status : 401,
      path.includes("%") ? told : answers[0],
    ]);
    expect(status).toBeGreaterThanOrEqual(400);
  });

  test("nor does an API key help", async () => {
    expect(codeOf(await api.ask("POST", "/v1/workflows/hooks/x", { body: {} }))).toEqual([
      401,
      "unauthorized",
    ]);
  });
});

describe("a hook that asks for signatures", () => {
  const body = '{"a":1}';

  test("takes what its secret has signed now, and nothing else", async () => {
    const { hook } = await published("signature");
    const { hook: other } = await published("signature");
    const now = Math.floor(Date.now() / 1_000);
    expect((await post(hook.path, body, signed(body, hook.secret))).status).toBe(202);
    for (const wrong of [
      {},
      signed(body, other.secret),
      signed(`${body} `, hook.secret),
      signed(body, hook.secret, now - 301),
      signed(body, hook.secret, now + 301),
      { headers: { "extract-signature": "t=1" } },
    ]) {
      const answer = await post(hook.path, body, wrong);
      expect(codeOf(answer)).toEqual([401, "hook_signature_invalid"]);
      expect(answer.body.errors).toMatchObject([{ path: "header.extract-signature" }]);
    }
    expect(await countRows(database.pool, "workspace.runs", { webhook_id: hook.id })).toBe(1);
  });

  test("which each version says anew", async () => {
    const { workflowId, hook } = await published("plain");
    expect((await post(hook.path)).status).toBe(202);
    await workflows.save(workflowId, 2, atHook("signature"));
    expect((await post(hook.path)).status).toBe(202);
    await workflows.publish(workflowId);
    expect((await post(hook.path)).status).toBe(401);
  });
});

describe("rotating", () => {
  test("ends the one before at once", async () => {
    const { workflowId, hook } = await published();
    const next = await makeHook(workflowId);
    expect([(await post(hook.path)).status, (await post(next.path)).status]).toEqual([401, 202]);
  });

  test("or after an overlap, with its own secret until then; the one before that at once", async () => {
    const { workflowId, hook: first } = await published("signature");
    const second = await makeHook(workflowId, { overlap_seconds: 60 });
    const status = async ({ path }: Hook, { secret }: Hook) =>
      (await post(path, "{}", signed("{}", secret))).status;
    expect(await Promise.all([status(first, first), status(second, second), status(first, second)])).toEqual([
      ...[202, 202, 401],
    ]);
    const third = await makeHook(workflowId, { overlap_seconds: 60 });
    expect([await status(first, first), await status(second, second), await status(third, third)]).toEqual([
      ...[401, 202, 202],
    ]);
    await database.pool.query("update workspace.hooks set ends_at = now() where id = $1", [second.id]);
    expect([await status(second, second), await status(third, third)]).toEqual([401, 202]);
    expect((await workflows.get(workflowId)).body.webhooks).toMatchObject([{ id: third.id }]);
  });

  test("many at a time leave one that works", async () => {
    const { workflowId } = await published();
    const made = await Promise.all(Array.from({ length: 10 }, () => makeHook(workflowId)));
    const statuses = await Promise.all(made.map(async ({ path }) => (await post(path)).status));
    expect(statuses.toSorted()).toEqual([202, ...Array(9).fill(401)]);
  });

  test("ends a request that was let in, and waits for the workflow", async () => {
    const { workflowId, hook } = await published();
    const client = await database.pool.connect();
    await client.query("begin");
    await client.query("select from workspace.workflows where id = $1 for update", [workflowId]);
    const posting = post(hook.path);
    const waiting = "select from pg_locks where not granted";
    await expect.poll(async () => (await database.pool.query(waiting)).rowCount).toBeGreaterThan(0);
    await client.query("delete from workspace.hooks where id = $1", [hook.id]);
    await client.query("commit");
    client.release();
    expect(codeOf(await posting)).toEqual([401, "unauthorized"]);
  });

  test("and ending: there is none any more", async () => {
    const { workflowId, hook } = await published();
    await makeHook(workflowId, { overlap_seconds: 60 });
    expect((await api.ask("DELETE", hookOf(workflowId))).status).toBe(204);
    expect((await post(hook.path)).status).toBe(401);
    expect(codeOf(await api.ask("DELETE", hookOf(workflowId)))).toEqual([404, "not_found"]);
    expect((await workflows.get(workflowId)).body.webhooks).toMatchObject([
      { id: null, active: false, has_signing_secret: false },
    ]);
  });
});

describe("an Idempotency-Key", () => {
  test("has one run, however often and by however many at a time", async () => {
    const { workflowId, hook } = await published();
    const idempotencyKey = "order-1";
    const posts = () =>
      Promise.all(Array.from({ length: 8 }, () => post(hook.path, { n: 1 }, { idempotencyKey })));
    const answers = [...(await posts()), ...(await posts())];
    expect(answers.map(({ status }) => status)).toEqual(Array(16).fill(202));
    expect(new Set(answers.map(({ body }) => body.run_id)).size).toBe(1);
    expect(answers.filter(({ headers }) => headers.get("idempotent-replayed") === "true").length).toBe(15);
    expect(codeOf(await post(hook.path, { n: 2 }, { idempotencyKey }))).toEqual([
      422,
      "idempotency_key_reused",
    ]);
    const next = await makeHook(workflowId);
    expect((await post(next.path, { n: 1 }, { idempotencyKey })).body).toEqual(answers[0]!.body);
    expect(await countRows(database.pool, "workspace.runs", { workflow_id: workflowId })).toBe(1);
  });

  test("is another hook's, too", async () => {
    const [one, other] = [await published(), await published()];
    const idempotencyKey = "order-1";
    const [first, second] = await Promise.all(
      [one, other].map(({ hook }) => post(hook.path, {}, { idempotencyKey })),
    );
    expect(first!.body.run_id).not.toBe(second!.body.run_id);
  });

  test("without one each has its run", async () => {
    const { hook } = await published();
    const [one, other] = [await post(hook.path), await post(hook.path)];
    expect(one.body.run_id).not.toBe(other.body.run_id);
  });
});

describe("many posts at a time", () => {
  const together = (count: number, sent: (n: number) => Promise<Asked>) =>
    Promise.all(Array.from({ length: count }, (_, n) => sent(n)));
  const countTransactions = async (workflowId: string) => {
    const began = "select distinct created_at from workspace.runs where workflow_id = $1";
    return (await database.pool.query(began, [workflowId])).rowCount!;
  };

  test("begin their runs in few transactions", async () => {
    const { workflowId, hook } = await published();
    const answers = await together(40, () => post(hook.path));
    expect(answers.map(({ status }) => status)).toEqual(Array(40).fill(202));
    expect(new Set(answers.map(({ body }) => body.run_id)).size).toBe(40);
    expect(await countTransactions(workflowId)).toBeLessThan(20);
  });

  test("are answered each for itself", async () => {
    const { workflowId, hook } = await published("signature");
    const send = (n: number, idempotencyKey: string | null, wrong = "") => {
      const body = JSON.stringify({ n });
      return post(hook.path, body, { ...signed(`${body}${wrong}`, hook.secret), idempotencyKey });
    };
    // What comes while the first one waits begins together.
    const lock = await begin(
      database.pool,
      `select from workspace.workflows where id = '${workflowId}' for update`,
    );
    const first = send(0, null);
    await untilSomebodyWaits(database.pool);
    const others = [send(1, "a"), send(2, null, " "), send(1, "a"), send(3, "a"), send(4, "b", " ")];
    const last = [send(4, "b"), send(5, null)];
    await workflows.get(workflowId);
    await lock.rollback();
    const answers = await Promise.all([first, ...others, ...last]);
    expect(answers.map(({ status, body }) => body.code ?? status)).toEqual([
      ...[202, 202, "hook_signature_invalid", 202],
      ...["idempotency_key_reused", "hook_signature_invalid", 202, 202],
    ]);
    const ids = answers.flatMap(({ body }) => body.run_id ?? []);
    expect(ids[1]).toBe(ids[2]);
    const inputs = await Promise.all(ids.map(async (id) => (await runs.get(String(id))).input));
    expect(inputs).toEqual([{ n: 0 }, { n: 1 }, { n: 1 }, { n: 4 }, { n: 5 }]);
    expect(await countTransactions(workflowId)).toBeLessThan(4);
  });

  test("begin as many as there is room for, and one that has its run gets that", async () => {
    const { workflowId, hook } = await published();
    const { body: known } = await post(hook.path, {}, { idempotencyKey: "known" });
    const { rows } = await database.pool.query<{ left: number }>(
      "select 500 - count(*)::integer as left from workspace.runs where account_id = $1 and completed_at is null",
      [api.account.accountId],
    );
    await database.pool.query(
      `insert into workspace.runs (account_id, space_id, workflow_id, version, requested_by, webhook_id, input)
       select account_id, space_id, workflow_id, version, requested_by, webhook_id, input
       from workspace.runs, generate_series(1, $2) where id = $1`,
      [known.run_id, rows[0]!.left - 3],
    );
    const answers = await together(24, (n) =>
      post(hook.path, {}, { idempotencyKey: n % 2 === 0 ? null : n % 4 === 1 ? "known" : `${n}` }),
    );
    const [again, others] = [0, 1].map((is) => answers.filter((_, n) => Number(n % 4 !== 1) === is));
    expect(again!.map(({ body }) => body)).toEqual(Array(6).fill(known));
    const codes = others!.map(({ body }) => body.code ?? "begun").toSorted();
    expect(codes).toEqual([...Array(3).fill("begun"), ...Array(15).fill("too_many_workflow_runs")]);
    await database.pool.query("update workspace.runs set completed_at = now() where workflow_id = $1", [
      workflowId,
    ]);
  });

  test("begin as many as the account may begin in a day", async () => {
    const { hook } = await published();
    const { accountId } = api.account;
    const most = (await countRows(database.pool, "workspace.runs", { account_id: accountId })) + 5;
    await writeQuotas(database.pool, accountId, { runs_per_day: most });
    const answers = await together(20, () => post(hook.path));
    await writeQuotas(database.pool, accountId, { runs_per_day: null });
    const codes = answers.map(({ body }) => body.code ?? "begun").toSorted();
    expect(codes).toEqual([...Array(5).fill("begun"), ...Array(15).fill("billing_credits_exhausted")]);
  });
});

describe("what a hook takes", () => {
  test.each([
    ["nothing", "", 202, undefined],
    ["a list", "[]", 400, "invalid_request"],
    ["no JSON", "{", 400, "invalid_request"],
    ["a name twice", '{"a":1,"a":2}', 400, "invalid_request"],
    ["too large a number", '{"a":1e400}', 400, "invalid_request"],
    ["as much as any input", JSON.stringify({ text: "x".repeat(65_000) }), 202, undefined],
    ["more", JSON.stringify({ text: "x".repeat(66_000) }), 413, "payload_too_large"],
  ])("%s", async (_, body, status, code) => {
    const { hook } = await published();
    expect(codeOf(await post(hook.path, body))).toEqual([status, code]);
  });

  test("only JSON, and only by POST", async () => {
    const { hook } = await published();
    const headers = { "content-type": "text/plain" };
    expect(codeOf(await post(hook.path, "{}", { headers }))).toEqual([415, "unsupported_media_type"]);
    expect(codeOf(await api.ask("GET", hook.path, { key: null }))).toEqual([405, "method_not_allowed"]);
  });
});
