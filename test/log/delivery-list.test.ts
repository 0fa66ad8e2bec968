import { beforeAll, describe, expect, test } from "vitest";
import { DELIVERY_STATUSES } from "../../src/base/model/statuses.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { Json, TestAccount } from "../support/sealpost-api.ts";

const NOW = Date.now();
const MINUTE_MS = 60_000;
const path = "/v1/webhooks/deliveries";

const { database, api } = await openApi();

type Seeded = {
  readonly id: string;
  readonly analysisId: string;
  readonly atMs: number;
  readonly event: string;
  readonly status: string;
  readonly host: string;
  readonly errorCode: string | null;
  readonly statusCode: number | null;
};

const HOSTS = ["a.example.com", "b.example.com:8443", "[2001:4860::8]"];
const ERRORS = [null, "dns_not_found", "status_503"];

/** One delivery a minute before now, of every kind in turn. */
async function seed(account: TestAccount, count: number): Promise<Seeded[]> {
  const seeded: Seeded[] = [];
  for (let n = 0; n < count; n++) {
    const atMs = NOW - (n + 1) * MINUTE_MS;
    const analysisId = `s-${n}`;
    const final = n % 5 === 0 ? "failed" : "succeeded";
    const text = JSON.stringify({ id: analysisId, status: final });
    const host = HOSTS[n % 3] ?? "";
    const url = `https://${host}/x`;
    const [id = ""] = await publishAt(database.pool, account.accountId, new Date(atMs), [text], url);
    const status = DELIVERY_STATUSES[n % DELIVERY_STATUSES.length] ?? "pending";
    const errorCode = ERRORS[n % 3] ?? null;
    const statusCode = errorCode === "status_503" ? 503 : null;
    const reason = status === "abandoned" ? "attempts_exhausted" : null;
    const last = { last_error_code: errorCode, last_status_code: statusCode };
    await changeRows(database.pool, "deliveries", { id }, { status, reason, ...last });
    seeded.push({ id, analysisId, atMs, event: `analysis.${final}`, status, host, errorCode, statusCode });
  }
  return seeded;
}

const ids = (body: Json): string[] => (body.items as { id: string }[]).map(({ id }) => id);

describe("filters", () => {
  let all: readonly Seeded[];
  let key: string;
  beforeAll(async () => {
    const account = await api.newAccount();
    key = account.ownKey;
    all = await seed(account, 60);
    // A neighbour whose deliveries fit every filter.
    await seed(await api.newAccount(), 12);
  });

  const at = (minutes: number) => new Date(NOW - minutes * MINUTE_MS).toISOString();
  const cases: readonly [string, string, (one: Seeded) => boolean][] = [
    ["none", "", () => true],
    ...DELIVERY_STATUSES.map((status): [string, string, (one: Seeded) => boolean] => [
      `status ${status}`,
      `status=${status}`,
      (one) => one.status === status,
    ]),
    ["event", "event=analysis.failed", (one) => one.event === "analysis.failed"],
    ["analysis_id", "analysis_id=s-17", (one) => one.analysisId === "s-17"],
    ["an unknown analysis_id", "analysis_id=none", () => false],
    ["target_host", "target_host=a.example.com", (one) => one.host === "a.example.com"],
    ["target_host without its port", "target_host=B.Example.com", (one) => one.host === "b.example.com:8443"],
    ["target_host of IPv6", "target_host=2001:4860::8", (one) => one.host.startsWith("[")],
    ["target_host of IPv6 in brackets", "target_host=[2001:4860::8]", (one) => one.host.startsWith("[")],
    ["error_code", "error_code=dns_not_found", (one) => one.errorCode === "dns_not_found"],
    ["status_code", "status_code=503", (one) => one.statusCode === 503],
    ["created_after", `created_after=${at(20)}`, (one) => one.atMs >= NOW - 20 * MINUTE_MS],
    ["created_before", `created_before=${at(20)}`, (one) => one.atMs < NOW - 20 * MINUTE_MS],
    [
      "both, and another way to write a time",
      `created_after=${at(30).replace("Z", "%2B00:00")}&created_before=${at(10)}`,
      (one) => one.atMs >= NOW - 30 * MINUTE_MS && one.atMs < NOW - 10 * MINUTE_MS,
    ],
    ["times from long ago and far ahead", "created_after=0001-01-01T00:00:00Z", () => true],
    ["a time far ahead", "created_after=9999-12-31T23:59:59Z", () => false],
    [
      "several",
      "status=abandoned&target_host=a.example.com&event=analysis.succeeded",
      (one) =>
        one.status === "abandoned" && one.host === "a.example.com" && one.event === "analysis.succeeded",
    ],
  ];

  test.each(cases)("%s", async (_, query, fits) => {
    const { status, body, headers } = await api.ask("GET", `${path}?limit=100&${query}`, { key });
    expect(status).toBe(200);
    const expected = all.filter(fits).map(({ id }) => id);
    expect(ids(body)).toEqual(expected);
    expect(body).toMatchObject({ next_cursor: null, total: expected.length });
    expect(headers.get("total-capped")).toBeNull();
  });

  test.each(cases)("%s, page by page", async (_, query, fits) => {
    const found: string[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const { body } = await api.ask("GET", `${path}?limit=7&${query}${cursor && `&cursor=${cursor}`}`, {
        key,
      });
      found.push(...ids(body));
      cursor = body.next_cursor as string | null;
    }
    expect(found).toEqual(all.filter(fits).map(({ id }) => id));
  });

  test.each([
    "limit=0",
    "limit=101",
    "limit=1.5",
    "limit=",
    "status=lost",
    "event=analysis.failed&event=analysis.failed",
    "status=failed&status=lost",
    "reason=lost",
    "status_code_min=99",
    "status_code_max=1000",
    "replay_id=x",
    "event=analysis.started",
    "analysis_id=a%2Fb",
    "analysis_id=%00",
    "target_host=a%20b",
    "target_host=a.example.com:8443",
    "target_host=[2001:4860::8]:8443",
    "error_code=A",
    "status_code=99",
    "created_after=yesterday",
    "created_after=2026-01-01",
    "cursor=x",
    `cursor=${"x".repeat(2049)}`,
    "colour=red",
  ])("%s is refused, never bent", async (query) => {
    const { status, body } = await api.ask("GET", `${path}?${query}`, { key });
    expect([status, body.code]).toEqual([400, "invalid_request"]);
    expect(body.errors).toMatchObject([{ path: `query.${query.split("=", 1)[0]}` }]);
  });

  test("a cursor is of one list, one account and one set of filters", async () => {
    const { body } = await api.ask("GET", `${path}?limit=5`, { key });
    const cursor = body.next_cursor;
    expect((await api.ask("GET", `${path}?limit=9&cursor=${cursor}`, { key })).status).toBe(200);
    for (const other of [`${path}?status=failed&cursor=${cursor}`, `/v1/webhooks/replays?cursor=${cursor}`]) {
      expect((await api.ask("GET", other, { key })).status).toBe(400);
    }
    expect((await api.ask("GET", `${path}?cursor=${cursor}`)).status).toBe(400);
  });
});

test("pages stay as they are while deliveries are added", async () => {
  const account = await api.newAccount();
  const before = await seed(account, 23);
  const found: string[] = [];
  let cursor: string | null = "";
  for (let n = 0; cursor !== null; n++) {
    const { body } = await api.ask("GET", `${path}?limit=5${cursor && `&cursor=${cursor}`}`, account);
    found.push(...ids(body));
    cursor = body.next_cursor as string | null;
    await publishAt(database.pool, account.accountId, new Date(), [`new-${n}`]);
  }
  expect(found).toEqual(before.map(({ id }) => id));
});

describe("a long log", () => {
  let account: TestAccount;
  beforeAll(async () => {
    account = await api.newAccount();
    await database.pool.query(
      `insert into sealpost.deliveries (id, account_id, event, status, analysis_id, webhook_url)
       select sealpost.uuid_v7(now() - n * interval '1 second'), $1, 'analysis.succeeded', 'succeeded', 'l-' || n,
         case when n = 10500 then 'https://rare.example.com/' else 'https://often.example.com/' end
       from generate_series(1, 10500) as n`,
      [account.accountId],
    );
  });

  test("is counted up to 10,000", async () => {
    const { body, headers } = await api.ask("GET", `${path}?limit=1`, account);
    expect([body.total, headers.get("total-capped")]).toEqual([10_000, "true"]);
  });

  test("shows what is rare at the end of a few pages, however few fit", async () => {
    const found: string[] = [];
    let pages = 0;
    let cursor: string | null = "";
    while (cursor !== null) {
      const query = `limit=2&target_host=rare.example.com${cursor && `&cursor=${cursor}`}`;
      const { body } = await api.ask("GET", `${path}?${query}`, account);
      found.push(...(body.items as { analysis_id: string }[]).map((item) => item.analysis_id));
      cursor = body.next_cursor as string | null;
      pages++;
    }
    expect([found, pages]).toEqual([["l-10500"], 2]);
  });
});
