// Who may make and end hooks of workflows, and when one starts nothing.
import { describe, expect, test } from "vitest";
import { reseal } from "../../src/base/database/resealing.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { beginErasure } from "../../src/cells/erasures-sql.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import { findHook, signingSecretOf } from "../../src/workspace/store/triggers.ts";
import { createTestDatabase } from "../support/database.ts";
import { countRows, SECRETS_KEY } from "../support/installation.ts";
import { type Json, startTestApi } from "../support/sealpost-api.ts";
import { atHook, codeOf, type Hook, hookOf, makeHook, post, published, workflows } from "./hook-world.ts";
import { newUser, setRole, type User } from "./membership-world.ts";
import { api, database, documents, runs, space, useRuns } from "./run-world.ts";
import { deleteAllGone } from "./support/bin.ts";
import { chain } from "./support/runs.ts";
import { workflowsOf } from "./support/workflows.ts";

useRuns();

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

  test("while whoever published it is disabled", async () => {
    const room = await documents.newSpace();
    const editor = await newUser();
    await setRole(room.id, editor, "ADMIN");
    const { id } = await workflows.published(room.id, atHook(), { key: editor.key });
    const hook = await makeHook(id);
    expect((await post(hook.path)).status).toBe(202);
    const { ownKey: key } = api.account;
    expect((await api.ask("DELETE", `/v1/users/${editor.userId}`, { key })).status).toBe(200);
    expect(await reasonOf(hook.path)).toMatch(/may no longer run workflows/);
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

test("a hook of an account that is being erased is unknown, from the first step on", async () => {
  const { accountId, key } = await api.newAccount();
  const room = await documents.newSpace("erased", { key });
  const { id } = await workflows.published(room.id, atHook(), { key });
  const ask: typeof api.ask = (method, path, asked) => api.ask(method, path, { key, ...asked });
  const hook = await makeHook(id, {}, { ask });
  expect((await post(hook.path)).status).toBe(202);
  await inTransaction(database.pool, (tx) => beginErasure(tx, accountId));
  expect(codeOf(await post(hook.path, { text: "late" }))).toEqual([401, "unauthorized"]);
  expect(await countRows(database.pool, "workspace.runs", { account_id: accountId })).toBe(1);
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
