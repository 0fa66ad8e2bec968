import { readFileSync } from "node:fs";
import { PUBLISH_REFUSAL_CODES, PublishRefusedError, publish } from "sealpost/publish";
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
    [
      "has a member of another name",
      { webhook_url: "https://a.example.com" },
      "invalid_request",
      'it has an unknown member "webhook_url": did you mean webhookUrl?',
    ],
    [
      "has a member too many",
      { url: null },
      "invalid_request",
      "the names are accountId, analysis, webhookUrl.",
    ],
    [
      "is an object in place of its text",
      { analysis: {} as string },
      "invalid_request",
      "analysis's exact JSON text",
    ],
    [
      "names no account",
      { accountId: undefined as unknown as string },
      "invalid_request",
      "its accountId must be",
    ],
    ["goes to an object", { webhookUrl: {} as string }, "invalid_request", "its webhookUrl must be a URL"],
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

  test.each([
    [{ traceParent: "00-" }, 'no option "traceParent": did you mean traceparent?'],
    [{ index: 1 }, "the names are traceparent, unsafeAllowedTargets."],
  ])("is told of an unknown option %j", async (options, message) => {
    const publishing = publish(database.pool, [{ accountId, analysis: GOOD }], options as object);
    await expect(publishing).rejects.toThrow(TypeError);
    await expect(publishing).rejects.toThrow(message);
  });

  test("is told that one publication is no list of them", async () => {
    const publishing = publish(database.pool, { accountId, analysis: GOOD } as never);
    await expect(publishing).rejects.toThrow(TypeError);
  });
});

test("the package's README explains every code of a refusal", () => {
  const readme = readFileSync(new URL("../../src/publish/README.md", import.meta.url), "utf8");
  const explained = [...readme.matchAll(/^\| `(\w+)` \| .+ \|$/gm)].map(([, code]) => code);
  expect(explained.filter((code) => /_/.test(code ?? ""))).toEqual([...PUBLISH_REFUSAL_CODES]);
});

test("docs/publishing.md explains each with its SQLSTATE", () => {
  const document = readFileSync(new URL("../../docs/publishing.md", import.meta.url), "utf8");
  const explained = [...document.matchAll(/^\| `SP00(\d)` \| `(\w+)` \| .+ \|$/gm)];
  expect(explained.map(([, digit]) => Number(digit))).toEqual(PUBLISH_REFUSAL_CODES.map((_, at) => at + 1));
  expect(explained.map(([, , code]) => code).sort()).toEqual([...PUBLISH_REFUSAL_CODES].sort());
});
