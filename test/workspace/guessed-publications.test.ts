// Publishing under the id of a run: it tells a user nothing of what the run has published, even who guesses it all.
import { beforeAll, expect, test } from "vitest";
import { rowsOf } from "../support/installation.ts";
import { api, database, documents, newUser, publishOwn, runIn, setRole, told } from "./membership-world.ts";
import { useRuns } from "./run-world.ts";

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
