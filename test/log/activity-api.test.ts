import { beforeEach, expect, test } from "vitest";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { countActivity } from "../../src/log/activity-sql.ts";
import { type EndedAttempt, endedAttempt, insertAttempts } from "../support/attempt-rows.ts";
import { changeRows, insertRow, rowsOf } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { TestAccount } from "../support/sealpost-api.ts";

const path = "/v1/webhooks/activity";
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

const { database, api } = await openApi();
let account: TestAccount;
beforeEach(async () => {
  account = await api.newAccount();
});

const iso = (ms: number) => new Date(ms).toISOString();
const ask = async (query: Record<string, string>) =>
  await api.ask("GET", `${path}?${new URLSearchParams(query)}`, { key: account.ownKey });

/** In the activity as a leader would have counted them. */
async function count(attempts: readonly (Partial<EndedAttempt> & { agoMs: number })[]) {
  const rows = attempts.map(({ agoMs, ...more }) =>
    endedAttempt(new Date(Date.now() - agoMs), { accountId: account.accountId, ...more }),
  );
  await insertAttempts(database.pool, rows);
  await changeRows(database.pool, "activity_state", {}, { counted_to: new Date(Date.now() - MINUTE_MS) });
  while ((await countActivity(database.pool, 15_000)).isBehind);
}

test("every bucket that is counted has an item, with those in which nothing ended, and no other has", async () => {
  await count([
    { agoMs: 26 * HOUR_MS },
    { agoMs: 90 * MINUTE_MS },
    { agoMs: 91 * MINUTE_MS, outcome: "rejected", errorCode: "status_503" },
  ]);
  const { status, body } = await ask({ from: iso(Date.now() - 3 * HOUR_MS) });
  expect(status).toBe(200);
  const items = body.items as { at: string; succeeded: number; failed: number }[];
  const starts = items.map(({ at }) => Date.parse(at));
  expect(starts).toEqual(starts.map((_, n) => starts[0]! + n * HOUR_MS));
  expect(starts.every((ms) => ms % HOUR_MS === 0)).toBe(true);
  expect(starts[0]).toBeLessThanOrEqual(Date.now() - 3 * HOUR_MS);
  expect(starts.at(-1)).toBeLessThan(Date.parse(String(body.counted_to)));
  const sum = (name: "succeeded" | "failed") => items.reduce((all, item) => all + item[name], 0);
  expect([sum("succeeded"), sum("failed")]).toEqual([1, 1]);
  await changeRows(database.pool, "activity_state", {}, { counted_to: new Date(Date.now() - 2 * HOUR_MS) });
  const behind = (await ask({ from: iso(Date.now() - 3 * HOUR_MS), bucket: "5m" })).body;
  expect((behind.items as []).length).toBeLessThanOrEqual(13);
  expect(Date.parse(String(behind.counted_to))).toBeLessThan(Date.now() - HOUR_MS);
});

test("what failed is there with its host's last success and the first failure since", async () => {
  const refused = { outcome: "unreachable", errorCode: "connect_refused" } as const;
  const elsewhere = { targetUrl: "https://other.example.com/" };
  const now = Date.now();
  await count([
    ...[10, 20, 30].map((minutes) => ({ agoMs: minutes * MINUTE_MS, ...refused })),
    { agoMs: 50 * MINUTE_MS },
    { agoMs: 60 * MINUTE_MS, ...refused },
    { agoMs: 70 * MINUTE_MS, outcome: "rejected", errorCode: "status_503", ...elsewhere },
    { agoMs: 5 * MINUTE_MS, ...elsewhere },
  ]);
  const { body } = await ask({});
  const near = (at: unknown, agoMs: number) =>
    expect(Math.abs(Date.parse(String(at)) - (now - agoMs))).toBeLessThan(MINUTE_MS);
  const [first, second, ...others] = body.top as Record<string, unknown>[];
  expect(first).toMatchObject({
    target_host: "hooks.example.com",
    error_code: "connect_refused",
    attempts: 4,
  });
  near(first!.last_at, 10 * MINUTE_MS);
  near(first!.last_success_at, 50 * MINUTE_MS);
  near(first!.failing_since, 30 * MINUTE_MS);
  expect(second).toMatchObject({ target_host: "other.example.com", attempts: 1, failing_since: null });
  expect(others).toEqual([]);
});

test("shows an account its own and nobody else's", async () => {
  const other = await api.newAccount();
  await count([{ agoMs: HOUR_MS, accountId: other.accountId, outcome: "rejected", errorCode: "status_500" }]);
  const { body } = await ask({ bucket: "5m" });
  expect(body.top).toEqual([]);
  expect((body.items as { failed: number }[]).every(({ failed }) => failed === 0)).toBe(true);
  const theirs = await api.ask("GET", path, { key: other.ownKey });
  expect(theirs.body.top).toHaveLength(1);
});

test("takes a scope", async () => {
  const key = await api.newKey(account.accountId, ["webhooks:write"]);
  expect((await api.ask("GET", path, { key })).status).toBe(403);
});

test("answers the longest ranges that it keeps, by 288 items at most", async () => {
  for (const [bucket, ms, atLeast] of [
    ["5m", DAY_MS, 287],
    ["1h", 12 * DAY_MS, 287],
    ["1d", 30 * DAY_MS, 30],
  ] as const) {
    await changeRows(database.pool, "activity_state", {}, { counted_to: new Date() });
    const { status, body } = await ask({ bucket, from: iso(Date.now() - ms) });
    expect(status, bucket).toBe(200);
    const { length } = body.items as [];
    expect(length).toBeGreaterThanOrEqual(atLeast);
    expect(length).toBeLessThanOrEqual(288);
  }
});

test.each([
  ["ends before it begins", { from: iso(Date.now()), to: iso(Date.now() - HOUR_MS) }, "query.from", "before"],
  [
    "begins in the future",
    { from: iso(Date.now() + HOUR_MS), to: iso(Date.now() + DAY_MS) },
    "query.from",
    "future",
  ],
  ["begins in the future, by its end", { to: iso(Date.now() + 30 * DAY_MS) }, "query.to", "future"],
  [
    "is older than what is kept",
    { from: iso(Date.now() - 33 * DAY_MS), bucket: "1d" },
    "query.from",
    "30 days",
  ],
  [
    "has no five minutes any more",
    { from: iso(Date.now() - 49 * HOUR_MS), to: iso(Date.now() - 48 * HOUR_MS), bucket: "5m" },
    "query.from",
    "bucket=1h",
  ],
  ["has too many items", { from: iso(Date.now() - 20 * DAY_MS) }, "query.bucket", "at most 288"],
  [
    "is for ever",
    { from: iso(Date.now() - HOUR_MS), to: "9999-12-31T00:00:00Z", bucket: "1d" },
    "query.bucket",
    "288",
  ],
  ["is no moment", { from: "yesterday" }, "query.from", ""],
  ["has another bucket", { bucket: "1w" }, "query.bucket", "1d"],
  ["asks for more", { limit: "5" }, "query.limit", "Unknown"],
] as const)("refuses a range that %s", async (_, query, at, says) => {
  const { status, body } = await ask(query as Record<string, string>);
  expect(status).toBe(400);
  const [error] = body.errors as { path: string; message: string }[];
  expect(error!.path).toBe(at);
  expect(error!.message).toContain(says);
});

test("an endpoint's health is its host's: since when it fails, what arrived, how long responses take", async () => {
  const health = "/v1/webhooks/endpoint/health";
  const ask = () => api.ask("GET", health, { key: account.ownKey });
  expect((await ask()).status).toBe(404);
  await setEndpoint(database.pool, account.accountId, "https://Hooks.example.com:8443/in");
  const silent = {
    last_success_at: null,
    failing_since: null,
    succeeded: 0,
    failed: 0,
    response_time_ms: null,
  };
  expect((await ask()).body).toMatchObject(silent);
  const here = { targetUrl: "https://hooks.example.com:8443/in" };
  const refused = { outcome: "unreachable", errorCode: "connect_refused", ...here } as const;
  const now = Date.now();
  await count([
    ...[10, 20, 30].map((minutes) => ({ agoMs: minutes * MINUTE_MS, ...refused })),
    { agoMs: 50 * MINUTE_MS, ...here },
    { agoMs: 60 * MINUTE_MS, ...refused },
    { agoMs: 5 * MINUTE_MS, targetUrl: "https://other.example.com/" },
    { agoMs: 30 * HOUR_MS, ...here },
  ]);
  const { body } = await ask();
  expect(body).toMatchObject({ succeeded: 1, failed: 4 });
  expect(Math.abs(Date.parse(String(body.last_success_at)) - (now - 50 * MINUTE_MS))).toBeLessThan(MINUTE_MS);
  expect(Math.abs(Date.parse(String(body.failing_since)) - (now - 30 * MINUTE_MS))).toBeLessThan(MINUTE_MS);
});

test("of what still fails it says who answered, if that was not the application", async () => {
  const missing = { outcome: "rejected", errorCode: "status_404" } as const;
  await count([
    { agoMs: 10 * MINUTE_MS, ...missing },
    { agoMs: 20 * MINUTE_MS, ...missing },
    { agoMs: 15 * MINUTE_MS, targetUrl: "https://own.example.com/", ...missing },
  ]);
  const where = { account_id: account.accountId, target_url: "https://hooks.example.com/in" };
  const answer = {
    status_code: 404,
    response_headers: { "ngrok-error-code": "ERR_NGROK_3200" },
    response_excerpt: "offline",
  };
  await changeRows(database.pool, "attempts", where, answer);
  for (const { delivery_id: id } of await rowsOf(database.pool, "attempts", {
    account_id: account.accountId,
  }))
    await insertRow(database.pool, "deliveries", {
      ...{ id, account_id: account.accountId, analysis_id: id, event: "analysis.failed" },
      ...{ status: "failed", attempts_count: 1 },
    });
  const { top } = (await ask({})).body as { top: Record<string, unknown>[] };
  expect(top).toEqual([
    expect.objectContaining({
      target_host: "hooks.example.com",
      answered_by: expect.objectContaining({ kind: "tunnel", name: "ngrok" }),
    }),
    expect.objectContaining({ target_host: "own.example.com", answered_by: null }),
  ]);
});
