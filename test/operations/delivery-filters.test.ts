import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { filters } from "../../src/operations/delivery-filter.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const LIST = "/v1/webhooks/deliveries";
const REPLAYS = "/v1/webhooks/replays";
const HOUR_MS = 3_600_000;
const NOW = Date.now();
const agoText = (hours: number) => new Date(NOW - hours * HOUR_MS).toISOString();

type Name = keyof typeof filters;

/** Two deliveries that differ in everything, and for each filter a value that only one of them fits. */
type Case = { readonly older?: string | number; readonly newer?: string | number };
const CASES: Readonly<Record<Name, Case>> = {
  status: { older: "failed", newer: "abandoned" },
  event: { older: "analysis.succeeded", newer: "analysis.failed" },
  analysis_id: { older: "older", newer: "newer" },
  target_host: { older: "older.example.com", newer: "newer.example.com" },
  error_code: { older: "status_500", newer: "dns_not_found" },
  status_code: { older: 500, newer: 404 },
  created_after: { newer: agoText(2) },
  created_before: { older: agoText(2) },
};

let database: TestDatabase;
let api: TestApi;
let account: TestAccount;
const ids: Record<keyof Case, string> = { older: "", newer: "" };

async function add(analysisId: keyof Case, hoursAgo: number, event: string): Promise<void> {
  const text = JSON.stringify({ id: analysisId, status: event });
  const url = `https://${analysisId}.example.com/`;
  const at = new Date(NOW - hoursAgo * HOUR_MS);
  ids[analysisId] = (await publishAt(database.pool, account.accountId, at, [text], url))[0]!;
}

beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  account = await api.newAccount();
  await add("older", 3, "succeeded");
  await add("newer", 1, "failed");
  await database.pool.query(
    "update sealpost.deliveries set status = 'failed', last_error_code = 'status_500', last_status_code = 500 " +
      "where analysis_id = 'older'",
  );
  await database.pool.query(
    "update sealpost.deliveries set status = 'abandoned', reason = 'window_ended', " +
      "last_error_code = 'dns_not_found', last_status_code = 404 where analysis_id = 'newer'",
  );
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

async function listed(query: Record<string, string>): Promise<readonly string[]> {
  const { body } = await api.ask("GET", `${LIST}?${new URLSearchParams(query)}`, account);
  expect(body.total).toBe((body.items as Json[]).length);
  return (body.items as { id: string }[]).map(({ id }) => id);
}

async function counted(filter: Json): Promise<unknown> {
  const { body } = await api.ask("POST", REPLAYS, { ...account, body: { filter, dry_run: true } });
  return body.matched;
}

test("without a filter both are there", async () => {
  expect(await listed({})).toEqual([ids.newer, ids.older]);
  expect(await counted({})).toBe(2);
});

// By the filters that the API has, so that one without a case fails, too.
describe.each(Object.keys(filters) as Name[])("%s", (name) => {
  const cases = Object.entries(CASES[name] ?? {}) as [keyof Case, string | number][];

  test("has a case", () => {
    expect(cases.length).toBeGreaterThan(0);
  });

  test.each(cases)("lets the %s one through and leaves the other out", async (which, value) => {
    expect(await listed({ [name]: String(value) })).toEqual([ids[which]]);
    expect(await counted({ [name]: value })).toBe(1);
  });
});

test("the list and the bulk replay take these filters and no others", async () => {
  const { body: document } = await api.ask("GET", "/v1/openapi.json");
  const { paths, components } = document as unknown as {
    paths: Record<string, Record<string, { parameters: readonly { name?: string; in?: string }[] }>>;
    components: { schemas: Record<string, { properties: object }> };
  };
  const parameters = paths[LIST]!.get!.parameters.filter((one) => one.in === "query");
  expect(parameters.map((one) => one.name)).toEqual([...Object.keys(filters), "cursor", "limit"]);
  expect(Object.keys(components.schemas.ReplayFilter!.properties)).toEqual(Object.keys(filters));
});
