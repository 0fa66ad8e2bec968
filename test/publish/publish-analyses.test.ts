import { PublishRefusedError, publish } from "sealpost/publish";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { begin, createTestAccount, rowsOf } from "../support/installation.ts";

const GOOD = '{"id":"a-42","status":"succeeded","pages":3}';

let database: TestDatabase;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createTestAccount(database));
});
afterAll(() => database.drop());

describe("a pipeline in TypeScript", () => {
  test("publishes in its own transaction: what it rolls back was never there", async () => {
    const first = await begin(database.pool);
    const [deliveryId] = await publish(first.client, [{ accountId, analysis: GOOD }]);
    await first.rollback();
    const second = await begin(database.pool);
    const [again] = await publish(second.client, [{ accountId, analysis: GOOD }]);
    await second.commit();
    expect(await rowsOf(database.pool, "deliveries")).toMatchObject([{ id: again }]);
    expect(again).not.toBe(deliveryId);
  });

  test.each([
    ["is not JSON", { analysis: "{" }, "invalid_analysis", "analysis at index 1: it is not JSON"],
    ["has no id of an account", { accountId: "ada" }, "unknown_account", "its account id is not a UUID"],
    [
      "goes to no public URL",
      { webhookUrl: "http://a.example.com" },
      "target_refused",
      "does not begin with",
    ],
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
