import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { filters, searchedFilters } from "../../src/log/delivery-filter-api.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows, insertRow } from "../support/installation.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const LIST = "/v1/webhooks/deliveries";
const REPLAYS = "/v1/webhooks/replays";
const HOUR_MS = 3_600_000;
const NOW = Date.now();
const agoText = (hours: number) => new Date(NOW - hours * HOUR_MS).toISOString();

type Name = keyof typeof filters;

/** A replay has begun the current run of each. */
const REPLAYS_OF: Readonly<Record<keyof Case, string>> = {
  older: "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a11",
  newer: "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a12",
};

/** Two deliveries that differ in everything, and for each filter a value that only one of them fits. */
type Case = { readonly older?: string | number; readonly newer?: string | number };
const CASES: Readonly<Record<Name, Case>> = {
  status: { older: "failed", newer: "abandoned" },
  reason: { newer: "window_ended" },
  event: { older: "analysis.succeeded", newer: "analysis.failed" },
  analysis_id: { older: "older", newer: "newer" },
  target_host: { older: "older.example.com", newer: "newer.example.com" },
  error_code: { older: "status_500", newer: "dns_not_found" },
  status_code: { older: 500, newer: 404 },
  status_code_min: { older: 405 },
  status_code_max: { newer: 499 },
  replay_id: { older: REPLAYS_OF.older, newer: REPLAYS_OF.newer },
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

/** A run that the replay has started, and an item of another delivery whose turn it has not been. */
async function noteReplay(id: string, deliveryId: string): Promise<void> {
  const { accountId } = account;
  const counts = { matched: 2, replayed: 1, rate_per_second: 1, filter: "{}" };
  const times = { created_at: new Date(), paced_at: new Date() };
  await insertRow(database.pool, "replays", {
    id,
    account_id: accountId,
    status: "running",
    ...counts,
    ...times,
  });
  const started = { delivery_id: deliveryId, outcome: "replayed", run: 2 };
  const waiting = { delivery_id: deliveryId === ids.older ? ids.newer : ids.older };
  await insertRow(database.pool, "replay_items", { replay_id: id, position: 1, ...started });
  await insertRow(database.pool, "replay_items", { replay_id: id, position: 2, ...waiting });
  await changeRows(database.pool, "deliveries", { id: deliveryId }, { run: 2 });
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
  for (const which of ["older", "newer"] as const) await noteReplay(REPLAYS_OF[which], ids[which]);
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

test("the bulk replay takes these filters, the list those that search, too, and neither others", async () => {
  const { body: document } = await api.ask("GET", "/v1/openapi.json");
  const { paths, components } = document as unknown as {
    paths: Record<string, Record<string, { parameters: readonly { name?: string; in?: string }[] }>>;
    components: { schemas: Record<string, { properties: object }> };
  };
  const parameters = paths[LIST.replace("/v1", "")]!.get!.parameters.filter((one) => one.in === "query");
  expect(parameters.map((one) => one.name)).toEqual([...Object.keys(searchedFilters), "cursor", "limit"]);
  expect(Object.keys(components.schemas.ReplayFilter!.properties)).toEqual(Object.keys(filters));
});

describe("several", () => {
  const both = () => [ids.newer, ids.older];
  const listedBy = async (search: string) => {
    const { status, body } = await api.ask("GET", `${LIST}?${search}`, account);
    return status === 200 ? (body.items as { id: string }[]).map(({ id }) => id) : body.errors;
  };

  test("statuses and reasons are one of these, in the list by repeating the parameter", async () => {
    expect(await listedBy("status=failed&status=abandoned")).toEqual(both());
    expect(await listedBy("status=abandoned&status=pending")).toEqual([ids.newer]);
    expect(await listedBy("reason=window_ended&reason=no_target")).toEqual([ids.newer]);
    expect(await listedBy("reason=no_target")).toEqual([]);
    expect(await listedBy("status=failed&reason=window_ended"), "nothing fits both").toEqual([]);
    expect(await listedBy("status=failed,abandoned")).toEqual([
      { path: "query.status", message: "Must be one of pending, failed, succeeded, abandoned." },
    ]);
  });

  test("statuses and reasons are a list for a bulk replay, or one by itself", async () => {
    expect(await counted({ status: ["failed", "abandoned"] })).toBe(2);
    expect(await counted({ status: "abandoned", reason: ["window_ended", "no_target"] })).toBe(1);
    expect(await counted({ reason: "no_target" })).toBe(0);
    for (const status of [[], ["succeeded"], "lost", ["failed", "failed", "failed"]]) {
      const answer = await api.ask("POST", REPLAYS, {
        ...account,
        body: { filter: { status }, dry_run: true },
      });
      expect(answer.body.errors).toEqual([
        { path: "body.filter.status", message: "Must be one of failed, abandoned, or a list of them." },
      ]);
    }
  });

  test("pages of what needs attention have each delivery once, the newest first", async () => {
    const first = await api.ask("GET", `${LIST}?status=failed&status=abandoned&limit=1`, account);
    expect(first.body).toMatchObject({ items: [{ id: ids.newer }], total: 2 });
    const { next_cursor } = first.body;
    expect(await listedBy(`status=failed&status=abandoned&limit=1&cursor=${next_cursor}`)).toEqual([
      ids.older,
    ]);
  });
});

test.each([
  ["dns_notfound", "There is no such code. Did you mean dns_not_found?"],
  ["TLS_EXPIRED", "There is no such code. Did you mean tls_expired?"],
  ["http_503", "There is no such code. Did you mean status_503?"],
  ["status_200", /^Must be a code of an attempt/],
  ["no_target", "no_target is a reason: filter by reason instead."],
  ["x", /^Must be a code of an attempt/],
])("the error code %s is refused, and the one that was meant is named", async (code, message) => {
  const { status, body } = await api.ask("GET", `${LIST}?error_code=${code}`, account);
  expect(status).toBe(400);
  expect(body.errors).toEqual([{ path: "query.error_code", message: expect.stringMatching(message) }]);
});

test("a time is taken in every spelling of RFC 3339, and with an offset without its colon", async () => {
  const at = new Date(NOW - 2 * HOUR_MS).toISOString();
  const spellings = [
    at.toLowerCase(),
    at.replace("Z", "+0000"),
    at.replace("Z", "-00:00"),
    at.replace("T", "t"),
  ];
  for (const created_after of spellings) {
    expect(await listed({ created_after }), created_after).toEqual([ids.newer]);
    expect(await counted({ created_after }), created_after).toBe(1);
  }
  const body = { filter: { created_after: at.toLowerCase().replace("z", "+0000") }, rate_per_second: 1 };
  const { body: replay } = await api.ask("POST", REPLAYS, { ...account, body });
  expect(replay.filter).toMatchObject({ created_after: at.replace("Z", "+00:00") });
});

test("a delivery tells which bulk replay began its run", async () => {
  const { body } = await api.ask("GET", LIST, account);
  expect((body.items as Json[]).map((one) => one.replay_id)).toEqual([REPLAYS_OF.newer, REPLAYS_OF.older]);
  await changeRows(database.pool, "deliveries", { id: ids.older }, { run: 3 });
  const { body: older } = await api.ask("GET", `${LIST}/${ids.older}`, account);
  expect(older.replay_id, "the current run is not of that replay").toBeNull();
  expect(await listed({ replay_id: REPLAYS_OF.older })).toEqual([]);
  await changeRows(database.pool, "deliveries", { id: ids.older }, { run: 2 });
});
