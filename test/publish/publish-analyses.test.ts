import { PublishRefusedError, publish } from "sealpost/publish";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAccount } from "../../src/store/accounts.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

const GOOD = '{"id":"a-42","status":"succeeded","pages":3}';

let database: TestDatabase;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createAccount(database.pool, "A", Buffer.alloc(32, 7)));
});
afterAll(() => database.drop());

describe("a pipeline in TypeScript", () => {
  test("publishes in its own transaction: what it rolls back was never there", async () => {
    const client = await database.pool.connect();
    await client.query("begin");
    const [deliveryId] = await publish(client, [{ accountId, analysis: GOOD }]);
    await client.query("rollback");
    await client.query("begin");
    const [again] = await publish(client, [{ accountId, analysis: GOOD }]);
    await client.query("commit");
    client.release();
    const { rows } = await database.pool.query("select id from sealpost.deliveries");
    expect(rows).toEqual([{ id: again }]);
    expect(again).not.toBe(deliveryId);
  });

  test.each([
    ["is not JSON", { analysis: "{" }, "invalid_analysis", "analysis at index 1: it is not JSON"],
    ["has no id of an account", { accountId: "ada" }, "unknown_account", "its account id is not a UUID"],
    ["goes to no public URL", { webhookUrl: "http://a.example" }, "target_refused", "does not begin with"],
  ])("is told which element %s", async (_what, bad, code, message) => {
    const publications = [
      { accountId, analysis: GOOD },
      { accountId, analysis: GOOD, ...bad },
    ];
    const refused = {
      name: "PublishRefusedError",
      code,
      index: 1,
      message: expect.stringContaining(message),
    };
    const publishing = publish(database.pool, publications);
    await expect(publishing).rejects.toBeInstanceOf(PublishRefusedError);
    await expect(publishing).rejects.toMatchObject(refused);
  });
});
