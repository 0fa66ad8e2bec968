// Erasing what a run has published, or waits for.
import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { eraseFromRuns, idsOfRuns } from "../../src/app/areas.ts";
import { removeEndpoint, setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { forgetDelivered } from "../../src/delivery/erase-sql.ts";
import {
  begin,
  changeRows,
  countRows,
  insertRow,
  tablesWith,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { EXTERNAL, eraseAgain, isLeftOfRuns, publishIt, read, waiting } from "./external-world.ts";
import { post, published } from "./hook-world.ts";
import { documents, newUser, publishOwn, runIn, setRole } from "./membership-world.ts";
import { api, database, runs, space, stepping, useRuns } from "./run-world.ts";
import { binOf, deleteAllGone } from "./support/bin.ts";
import { chain, endWaits, type Run, stepAll } from "./support/runs.ts";

useRuns();

const WAIT = { kind: "wait", parameters: { for_seconds: 3_600 } } as const;
const erase = (id: string, key = api.account.ownKey) => api.ask("DELETE", `/v1/analyses/${id}`, { key });
const itemsOf = (runId: string) => countRows(database.pool, "workspace.node_items", { run_id: runId });

test("needs can_delete in its space of whoever acts for a user; for others it does not exist", async () => {
  const space = await documents.newSpace();
  const { analysisId } = await runIn(space.id, "erased.txt");
  const [stranger, editor] = [await newUser(), await newUser()];
  await setRole(space.id, editor, "EDITOR");
  expect([await erase(analysisId, stranger.key), await erase(analysisId, editor.key)]).toMatchObject([
    { status: 404 },
    { status: 403, body: { code: "access_denied" } },
  ]);
  expect(await itemsOf(analysisId)).toBeGreaterThan(0);
  await setRole(space.id, editor, "ADMIN");
  expect((await erase(analysisId, editor.key)).status).toBe(200);
  expect(await itemsOf(analysisId)).toBe(0);
  expect((await api.ask("GET", `/v1/analyses/${analysisId}`)).body.code).toBe("analysis_erased");
  expect((await runs.get(analysisId)).status).toBe("SUCCEEDED");
  await publishOwn("of-no-run");
  expect((await erase("of-no-run", stranger.key)).status).toBe(200);
});

/** The run, with all that its rows know. */
async function deleteForGood(runId: string): Promise<void> {
  const { workflow_id } = await runs.get(runId);
  await binOf(api.ask).removeForGood({ path: `/v1/workflows/${workflow_id}` });
  await deleteAllGone(database.pool);
  expect((await runs.get(runId)).code).toBe("not_found");
}

test("needs can_delete in its space, too, when its run is deleted for good", async () => {
  const space = await documents.newSpace();
  const { analysisId } = await runIn(space.id, "erased.txt");
  const editor = await newUser();
  await setRole(space.id, editor, "EDITOR");
  await deleteForGood(analysisId);
  expect(await erase(analysisId, editor.key)).toMatchObject({ status: 403, body: { code: "access_denied" } });
  expect((await api.ask("GET", `/v1/analyses/${analysisId}`)).status).toBe(200);
  await setRole(space.id, editor, "ADMIN");
  expect((await erase(analysisId, editor.key)).status).toBe(200);
});

test("says so when what a run has made of it is being sent", async () => {
  const { accountId } = api.account;
  await setEndpoint(database.pool, accountId, "https://hooks.example.com/in");
  const { run, analysisId } = await waiting();
  await publishIt(analysisId);
  await read();
  await stepAll(stepping());
  const { delivery_id } = await runs.get(run.id);
  const lease = {
    ...{ lease_token: randomUUID(), lease_number: 1, lease_run: 1 },
    ...{
      lease_until: new Date(Date.now() + 20_000),
      lease_started_at: new Date(),
      run_started_at: new Date(),
    },
  };
  await changeRows(database.pool, "open_deliveries", { delivery_id }, lease);
  expect((await erase(analysisId)).body).toMatchObject({ in_flight: true });
  await removeEndpoint(database.pool, accountId);
});

test("ends a run that works with it, and what it has handed on is gone", async () => {
  const definition = chain({ kind: "external_analysis" }, WAIT);
  const { run, analysisId } = await waiting(definition);
  await publishIt(analysisId, { text: "canary" });
  await read();
  await stepAll(stepping());
  expect(await itemsOf(run.id)).toBe(2);
  expect((await erase(analysisId)).status).toBe(200);
  expect([(await runs.get(run.id)).status, await itemsOf(run.id)]).toEqual(["CANCELLED", 0]);
});

test("ends no run whose id it has in capitals", async () => {
  const { run } = await waiting();
  const capitals = String(run.id).toUpperCase();
  await publishOwn(capitals);
  expect((await erase(capitals)).status).toBe(200);
  expect((await runs.get(run.id)).status).toBe("WAITING");
});

const delivered = async (id: string) => {
  await changeRows(database.pool, "deliveries", { id }, { status: "succeeded", reason: null });
  const first = { delivery_id: id, account_id: api.account.accountId, run: 1, number: 1 };
  const times = { started_at: new Date(), ended_at: new Date() };
  await insertRow(database.pool, "attempts", { ...first, ...times, outcome: "succeeded" });
};
const toForget = (delivery_id: string) =>
  insertRow(database.pool, "forgetting", {
    delivery_id,
    account_id: api.account.accountId,
    look_at: new Date(0),
  });
const forget = async () => {
  await changeRows(database.pool, "forgetting", {}, { look_at: new Date(0) });
  await forgetDelivered(database.pool, eraseFromRuns, 0, idsOfRuns);
};
const codeOf = async (id: string) => (await api.ask("GET", `/v1/analyses/${id}`)).body.code;
/** That an endpoint forgets. */
async function publishForgotten(id: string): Promise<void> {
  const deliveryId = await publishIt(id);
  await delivered(deliveryId);
  await toForget(deliveryId);
  await forget();
  expect(await codeOf(id)).toBe("analysis_erased");
}

describe.each(["forgotten", "erased on request"])("what is %s takes along", (how) => {
  const end = async (id: string) => {
    if (how === "forgotten") return await publishForgotten(id);
    await publishIt(id);
    expect((await erase(id)).status).toBe(200);
  };
  /** As it was, and so is what it has published. */
  async function expectKept(run: Run, items: number, own: string | undefined): Promise<void> {
    // What it has published would be forgotten by now, too.
    const delivery = (await runs.get(run.id)).delivery_id;
    if (typeof delivery === "string") await delivered(delivery);
    await forget();
    expect([(await runs.get(run.id)).status, await itemsOf(run.id)]).toEqual([run.status, items]);
    expect(await codeOf(run.id)).toBe(own);
  }

  test("nothing of a run that only has such an id, whose nodes waited for nothing of it", async () => {
    const { run: begun, analysisId } = await waiting();
    await publishIt(analysisId);
    await read();
    await stepAll(stepping());
    const run = await runs.get(begun.id);
    expect([run.status, await itemsOf(run.id)]).toEqual(["SUCCEEDED", 2]);
    await end(`${run.id}:${randomUUID()}`);
    await end(`${run.id}:${run.node_runs[0]!.id}`);
    await expectKept(run, 2, undefined);
  });

  test("nothing of a run that goes on", async () => {
    const { run } = await waiting();
    await end(`${run.id}:${randomUUID()}`);
    await end(`${run.id}:${run.node_runs[0]!.id}`);
    await expectKept(run, 1, "not_found");
  });

  test("nothing of a run that was cancelled before, nor what is forgotten in its name", async () => {
    const { run, analysisId } = await waiting();
    await runs.cancel(run.id);
    await end(analysisId);
    await expectKept(await runs.get(run.id), 1, "not_found");
    await end(run.id);
    // Who asks for it by the run's id means the run.
    expect(await itemsOf(run.id)).toBe(how === "forgotten" ? 1 : 0);
  });

  test("the words of a run that it has failed", async () => {
    const { run, analysisId } = await waiting();
    const canary = randomUUID();
    const deliveryId = await publishIt(analysisId, { status: "failed", error_message: canary });
    await read();
    await stepAll(stepping());
    expect([(await runs.get(run.id)).status, await isLeftOfRuns(canary)]).toEqual(["FAILED", [true, false]]);
    await delivered(deliveryId);
    if (how === "forgotten") await toForget(deliveryId);
    else expect((await erase(analysisId)).status).toBe(200);
    await forget();
    expect([await codeOf(analysisId), await isLeftOfRuns(canary)]).toEqual([
      "analysis_erased",
      [false, false],
    ]);
  });
});

test("is not taken along by what is forgotten when its run is deleted for good", async () => {
  const space = await documents.newSpace();
  const { analysisId, deliveryId } = await runIn(space.id, "kept.txt");
  await delivered(deliveryId);
  await deleteForGood(analysisId);
  await publishForgotten(`${analysisId}:${randomUUID()}`);
  await forget();
  expect(await codeOf(analysisId)).toBe(undefined);
});

test("goes with whatever is erased under its id, once its run is deleted for good and nothing tells more", async () => {
  const { analysisId } = await runIn((await documents.newSpace()).id, "kept.txt");
  const other = `${analysisId}:${randomUUID()}`;
  await publishIt(other);
  await deleteForGood(analysisId);
  expect([(await erase(other)).status, await codeOf(analysisId)]).toEqual([200, "analysis_erased"]);
});

test("takes along none that only has an id like a run's", async () => {
  const id = randomUUID();
  await publishOwn(id);
  await publishOwn(`${id}:${id}`);
  expect((await erase(`${id}:${id}`)).status).toBe(200);
  expect((await api.ask("GET", `/v1/analyses/${id}`)).status).toBe(200);
});

test.each(["kept", "deleted for good"])(
  "goes with what a run has published of it that is %s",
  async (how) => {
    const { run, analysisId } = await waiting();
    await publishIt(analysisId, { text: "canary" });
    await read();
    await stepAll(stepping());
    expect((await api.ask("GET", `/v1/analyses/${run.id}`)).bytes.toString()).toContain("canary");
    if (how !== "kept") await deleteForGood(run.id);
    expect((await erase(analysisId)).status).toBe(200);
    for (const id of [analysisId, run.id])
      expect((await api.ask("GET", `/v1/analyses/${id}`)).body.code).toBe("analysis_erased");
    expect(await countRows(database.pool, "erasures", { account_id: api.account.accountId })).toBeGreaterThan(
      1,
    );
  },
);

test("takes along what its run was given, and a repeat at its hook is known all the same", async () => {
  const { hook } = await published();
  const canary = randomUUID();
  const postOnce = () => post(hook.path, { text: canary }, { idempotencyKey: "once" });
  const { run_id } = (await postOnce()).body;
  await stepAll(stepping());
  expect((await api.ask("GET", `/v1/analyses/${run_id}`)).bytes.toString()).toContain(canary);
  expect(await isLeftOfRuns(canary)).toEqual([true, false]);
  expect((await erase(String(run_id))).status).toBe(200);
  expect(await isLeftOfRuns(canary)).toEqual([false, false]);
  expect(await runs.get(run_id)).toMatchObject({ status: "SUCCEEDED", input: {} });
  expect((await postOnce()).body).toEqual({ run_id });
});

test.each(["not begun", "handed it on"])("goes after a restore to when its run had %s, too", async (how) => {
  const canary = randomUUID();
  const workflow = await runs.newWorkflow(space.id, chain(WAIT));
  const { id } = await runs.started(workflow, { input: { text: canary } });
  if (how === "handed it on") await stepAll(stepping());
  expect([(await isLeftOfRuns(canary))[0], await itemsOf(id)]).toEqual([true, how === "not begun" ? 0 : 1]);
  await eraseAgain(id);
  expect([(await runs.get(id)).status, await isLeftOfRuns(canary)]).toEqual(["CANCELLED", [false, false]]);
  await endWaits(database.pool);
  await stepAll(stepping());
  expect([await codeOf(id), await isLeftOfRuns(canary)]).toEqual(["analysis_erased", [false, false]]);
});

test.each(["the run's own first", "the run's own last", "of a test", "of a node that it had not come to"])(
  "goes after a restore to when its run waited for what it was given: %s",
  async (how) => {
    const canary = randomUUID();
    // Of a test nothing is published, and so it is not in the list.
    const more = how === "of a test" ? { test_node_id: "node-0" } : {};
    const workflow = await runs.newWorkflow(space.id, EXTERNAL);
    const { id } = await runs.started(workflow, { input: { text: canary }, ...more });
    await stepAll(stepping());
    // What the run came to after the backup, the backup does not know.
    const node = how.endsWith("not come to") ? randomUUID() : (await runs.get(id)).node_runs.at(-1)!.id;
    const list = [`${id}:${node}`, ...(how.startsWith("the run's own") ? [id] : [])];
    for (const one of how.endsWith("first") ? list.toReversed() : list) await eraseAgain(one);
    expect([(await runs.get(id)).status, await isLeftOfRuns(canary)]).toEqual(["CANCELLED", [false, false]]);
    for (const one of list) expect(await codeOf(one)).toBe("analysis_erased");
  },
);

describe("goes with the own analysis of the run that it was given to,", () => {
  const TWO = chain({ kind: "external_analysis" }, { kind: "external_analysis" });
  const awaitedBy = async (id: string) => `${id}:${(await runs.get(id)).node_runs.at(-1)!.id}`;
  /** A run, and the ids of what it is given, one after the other. */
  async function runWith(...given: readonly object[]): Promise<string[]> {
    const ids = [(await waiting(TWO)).run.id];
    for (const more of given) {
      ids.push(await awaitedBy(ids[0]!));
      await publishIt(ids.at(-1)!, more);
      await read();
      await stepAll(stepping());
    }
    return ids;
  }

  test.each(["succeeded", "failed"])(
    "all of it that has %s; what only has such an id stays",
    async (status) => {
      const canary = randomUUID();
      const ids = await runWith({ text: canary }, { status, error_message: canary });
      const [id] = ids as [string];
      const others = [`${id}:${randomUUID()}`, `${id}:${(await runs.get(id)).node_runs[0]!.id}`];
      for (const other of others) await publishIt(other);
      for (const _ of ["once", "again"]) expect((await erase(id)).body.analysis_id).toBe(id);
      const isKnown = (one: string) => countRows(database.pool, "erasures", { analysis_id: one });
      for (const one of ids) expect([await codeOf(one), await isKnown(one)]).toEqual(["analysis_erased", 1]);
      for (const one of others) expect([await codeOf(one), await isKnown(one)]).toEqual([undefined, 0]);
      expect(await tablesWith(database.pool, canary)).toEqual([]);
    },
  );

  test("and needs can_delete in its space", async () => {
    const [id, given] = (await runWith({}, {})) as [string, string];
    const editor = await newUser();
    await setRole(space.id, editor, "EDITOR");
    expect([(await erase(id, editor.key)).status, await codeOf(given)]).toEqual([403, undefined]);
    await setRole(space.id, editor, "ADMIN");
    expect([(await erase(id, editor.key)).status, await codeOf(given)]).toEqual([200, "analysis_erased"]);
  });

  test("after a restore to when its run went on, too, with what it had not read yet", async () => {
    const canary = randomUUID();
    const ids = await runWith({ text: canary });
    ids.push(await awaitedBy(ids[0]!));
    await publishIt(ids.at(-1)!, { text: canary });
    await eraseAgain(ids[0]!);
    for (const one of ids) expect(await codeOf(one)).toBe("analysis_erased");
    expect(await tablesWith(database.pool, canary)).toEqual([]);
  });

  test("but is not forgotten with it", async () => {
    const [id, given] = (await runWith({}, {})) as [string, string];
    const own = String((await runs.get(id)).delivery_id);
    await delivered(own);
    await toForget(own);
    for (const _ of ["once", "again"]) await forget();
    expect([await codeOf(id), await codeOf(given)]).toEqual(["analysis_erased", undefined]);
  });
});

test("leaves what a run was given that has not succeeded, so that it can be retried", async () => {
  const { run, analysisId } = await waiting();
  await publishIt(analysisId, { text: "canary" });
  expect((await erase(analysisId)).status).toBe(200);
  expect(await runs.get(run.id)).toMatchObject({ status: "CANCELLED", input: run.input });
  expect((await runs.retry(run.id)).body.input).toEqual(run.input);
});

test("is forgotten once its run has ended, and what that has published is forgotten like it", async () => {
  const second = chain({ kind: "external_analysis" }, { kind: "external_analysis" });
  const { run, analysisId } = await waiting(second);
  const delivery_id = await publishIt(analysisId, { text: "canary" });
  await read();
  await stepAll(stepping());
  await delivered(delivery_id);
  await toForget(delivery_id);
  await forget();
  expect([await codeOf(analysisId), await itemsOf(run.id)]).toEqual([undefined, 2]);
  await publishIt(`${run.id}:${(await runs.get(run.id)).node_runs.at(-1)!.id}`);
  await read();
  await stepAll(stepping());
  const { status, delivery_id: own } = await runs.get(run.id);
  expect(status).toBe("SUCCEEDED");
  await forget();
  expect([await codeOf(analysisId), await itemsOf(run.id), await codeOf(run.id)]).toEqual([
    "analysis_erased",
    0,
    undefined,
  ]);
  await delivered(String(own));
  await forget();
  expect(await codeOf(run.id)).toBe("analysis_erased");
  for (const id of [delivery_id, own])
    expect(await countRows(database.pool, "forgetting", { delivery_id: id })).toBe(0);
});

test("is forgotten by itself: what its account stores is not held while another run is locked", async () => {
  const workflow = await runs.newWorkflow(space.id, chain());
  const both = [await runs.started(workflow), await runs.started(workflow)];
  await stepAll(stepping());
  for (const { id } of both) {
    const own = String((await runs.get(id)).delivery_id);
    await Promise.all([delivered(own), toForget(own)]);
  }
  const step = await begin(database.pool);
  await step.client.query("select from workspace.runs where id = $1 for update", [both[1]!.id]);
  const forgetting = forget();
  await untilSomebodyWaits(database.pool);
  expect((await runs.started(workflow)).status).toBe("QUEUED");
  await step.rollback();
  await forgetting;
  for (const { id } of both) expect(await codeOf(id)).toBe("analysis_erased");
});
