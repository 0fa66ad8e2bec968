import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { readingFrom } from "../../src/base/database/log-reader.ts";
import { createListDeliveries } from "../../src/log/delivery-pages-sql.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { TestAccount } from "../support/sealpost-api.ts";

const { database, api } = await openApi();
const account = await api.newAccount();

async function add(of: TestAccount, names: readonly string[], host = "hooks.example.com"): Promise<string[]> {
  return await publishAt(database.pool, of.accountId, new Date(), [...names], `https://${host}:8443/in`);
}
const find = async (q: string, more = "") =>
  (await api.ask("GET", `/v1/webhooks/deliveries?q=${encodeURIComponent(q)}${more}`, { key: account.ownKey }))
    .body as unknown as { items: { id: string; analysis_id: string }[]; total: number; next_cursor: string };
const namesOf = async (q: string, more = "") =>
  (await find(q, more)).items.map(({ analysis_id }) => analysis_id).sort();

const [first = ""] = await add(account, ["task-osprey-1", "task-osprey-2", "Task-owl", "task_1"]);
await add(account, ["elsewhere"], "staging.example.com");
await add(account, ["hooks"], "other.example.com");
await add(await api.newAccount(), ["task-osprey-of-another"]);

test.each([
  ["task-osprey", ["task-osprey-1", "task-osprey-2"]],
  ["task-osprey-1", ["task-osprey-1"]],
  ["Task", ["Task-owl"]],
  // Neither is a pattern.
  ["task_", ["task_1"]],
  ["t_sk", []],
  ["%", []],
  // An analysis, before the hosts that begin so.
  ["hooks", ["hooks"]],
  ["STAGING.ex", ["elsewhere"]],
  ["hooks.example.com", ["Task-owl", "task-osprey-1", "task-osprey-2", "task_1"]],
  // Neither its middle, nor its port.
  ["example.com", []],
  ["hooks.example.com:8443", []],
])("%s finds %j", async (q, names) => {
  expect(await namesOf(q)).toEqual(names);
});

test("a delivery is found by its id and by its first eight digits, in capitals or not", async () => {
  for (const q of [first, first.toUpperCase(), first.slice(0, 23), first.slice(0, 22)])
    expect([q, (await find(q)).items.map(({ id }) => id)]).toEqual([q, [first]]);
  expect(await namesOf(first.slice(0, 8))).toContain("task-osprey-1");
  expect(await namesOf(first.slice(0, 7))).toEqual([]);
});

test("what else is asked for holds, and pages go on", async () => {
  await changeRows(database.pool, "deliveries", { id: first }, { status: "failed" });
  expect(await namesOf("task-osprey", "&status=failed")).toEqual(["task-osprey-1"]);
  expect(await namesOf("hooks.e", "&status=failed")).toEqual(["task-osprey-1"]);
  const { items, next_cursor: next } = await find("task-osprey", "&limit=1");
  const rest = await find("task-osprey", `&limit=1&cursor=${encodeURIComponent(next)}`);
  expect([...items, ...rest.items].map(({ analysis_id }) => analysis_id).sort()).toEqual([
    "task-osprey-1",
    "task-osprey-2",
  ]);
  const wrong = await api.ask("GET", `/v1/webhooks/deliveries?q=${"a".repeat(256)}`, { key: account.ownKey });
  expect([wrong.status, JSON.stringify(wrong.body)]).toEqual([400, expect.stringContaining("query.q")]);
});

test("what a user does not see is found as little as what does not exist", async () => {
  const spaceId = randomUUID();
  const [hidden] = await add(account, ["secret-plan", "secret-plot"], "secret.example.com");
  await changeRows(database.pool, "deliveries", { id: hidden }, { space_id: spaceId });
  const list = createListDeliveries(readingFrom(database.pool), () => performance.now());
  const see = async (spaceIds: string) => {
    const page = await list({ accountId: account.accountId, spaceIds }, { q: "secret" }, null, 10);
    return page.items.map(({ analysis_id }) => analysis_id).sort();
  };
  expect(await see(`{${spaceId}}`)).toEqual(["secret-plan", "secret-plot"]);
  expect(await see(`{${randomUUID()}}`)).toEqual(["secret-plot"]);
  await changeRows(database.pool, "deliveries", { analysis_id: "secret-plot" }, { space_id: spaceId });
  expect(await see(`{${randomUUID()}}`)).toEqual([]);
});
