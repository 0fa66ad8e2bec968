import { beforeEach, describe, expect, it } from "vitest";
import { readingFrom } from "../../src/base/database/log-reader.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { findDelivery } from "../../src/log/deliveries-sql.ts";
import { createListDeliveries, type ListDeliveries } from "../../src/log/delivery-pages-sql.ts";
import { ATTEMPTS_SHOWN_MAX } from "../../src/log/delivery-schema.ts";
import { failAgain } from "../support/delivery-rows.ts";
import { changeRows, insertAccount, publish } from "../support/installation.ts";
import { openLogPool } from "../support/log-pool.ts";
import { openDatabase } from "../support/open.ts";

const database = await openDatabase();
let accountId: string;
let serial = 0;

beforeEach(async () => {
  accountId = await insertAccount(database.pool);
});

/** Without a target a delivery is abandoned at once. */
async function abandoned(): Promise<string> {
  return await publish(database.pool, accountId, `{"id":"r-${++serial}","status":"succeeded"}`);
}

describe("a delivery with its attempts", () => {
  it.each([-1, 0, 1, 900])("has the newest 100 of 100%+i, oldest first", async (more) => {
    const id = await abandoned();
    const count = ATTEMPTS_SHOWN_MAX + more;
    await failAgain(database.pool, accountId, id, count);
    const found = (await findDelivery(database.pool, wholeAccount(accountId), id))!;
    expect(found.delivery.attempts_count).toBe(count);
    const leftOut = Math.max(0, more);
    expect(found.attempts.map(({ run, number }) => (run - 1) * 8 + number)).toEqual(
      Array.from({ length: count - leftOut }, (_, n) => leftOut + 1 + n),
    );
  });

  it("reads no more of them than it has, however many there are", async () => {
    const id = await abandoned();
    await failAgain(database.pool, accountId, id, 10_000);
    const seen: { text: string; values: unknown[] }[] = [];
    const pool = openLogPool(database.url, { connectionsMax: 1 });
    const spy = {
      query: async (query: (typeof seen)[number]) => {
        seen.push(query);
        return await pool.query(query);
      },
    };
    await findDelivery(spy as unknown as typeof pool, wholeAccount(accountId), id);
    const { text, values } = seen[0]!;
    const { rows } = await pool.query(`explain (analyze, format json) ${text}`, values);
    await pool.end();
    const read = [...JSON.stringify(rows).matchAll(/"Actual Rows":(\d+)/g)].map(([, count]) => Number(count));
    expect(Math.max(...read)).toBeLessThanOrEqual(ATTEMPTS_SHOWN_MAX);
  });
});

describe("the log's list", () => {
  let listDeliveries: ListDeliveries;
  beforeEach(() => {
    listDeliveries = createListDeliveries(readingFrom(database.pool), () => performance.now());
  });

  it("pages without a row twice or one missed while rows are added", async () => {
    const ids: string[] = [];
    for (let i = 0; i < 7; i++) ids.push(await abandoned());
    const newestFirst = [...ids].sort().reverse();
    const first = await listDeliveries(wholeAccount(accountId), {}, null, 3);
    expect(first.total).toBe(7);
    await abandoned();
    const second = await listDeliveries(wholeAccount(accountId), {}, first.next, 3);
    const third = await listDeliveries(wholeAccount(accountId), {}, second.next, 3);
    const seen = [first, second, third].flatMap((page) => page.items.map(({ id }) => id));
    expect(seen).toEqual(newestFirst);
    expect(third.next).toBeNull();
  });

  it.each([
    ["status", { status: ["abandoned"] }, 1],
    ["another status", { status: ["failed"] }, 0],
    ["all that needs attention", { status: ["failed", "abandoned"] }, 1],
    ["statuses of which one has no index", { status: ["pending", "abandoned"] }, 2],
    ["every status", { status: ["pending", "failed", "succeeded", "abandoned"] }, 2],
    ["reason", { reason: ["no_target", "window_ended"] }, 1],
    ["another reason", { reason: ["window_ended"] }, 0],
    ["a reason that the status rules out", { status: ["failed"], reason: ["no_target"] }, 0],
    ["a status without an index", { status: ["succeeded"] }, 0],
    ["event", { event: "analysis.failed" }, 1],
    ["analysis_id", { analysis_id: "the-one" }, 1],
    ["another analysis_id", { analysis_id: "the-other" }, 0],
    ["target host", { target_host: "hooks.example.com" }, 1],
    ["another host", { target_host: "example.com" }, 0],
    ["created after", { created_after: "2020-01-01T00:00:00Z" }, 2],
    ["created before", { created_before: "2020-01-01T00:00:00Z" }, 0],
    ["error code", { error_code: "status_500" }, 1],
    ["status code", { status_code: 500 }, 1],
    ["status codes from", { status_code_min: 500 }, 1],
    ["status codes from, above", { status_code_min: 501 }, 0],
    ["status codes to", { status_code_max: 500 }, 1],
    ["status codes to, below", { status_code_max: 499 }, 0],
    ["a replay that there is not", { replay_id: "01900000-0000-7000-8000-000000000000" }, 0],
  ] as const)("filters by %s", async (_, filter, expected) => {
    await publish(
      database.pool,
      accountId,
      '{"id":"the-one","status":"succeeded"}',
      "https://HOOKS.example.com:8443/x?y",
    );
    const second = await publish(database.pool, accountId, '{"id":"second","status":"failed"}');
    const last = { last_error_code: "status_500", last_status_code: 500 };
    await changeRows(database.pool, "deliveries", { id: second }, last);
    const page = await listDeliveries(wholeAccount(accountId), filter, null, 50);
    expect(page.items).toHaveLength(expected);
    expect(page.total).toBe(expected);
  });
});
