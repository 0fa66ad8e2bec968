import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAccount } from "../../../src/accounts/accounts-sql.ts";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { countRows, rowOf } from "../../support/installation.ts";

const nobody = "00000000-0000-7000-8000-000000000000";

let database: TestDatabase;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createAccount(database.pool, "A", Buffer.alloc(32, 7)));
});
afterAll(() => database.drop());

function publish(input: string | Uint8Array, options: string[] = [], env: Record<string, string> = {}) {
  const args = ["publish", "--account", accountId, ...options];
  return runSealpost(args, { input, env: { DATABASE_URL: database.url, ...env } });
}

async function usageErrorOf(...input: Parameters<typeof publish>): Promise<string> {
  const before = await countRows(database.pool, "deliveries");
  const { code, stdout, stderr } = await publish(...input);
  expect({ code, stdout }, stderr).toEqual({ code: 2, stdout: "" });
  expect(stderr).toMatch(/^[A-Z][^\n]+\.\n$/);
  expect(await countRows(database.pool, "deliveries")).toBe(before);
  return stderr;
}

describe("an analysis", () => {
  test("is stored byte for byte, and the same again is the same delivery", async () => {
    const analysis =
      '{ "id":"a-1","status":"succeeded" , "n":9007199254740993, "x":1e400, "\\u0000":"\\ud800" }\n';
    const first = await publish(analysis);
    expect(first).toMatchObject({ code: 0, stderr: "" });
    const { delivery_id, analysis_id, ...rest } = JSON.parse(first.stdout);
    expect({ analysis_id, rest }).toEqual({ analysis_id: "a-1", rest: {} });
    const { rows } = await database.pool.query(
      "select analysis::text from sealpost.bodies where delivery_id = $1",
      [delivery_id],
    );
    expect(rows[0].analysis).toBe(analysis);
    expect((await publish(analysis)).stdout).toBe(first.stdout);
  });

  test("may name where its webhook goes", async () => {
    const url = "https://hooks.example.com/a";
    const { stdout } = await publish('{"id":"a-2","status":"failed"}', ["--webhook-url", url]);
    const delivery = await rowOf(database.pool, "deliveries", { id: JSON.parse(stdout).delivery_id });
    expect(delivery).toMatchObject({ webhook_url: url, event: "analysis.failed" });
  });
});

describe("a usage error stores nothing and is one sentence:", () => {
  test.each([
    ["no JSON", "id=1"],
    ["nothing", ""],
    ["no object", "[]"],
    ["no id", '{"status":"succeeded"}'],
    ["an unknown status", '{"id":"a-3","status":"running"}'],
    ["not UTF-8", Buffer.from([0x7b, 0xff, 0x7d])],
    ["a byte order mark", `\ufeff{"id":"a-3","status":"succeeded"}`],
    ["a NUL", '{"id":"a-3","status":"succeeded"}\0'],
  ])("%s", async (_, input) => {
    await usageErrorOf(input);
  });

  test("broken JSON, by its place", async () => {
    expect(await usageErrorOf('{"id":"a-3"\n "status":1}')).toContain("line 2 column 2");
    expect(await usageErrorOf("\n")).toContain("empty");
  });

  test("an analysis over the limit", async () => {
    const input = JSON.stringify({ id: "a-4", status: "succeeded", text: "x".repeat(1_024) });
    expect(await usageErrorOf(input, [], { ANALYSIS_BYTES_MAX: "1024" })).toContain("longer than 1024 bytes");
  });

  test("another analysis under a known id", async () => {
    await publish('{"id":"a-5","status":"succeeded"}');
    expect(await usageErrorOf('{"id":"a-5","status":"failed"}')).toContain("already published");
  });

  test("a URL that webhooks may not go to", async () => {
    const input = '{"id":"a-6","status":"succeeded"}';
    expect(await usageErrorOf(input, ["--webhook-url", "https://[::ffff:10.0.0.1]/"])).toContain(
      "not public",
    );
  });

  test("an unknown account", async () => {
    const input = '{"id":"a-7","status":"succeeded"}';
    expect(await usageErrorOf(input, ["--account", nobody])).toContain(nobody);
  });
});
