import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { countRows, untilSomebodyWaits } from "../support/installation.ts";
import { type AskOptions, startTestApi, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let one: TestApi;
let other: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  // Two processes' worth of API beside one database.
  [one, other] = await Promise.all([startTestApi(database), startTestApi(database)]);
});
afterAll(async () => {
  await Promise.all([one.close(), other.close()]);
  await database.drop();
});

const publishOn = (api: TestApi, id: string, options: AskOptions = {}) =>
  api.ask("POST", "/v1/analyses", {
    key: one.account.ownKey,
    body: { analysis: { id, status: "succeeded" } },
    ...options,
  });

async function countOf(table: "deliveries" | "idempotency_keys" | "signing_secrets"): Promise<number> {
  return await countRows(database.pool, table, { account_id: one.account.accountId });
}

test("of many requests under one key at once one has its effect, and the others hear of it or wait", async () => {
  const rotate = (api: TestApi) =>
    api.ask("POST", "/v1/webhooks/signing-secret/rotate", {
      key: one.account.ownKey,
      idempotencyKey: "at once",
    });
  const before = await countOf("signing_secrets");
  const answers = await Promise.all(Array.from({ length: 40 }, (_, n) => rotate(n % 2 === 0 ? one : other)));
  expect(await countOf("signing_secrets")).toBe(before + 1);
  const succeeded = answers.filter(({ status }) => status === 200);
  const fresh = succeeded.filter(({ headers }) => !headers.has("idempotent-replayed"));
  expect(fresh).toHaveLength(1);
  expect(new Set(succeeded.map(({ bytes }) => bytes.toString())).size).toBe(1);
  for (const { status, body } of answers) {
    if (status !== 200) expect([status, body.code]).toEqual([409, "idempotency_in_progress"]);
  }
});

test("an answer that is still being made is a 409 at once, and afterwards the answer", async () => {
  const holder = await database.pool.connect();
  await holder.query("begin");
  // Whoever publishes now waits for this registration to be decided.
  await holder.query(
    `insert into sealpost.analyses (account_id, id, delivery_id, digest)
     values ($1, 'slow', sealpost.uuid_v7(), '')`,
    [one.account.accountId],
  );
  const first = publishOn(one, "slow", { idempotencyKey: "slow" });
  try {
    await untilSomebodyWaits(database.pool);
    const second = await publishOn(other, "slow", { idempotencyKey: "slow" });
    expect([second.status, second.body.code]).toEqual([409, "idempotency_in_progress"]);
  } finally {
    await holder.query("rollback");
    holder.release();
  }
  expect((await first).status).toBe(202);
  const third = await publishOn(other, "slow", { idempotencyKey: "slow" });
  expect([third.status, third.bytes.toString()]).toEqual([202, (await first).bytes.toString()]);
});

test("keys are apart by account and by API key", async () => {
  const stranger = await one.newAccount();
  const colleague = await one.newKey(one.account.accountId);
  const answers = [
    await publishOn(one, "k-1", { idempotencyKey: "same" }),
    await publishOn(one, "k-2", { idempotencyKey: "same", key: colleague }),
    await publishOn(one, "k-3", { idempotencyKey: "same", key: stranger.ownKey }),
  ];
  expect(answers.map(({ status }) => status)).toEqual([202, 202, 202]);
  expect((await publishOn(one, "k-4", { idempotencyKey: "same" })).body.code).toBe("idempotency_key_reused");
});

test("a refusal leaves nothing behind, neither a row nor a claim", async () => {
  const before = [await countOf("deliveries"), await countOf("idempotency_keys")];
  const options = { idempotencyKey: "refused", body: { analysis: { id: "n", status: "?" } } };
  for (let n = 0; n < 3; n++) expect((await publishOn(one, "n", options)).status).toBe(422);
  expect([await countOf("deliveries"), await countOf("idempotency_keys")]).toEqual(before);
  expect((await publishOn(one, "n", { idempotencyKey: "refused" })).status).toBe(202);
});
