// Workflows that others run by a URL.
import { describe, expect, test } from "vitest";
import { reseal } from "../../src/base/database/resealing.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import { importSigningKey, signatureHeader } from "../../src/signing/index.ts";
import type { Definition } from "../../src/workspace/model/definition.ts";
import { findHook, signingSecretOf } from "../../src/workspace/store/triggers.ts";
import { createTestDatabase } from "../support/database.ts";
import { countRows, SECRETS_KEY } from "../support/installation.ts";
import { type Asked, type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { newUser, setRole, type User } from "./membership-world.ts";
import { api, database, documents, runs, space, stepping, useRuns } from "./run-world.ts";
import { deleteAllGone } from "./support/bin.ts";
import { chain, stepAll } from "./support/runs.ts";
import { workflowsOf } from "./support/workflows.ts";

useRuns();

const workflows = workflowsOf((...asked) => api.ask(...asked));

function atHook(auth_mode = "plain"): Definition {
  const parameters = { auth_mode };
  return { nodes: [{ id: "hook", kind: "hook_trigger", name: "Hook", parameters }], edges: [] } as never;
}

type Hook = { readonly id: string; readonly path: string; readonly key: string; readonly secret: string };

const hookOf = (workflowId: unknown) => `/v1/workflows/${workflowId}/hook`;

async function makeHook(
  workflowId: unknown,
  body: object = {},
  { ask }: Pick<TestApi, "ask"> = api,
): Promise<Hook> {
  const { status, body: made } = await ask("POST", hookOf(workflowId), { body });
  expect([status, made.code]).toEqual([201, undefined]);
  const { pathname } = new URL(String(made.url));
  return {
    ...{ id: String(made.id), path: pathname, key: pathname.split("/").at(-1)! },
    secret: String(made.signing_secret),
  };
}

async function published(auth_mode = "plain", spaceId: unknown = space.id) {
  const { id } = await workflows.published(spaceId, atHook(auth_mode));
  return { workflowId: String(id), hook: await makeHook(id) };
}

type Post = { readonly headers?: Record<string, string>; readonly idempotencyKey?: string | null };

/** Without any API key. */
const post = (path: string, body: unknown = {}, { headers = {}, idempotencyKey = null }: Post = {}) =>
  api.ask("POST", path, { key: null, body, headers, idempotencyKey });

const codeOf = ({ status, body }: Asked) => [status, body.code];

function signed(body: string, secret: string, timestampSeconds = Math.floor(Date.now() / 1_000)): Post {
  const keys = [importSigningKey(secret)];
  return {
    headers: { "extract-signature": signatureHeader({ timestampSeconds, body: Buffer.from(body), keys }) },
  };
}

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

/** What the API makes of operations on the hook of a workflow in that state. */
describe("who may", () => {
  const STATUSES: Readonly<Record<string, readonly [make: number, end: number]>> = {
    OWNER: [201, 204],
    ADMIN: [201, 204],
    EDITOR: [201, 204],
    VIEWER: [403, 403],
    "no member": [404, 404],
  };
  const cells = Object.entries(STATUSES).flatMap(([role, statuses]) =>
    (["there", "workflow in the bin", "space in the bin"] as const).map((state) => ({
      role,
      state,
      statuses,
    })),
  );
  test.each(cells)("$role, $state", async ({ role, state, statuses }) => {
    const room = await documents.newSpace();
    const { workflowId, hook } = await published("plain", room.id);
    const user: Pick<User, "key"> = role === "OWNER" ? api.account : await newUser();
    if (role !== "OWNER" && role !== "no member") await setRole(room.id, user as User, role);
    if (state === "workflow in the bin") await api.ask("DELETE", `/v1/workflows/${workflowId}`);
    if (state === "space in the bin") await api.ask("DELETE", `/v1/spaces/${room.id}`);
    const { key } = user;
    const asked = [
      await api.ask("POST", hookOf(workflowId), { key }),
      await api.ask("DELETE", hookOf(workflowId), { key }),
    ];
    expect(asked.map(({ status }) => status)).toEqual(state === "there" ? statuses : [404, 404]);
    const isLeft = state !== "there" || statuses[0] !== 201;
    expect(codeOf(await post(hook.path))).toEqual(
      isLeft ? (state === "there" ? [202, undefined] : [409, "hook_inactive"]) : [401, "unauthorized"],
    );
  });

  test("nor is the secret told again to whoever is no editor any more", async () => {
    const room = await documents.newSpace();
    const editor = await newUser();
    await setRole(room.id, editor, "EDITOR");
    const { workflowId } = await published("plain", room.id);
    const ask = { key: editor.key, idempotencyKey: "hook-once" };
    const first = await api.ask("POST", hookOf(workflowId), ask);
    expect((await api.ask("POST", hookOf(workflowId), ask)).body).toEqual(first.body);
    await setRole(room.id, editor, "VIEWER");
    expect((await api.ask("POST", hookOf(workflowId), ask)).status).toBe(403);
  });
});

describe("no run begins, and the answer says why", () => {
  const reasonOf = async (path: string) => {
    const answer = await post(path);
    expect(codeOf(answer)).toEqual([409, "hook_inactive"]);
    return (answer.body.errors as Json[])[0]!.message;
  };

  test("while nothing is published, or what begins elsewhere", async () => {
    const { id } = await workflows.created(space.id);
    const hook = await makeHook(id);
    expect(await reasonOf(hook.path)).toMatch(/begins elsewhere/);
    await workflows.publish(id);
    expect(await reasonOf(hook.path)).toMatch(/begins elsewhere/);
    await workflows.save(id, 1, atHook());
    await workflows.publish(id);
    expect((await post(hook.path)).status).toBe(202);
  });

  test("while whoever published it may not run workflows there", async () => {
    const room = await documents.newSpace();
    const editor = await newUser();
    await setRole(room.id, editor, "EDITOR");
    const { id } = await workflows.published(room.id, atHook(), { key: editor.key });
    const hook = await makeHook(id);
    const { run_id } = (await post(hook.path)).body;
    expect((await runs.get(run_id)).requested_by).toMatchObject({ id: editor.userId });
    await setRole(room.id, editor, null);
    expect(await reasonOf(hook.path)).toMatch(/may no longer run workflows/);
    expect((await workflows.get(id)).body.webhooks).toMatchObject([
      { active: false, last_error_code: "access_denied" },
    ]);
    await workflows.save(id, 2, chain());
    await workflows.publish(id);
    await workflows.save(id, 3, atHook());
    await workflows.publish(id);
    expect((await post(hook.path)).status).toBe(202);
  });
});

test("each hook has a limit of its own", async () => {
  const own = await createTestDatabase();
  const limited = await startTestApi(own, { RATE_LIMIT_REQUESTS: "20" });
  try {
    const { published, newSpace } = workflowsOf(limited.ask);
    const room = await newSpace();
    const hooks = [];
    for (let n = 0; n < 2; n++) hooks.push(await makeHook((await published(room, atHook())).id, {}, limited));
    const statusOf = async ({ path }: Hook) => {
      const { status, headers } = await limited.ask("POST", path, {
        key: null,
        body: {},
        idempotencyKey: null,
      });
      return [status, headers.has("retry-after")];
    };
    for (let n = 0; n < 20; n++) expect(await statusOf(hooks[0]!)).toEqual([202, false]);
    expect(await statusOf(hooks[0]!)).toEqual([429, true]);
    expect(await statusOf(hooks[1]!)).toEqual([202, false]);
    expect((await limited.ask("GET", "/v1/spaces")).status).toBe(200);
  } finally {
    await limited.close();
    await own.drop();
  }
});

test("its secret is sealed anew with another SECRETS_KEY", async () => {
  const own = await createTestDatabase();
  const other = await startTestApi(own);
  try {
    const { published, newSpace } = workflowsOf(other.ask);
    const { id } = await published(await newSpace(), atHook("signature"));
    const hook = await makeHook(id, {}, other);
    const next = Buffer.alloc(32, 2);
    expect(await reseal(own.pool, [next, SECRETS_KEY])).toBeGreaterThan(0);
    const found = (await findHook(own.pool, digestSecret(hook.key)))!;
    expect(signingSecretOf(found, next)).toBe(hook.secret);
    expect(await reseal(own.pool, [next, SECRETS_KEY])).toBe(0);
  } finally {
    await other.close();
    await own.drop();
  }
});

test("deleting a workflow for good ends its hook and its schedule, too", async () => {
  const { workflowId, hook } = await published();
  await workflows.save(workflowId, 2, {
    nodes: [{ id: "at", kind: "schedule_trigger", name: "At", parameters: { cron: "0 5 * * *" } }],
    edges: [],
  });
  await workflows.publish(workflowId);
  const left = async () =>
    await Promise.all(
      ["hooks", "schedules"].map((table) =>
        countRows(database.pool, `workspace.${table}`, { workflow_id: workflowId }),
      ),
    );
  expect(await left()).toEqual([1, 1]);
  const path = `/v1/workflows/${workflowId}?permanently=true`;
  expect((await api.ask("DELETE", path)).status).toBe(200);
  expect(codeOf(await post(hook.path))).toEqual([409, "hook_inactive"]);
  await deleteAllGone(database.pool);
  expect([await left(), codeOf(await post(hook.path))]).toEqual([
    [0, 0],
    [401, "unauthorized"],
  ]);
});
