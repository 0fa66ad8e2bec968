import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
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

describe("where more begin so than are read by their ids", () => {
  const many = async (count: number) => {
    const account = await api.newAccount();
    const names = Array.from({ length: count }, (_, n) => `job-${String(n).padStart(4, "0")}`);
    const ids = await publishAt(
      database.pool,
      account.accountId,
      new Date(),
      names,
      "https://h.example.com/",
    );
    const ask = async (query: string) =>
      (await api.ask("GET", `/v1/webhooks/deliveries?${query}`, { key: account.ownKey })).body as unknown as {
        items: { id: string; analysis_id: string }[];
        total: number;
      };
    return { ids, ask };
  };

  test("the newest are found, and what else is asked for holds for all of them", async () => {
    const { ids, ask } = await many(1_500);
    const { items, total } = await ask("q=job-&limit=1");
    expect([items[0]!.id, total]).toEqual([ids.toSorted().at(-1), 1_500]);
    await changeRows(database.pool, "deliveries", { id: ids.slice(1_400) }, { status: "failed" });
    expect((await ask("q=job-&status=failed")).total).toBe(100);
    expect((await ask("q=job-14&status=failed")).total).toBe(100);
  });

  test("those of one beginning of ids, a minute, are all found, within the times that are asked for", async () => {
    const { ids, ask } = await many(300);
    const begin = ids[0]!.slice(0, 8);
    const ofMinute = ids.filter((id) => id.startsWith(begin)).length;
    expect((await ask(`q=${begin}`)).total).toBe(ofMinute);
    expect((await ask(`q=${begin}&created_before=2020-01-01T00:00:00Z`)).total).toBe(0);
    expect((await ask(`q=${begin}&created_after=2020-01-01T00:00:00Z`)).total).toBe(ofMinute);
  });
});

test.each(["%00", "a%00b", "a%0ab"])("%s is refused", async (q) => {
  const { status } = await api.ask("GET", `/v1/webhooks/deliveries?q=${q}`, { key: account.ownKey });
  expect(status).toBe(400);
});
