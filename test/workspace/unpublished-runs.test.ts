// Erasing runs that have published nothing, by their ids.
import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { lockRun } from "../../src/workspace/store/runs.ts";
import { countRows, rowsOf, tablesWith } from "../support/installation.ts";
import type { Json } from "../support/sealpost-api.ts";
import { EXTERNAL, eraseAgain, isLeftOfRuns, publishIt, waiting } from "./external-world.ts";
import { documents, newUser, setRole } from "./membership-world.ts";
import { api, database, runs, stepping, useRuns } from "./run-world.ts";
import { binOf, deleteAllGone } from "./support/bin.ts";
import { chain, readFeeds, stepAll } from "./support/runs.ts";

useRuns();

const WAIT = { kind: "wait", parameters: { for_seconds: 3_600 } } as const;
const STATES = {
  "of a test": "SUCCEEDED",
  cancelled: "CANCELLED",
  "failed, as somebody took its id": "FAILED",
  "going on": "WAITING",
  "not begun": "QUEUED",
} as const;
type State = keyof typeof STATES;
const NAMES = Object.keys(STATES) as State[];

const erase = (id: string, key = api.account.ownKey, more = {}) =>
  api.ask("DELETE", `/v1/analyses/${id}`, { key, ...more });
const read = (id: string, key = api.account.ownKey) => api.ask("GET", `/v1/analyses/${id}`, { key });

type Made = { readonly id: string; readonly document: string };

/** With a document's name and what was made of its text, and a word in its input. */
async function runThatIs(state: State, word: string, space?: Json): Promise<Made> {
  const { id: space_id } = space ?? (await documents.newSpace());
  const bytes = Buffer.from(`${word} ${word}`);
  const document = await documents.uploaded({ space_id, file_name: `${word}.txt` }, bytes);
  const more = state.startsWith("failed") ? [] : [WAIT];
  const definition = chain({ kind: "documents" }, { kind: "analyze" }, ...more);
  const workflow = await runs.newWorkflow(space_id, definition);
  const { id } = await runs.started(workflow, {
    input: { word },
    ...(state === "of a test" ? { test_node_id: "node-1" } : {}),
  });
  if (state.startsWith("failed")) await publishIt(id);
  if (state !== "not begun") await stepAll(stepping());
  if (state === "cancelled") await runs.cancel(id);
  expect((await runs.get(id)).status).toBe(STATES[state]);
  return { id, document: String(document.id) };
}

test.each(NAMES)("are erased: one that is %s", async (state) => {
  const word = randomUUID();
  const { id } = await runThatIs(state, word);
  const { status, delivery_id } = await runs.get(id);
  expect([delivery_id, await isLeftOfRuns(word)]).toEqual([null, [true, false]]);
  const told = { analysis_id: id, in_flight: false, came_from: [] };
  for (const _ of ["once", "again"]) {
    const { status: answer, body } = await erase(id);
    expect([answer, body]).toEqual([200, expect.objectContaining(told)]);
    if (!state.startsWith("failed")) expect(body.delivery_id).toBeNull();
  }
  await stepAll(stepping());
  const ended = ["going on", "not begun"].includes(state) ? "CANCELLED" : status;
  expect(await runs.get(id)).toMatchObject({ status: ended, input: {}, delivery_id: null });
  expect(await isLeftOfRuns(word)).toEqual([false, false]);
  expect((await read(id)).body.code).toBe("analysis_erased");
  expect(await countRows(database.pool, "erasures", { analysis_id: id })).toBe(1);
  if (ended === "CANCELLED") expect((await runs.retry(id)).body.input).toEqual({});
});

test.each(NAMES)("are erased again after a restore: one that is %s", async (state) => {
  const word = randomUUID();
  const { id } = await runThatIs(state, word);
  for (const _ of ["once", "again"]) await eraseAgain(id);
  expect(await isLeftOfRuns(word)).toEqual([false, false]);
  expect((await read(id)).body.code).toBe("analysis_erased");
});

test("are erased by who may delete in their space, and for others they do not exist", async () => {
  const space = await documents.newSpace();
  const [stranger, member] = [await newUser(), await newUser()];
  await setRole(space.id, member, "EDITOR");
  const word = randomUUID();
  const { id } = await runThatIs("going on", word, space);
  expect([await erase(id, stranger.key), await erase(id, member.key)]).toMatchObject([
    { status: 404, body: { code: "not_found" } },
    { status: 403, body: { code: "access_denied" } },
  ]);
  expect([(await runs.get(id)).status, await isLeftOfRuns(word)]).toEqual(["WAITING", [true, false]]);
  await setRole(space.id, member, "ADMIN");
  const idempotencyKey = randomUUID();
  const [first, repeat, another] = [
    await erase(id, member.key, { idempotencyKey }),
    await erase(id, member.key, { idempotencyKey }),
    await erase(id, member.key),
  ];
  expect([first.status, repeat.body, another.body]).toEqual([200, first.body, first.body]);
  expect(await isLeftOfRuns(word)).toEqual([false, false]);
  expect((await erase(id, stranger.key)).status).toBe(404);
  expect([(await read(id, member.key)).status, (await read(id, stranger.key)).status]).toEqual([410, 404]);
});

test("are not waited for by who does not see them", async () => {
  const space = await documents.newSpace();
  const stranger = await newUser();
  const { id } = await runThatIs("going on", randomUUID(), space);
  await inTransaction(database.pool, async (tx) => {
    await lockRun(tx, api.account.accountId, id);
    expect((await erase(id, stranger.key)).status).toBe(404);
  });
});

test("keep nothing of a document that is deleted for good, once they are erased", async () => {
  const word = randomUUID();
  const { id, document } = await runThatIs("of a test", word);
  await binOf(api.ask).removeForGood({ path: `/v1/documents/${document}` });
  await deleteAllGone(database.pool);
  const itemsOf = async () => JSON.stringify(await runs.items(id, "node-1"));
  expect(await itemsOf()).toContain(word);
  expect((await erase(id)).status).toBe(200);
  expect(await itemsOf()).not.toContain(word);
  expect(await isLeftOfRuns(word)).toEqual([false, false]);
});

test("are unknown to users while their space is in the bin, and to all once deleted for good", async () => {
  const space = await documents.newSpace();
  const member = await newUser();
  await setRole(space.id, member, "ADMIN");
  const { id } = await runThatIs("cancelled", randomUUID(), space);
  await binOf(api.ask).remove({ path: `/v1/spaces/${space.id}` });
  expect((await erase(id, member.key)).status).toBe(404);
  await binOf(api.ask).removeForGood({ path: `/v1/spaces/${space.id}` });
  await deleteAllGone(database.pool);
  for (const unknown of [id, randomUUID(), `${id}:${randomUUID()}`])
    expect((await erase(unknown)).status).toBe(404);
});

test("are named by their ids alone: not in capitals, nor by what they wait for", async () => {
  const { run, analysisId } = await waiting(EXTERNAL);
  for (const other of [run.id.toUpperCase(), analysisId]) expect((await erase(other)).status).toBe(404);
  expect((await runs.get(run.id)).status).toBe("WAITING");
});

/** Of two nodes that wait side by side, the analysis of the second, whose pipeline is at work. */
async function waitingTwice(ended: string) {
  const definition = chain({ kind: "external_analysis" }, { kind: "external_analysis" });
  const edges = definition.edges.map((edge, n) => (n === 1 ? { from: "trigger", to: "node-1" } : edge));
  const { run, analysisId } = await waiting({ ...definition, edges });
  const nodes = await rowsOf(database.pool, "workspace.node_runs", { run_id: run.id });
  const other = nodes.map(({ awaited_analysis_id: id }) => id).find((id) => id !== null && id !== analysisId);
  if (ended === "cancelled") await runs.cancel(run.id);
  if (ended === "failed") {
    await publishIt(analysisId, { status: "failed" });
    await readFeeds(database.pool);
    await stepAll(stepping());
  }
  return { id: run.id, analysisId: other as string };
}

test.each(["going on", "cancelled", "failed"])("%s take along what they have waited for", async (ended) => {
  const { id, analysisId } = await waitingTwice(ended);
  await publishIt(analysisId);
  expect((await erase(id)).status).toBe(200);
  for (const one of [id, analysisId]) expect((await read(one)).body.code).toBe("analysis_erased");
});

test.each(["going on", "cancelled", "failed"])(
  "%s are erased with what they have waited for: published later, it is not there",
  async (ended) => {
    const { id, analysisId } = await waitingTwice(ended);
    expect((await erase(id)).status).toBe(200);
    const word = randomUUID();
    await publishIt(analysisId, { text: word });
    for (const key of [api.account.ownKey, api.account.key])
      expect((await read(analysisId, key)).body.code).toBe("analysis_erased");
    expect(await tablesWith(database.pool, word)).toEqual([]);
  },
);
