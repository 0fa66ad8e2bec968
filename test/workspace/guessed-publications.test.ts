// Publishing under the id of a run: it tells a user nothing of what the run has published, even who guesses it all, and
// publishes nothing in the run's name.
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { removeMember } from "../../src/workspace/store/spaces.ts";
import { rowsOf } from "../support/installation.ts";
import { startTestApi } from "../support/sealpost-api.ts";
import { read, waiting } from "./external-world.ts";
import { api, database, documents, newUser, publishOwn, runIn, setRole, told } from "./membership-world.ts";
import { runs, space, stepping, useRuns } from "./run-world.ts";
import { binOf, deleteAllGone } from "./support/bin.ts";
import { stepAll } from "./support/runs.ts";

useRuns();

let analysisId: string;
let deliveryId: string;
/** Byte for byte what the run has published. */
let text: string;
let spaceId: unknown;
beforeAll(async () => {
  spaceId = (await documents.newSpace("Guessed")).id;
  ({ analysisId, deliveryId } = await runIn(spaceId, "guessed.txt"));
  text = (await api.ask("GET", `/v1/analyses/${analysisId}`)).bytes.toString();
});

const publish = (key: string, analysis: string, more = "", idempotencyKey?: string) =>
  api.ask("POST", "/v1/analyses", {
    key,
    body: `{"analysis":${analysis}${more}}`,
    ...(idempotencyKey && { idempotencyKey }),
  });
const other = () => JSON.stringify({ id: analysisId, status: "succeeded", guessed: "wrongly" });
const counts = () => rowsOf(database.pool, "idempotency_keys", { idempotency_key: "guess" });

test("a right guess is answered as a wrong one, to whoever is no member", async () => {
  const { key } = await newUser();
  const wrong = await publish(key, other());
  expect([wrong.status, wrong.body.code]).toEqual([409, "analysis_conflict"]);
  expect(told(await publish(key, text))).toEqual(told(wrong));
  expect(told(await publish(key, text, ',"webhook_url":"https://a.example.com/"'))).toEqual(told(wrong));
  // Nor is anything kept for it, or found under the key of another guess.
  expect(told(await publish(key, text, "", "guess"))).toEqual(told(wrong));
  expect(await counts()).toEqual([]);
  expect(told(await publish(key, other(), "", "guess"))).toEqual(told(wrong));
});

test("and so it is among others that are published at the same moment", async () => {
  const { key } = await newUser();
  const right = Array.from({ length: 20 }, () => publish(key, text));
  const fresh = Array.from({ length: 20 }, (_, n) => publish(key, `{"id":"beside-${n}","status":"failed"}`));
  const statuses = async (all: typeof right) => new Set((await Promise.all(all)).map(({ status }) => status));
  expect(await statuses(fresh)).toEqual(new Set([202]));
  expect(await statuses(right)).toEqual(new Set([409]));
});

test("nor does it depend on who is a member: the id is the run's", async () => {
  const user = await newUser();
  await setRole(spaceId, user, "EDITOR");
  const guess = await publish(user.key, text);
  expect([guess.status, guess.body.code]).toEqual([409, "analysis_conflict"]);
  await setRole(spaceId, user, null);
  expect(told(await publish(user.key, text))).toEqual(told(guess));
});

test("keys that act for no user publish it again, and everybody what others than runs publish", async () => {
  const again = await publish(api.account.ownKey, text);
  expect([again.status, again.body.delivery_id]).toEqual([202, deliveryId]);
  const own = await publishOwn("own-again");
  const { key } = await newUser();
  const known = await publish(key, '{"id":"own-again","status":"succeeded"}');
  expect([known.status, known.body.delivery_id]).toEqual([202, own.deliveryId]);
});

describe("a user's key", () => {
  const FORGED = "forged";
  const forge = (key: string, id: string) =>
    publish(key, JSON.stringify({ id, status: "succeeded", document_id: FORGED }));
  const refused = [409, "analysis_conflict"];
  const answered = async (key: string, id: string) => {
    const { status, body } = await forge(key, id);
    return [status, body.code];
  };

  test.each([null, "VIEWER", "EDITOR", "ADMIN"])("publishes no run's own analysis: %s", async (role) => {
    const user = await newUser();
    if (role !== null) await setRole(space.id, user, role);
    const [{ run, analysisId: answer }, { run: cancelled }] = [await waiting(), await waiting()];
    await runs.cancel(cancelled.id);
    for (const id of [run.id, run.id.toUpperCase(), cancelled.id])
      expect([id, ...(await answered(user.key, id))]).toEqual([id, ...refused]);
    expect((await forge(api.account.ownKey, answer)).status).toBe(202);
    await read();
    expect(await stepAll(stepping())).toBe("run_succeeded");
    const { bytes } = await api.ask("GET", `/v1/analyses/${run.id}`);
    expect(JSON.parse(bytes.toString())).toMatchObject({ id: run.id, result: { items_total: 1 } });
    expect((await api.ask("GET", `/v1/analyses/${cancelled.id}`)).status).toBe(404);
  });

  test.each([
    [null, refused],
    ["VIEWER", refused],
    ["removed", refused],
    ["EDITOR", [202, undefined]],
    ["ADMIN", [202, undefined]],
  ])("publishes what a run waits for where it may run workflows: %s", async (role, expected) => {
    const user = await newUser();
    const { run, analysisId: awaited } = await waiting();
    if (role !== null) await setRole(space.id, user, role === "removed" ? "EDITOR" : role);
    if (role === "removed") await setRole(space.id, user, null);
    expect(await answered(user.key, awaited)).toEqual(expected);
    await read();
    await stepAll(stepping());
    const items = await runs.items(run.id, "node-0");
    expect(items.map(({ document_id }) => document_id)).toEqual(expected === refused ? [] : [FORGED]);
    await runs.cancel(run.id);
  });

  test("publishes nothing else under a run's id, nor anything once the run is deleted for good", async () => {
    const editor = await newUser();
    const own = await documents.newSpace("Deleted");
    await setRole(own.id, editor, "EDITOR");
    const { analysisId: id } = await runIn(own.id, "deleted.txt");
    const { node_runs, workflow_id } = await runs.get(id);
    const known = (await api.ask("GET", `/v1/analyses/${id}`)).bytes.toString();
    for (const part of [randomUUID(), ...node_runs.map((one) => one.id)])
      expect(await answered(editor.key, `${id}:${part}`)).toEqual(refused);
    await binOf(api.ask).removeForGood({ path: `/v1/workflows/${workflow_id}` });
    await deleteAllGone(database.pool);
    expect((await runs.get(id)).code).toBe("not_found");
    expect(await answered(editor.key, `${id}:${node_runs[0]!.id}`)).toEqual(refused);
    expect((await publish(editor.key, known)).status).toBe(409);
  });

  test("does not while its user is being removed, among others that are published", async () => {
    const user = await newUser();
    await setRole(space.id, user, "EDITOR");
    const { analysisId: awaited } = await waiting();
    const { forging } = await inTransaction(database.pool, async (tx) => {
      await removeMember(tx, { accountId: api.account.accountId, userId: user.userId }, String(space.id));
      const all = [answered(user.key, awaited), answered(user.key, "its-own")] as const;
      expect(await all[1]).toEqual([202, undefined]);
      return { forging: all[0] };
    });
    expect(await forging).toEqual(refused);
  });

  test("does not where the API serves webhooks alone", async () => {
    const webhooks = await startTestApi(database, { AREAS: "webhooks" });
    const { key } = await newUser();
    const { run } = await waiting();
    const body = { analysis: { id: run.id, status: "failed" } };
    expect((await webhooks.ask("POST", "/v1/analyses", { key, body })).status).toBe(409);
    await webhooks.close();
    await runs.cancel(run.id);
  });

  test("costs two looks only under an id that a run may have, and others none", async () => {
    const { key } = await newUser();
    const looks = async (by: string, id: string) => {
      const isLook = (text: string) => text.includes("workspace.");
      const before = api.statements().filter(isLook).length;
      expect((await forge(by, id)).status).toBe(202);
      return api.statements().filter(isLook).length - before;
    };
    const [one, other] = ["0199a1f0-7d2c-7c3a-9b1e-000000000001", "0199a1f0-7d2c-7c3a-9b1e-000000000002"];
    expect(await looks(api.account.ownKey, other)).toBe(0);
    expect(await looks(key, "contract-1")).toBe(0);
    expect(await looks(key, `${one}:part`)).toBe(0);
    // Whether there is a workspace, and whose the run is.
    expect(await looks(key, one)).toBe(2);
    expect(await looks(key, `${one}:${other}`)).toBe(2);
  });
});
