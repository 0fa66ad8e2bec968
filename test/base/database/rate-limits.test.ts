import type { Pool } from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { deleteOldRows } from "../../../src/base/database/old-rows.ts";
import { createApiPool } from "../../../src/base/database/pools.ts";
import { createRequestCounter } from "../../../src/base/database/rate-limits.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { withoutTable } from "../../support/installation.ts";

const POLICY = { requestsMax: 5, windowSeconds: 600 };

let database: TestDatabase;
let pool: Pool;
let statements = 0;
let buckets = 0;
let bucket: string;
beforeAll(async () => {
  database = await createTestDatabase();
  pool = createApiPool({
    databaseUrl: database.url,
    connectionsMax: 8,
    applicationName: "test rate limits",
    onError: () => undefined,
    onQuery: () => statements++,
  });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});
beforeEach(() => {
  bucket = `bucket-${buckets++}`;
  statements = 0;
});

const atOnce = async (
  count: ReturnType<typeof createRequestCounter>,
  requests: number,
): Promise<number[]> => {
  const counted = await Promise.all(Array.from({ length: requests }, () => count(bucket, POLICY)));
  return counted.map((one) => one.requests);
};

describe("requests of one bucket that come at once", () => {
  it("are counted by one statement, and each has a number of its own", async () => {
    const count = createRequestCounter(pool);
    expect(await atOnce(count, 3)).toEqual([1, 2, 3]);
    expect(statements).toBe(1);
    expect(await atOnce(count, 1)).toEqual([4]);
    expect(statements).toBe(2);
  });

  it("are allowed as far as the limit goes, and the others are not", async () => {
    const count = createRequestCounter(pool);
    expect(await atOnce(count, 4)).toEqual([1, 2, 3, 4]);
    expect(await atOnce(count, 3)).toEqual([5, 6, 7]);
  });

  it("are all refused, and nothing is written, once the limit is passed", async () => {
    const count = createRequestCounter(pool);
    await atOnce(count, 6);
    statements = 0;
    const refused = await atOnce(count, 4);
    expect(Math.min(...refused)).toBeGreaterThan(POLICY.requestsMax);
    expect(statements).toBe(0);
  });

  it("are counted with those of other processes", async () => {
    const [here, there] = [createRequestCounter(pool), createRequestCounter(pool)];
    const counted = await Promise.all([atOnce(here, 2), atOnce(there, 2)]);
    expect(counted.flat().sort()).toEqual([1, 2, 3, 4]);
    expect(statements).toBe(2);
  });
});

it("buckets are counted apart, all of one turn by one statement", async () => {
  const count = createRequestCounter(pool);
  const other = count(`${bucket}-other`, POLICY);
  expect(await atOnce(count, 2)).toEqual([1, 2]);
  expect((await other).requests).toBe(1);
  expect(statements).toBe(1);
});

it("one bucket beyond its limit refuses none of the others", async () => {
  const count = createRequestCounter(pool);
  await atOnce(count, 6);
  const others = Promise.all([count(`${bucket}-a`, POLICY), count(`${bucket}-b`, POLICY)]);
  expect(Math.min(...(await atOnce(count, 2)))).toBeGreaterThan(POLICY.requestsMax);
  expect((await others).map(({ requests }) => requests)).toEqual([1, 1]);
});

it("processes that count the same buckets in different orders do not wait for each other", async () => {
  const [here, there] = [createRequestCounter(pool), createRequestCounter(pool)];
  const buckets = Array.from({ length: 50 }, (_, n) => `${bucket}-${n}`);
  const policy = { ...POLICY, requestsMax: 19 };
  const countAll = (count: typeof here, order: readonly string[]) =>
    Promise.all(order.map(async (one) => (await count(one, policy)).requests));
  for (let round = 1; round <= 9; round++) {
    const counted = await Promise.all([countAll(here, buckets), countAll(there, buckets.toReversed())]);
    expect(Math.min(...counted.flat())).toBe(2 * round - 1);
  }
  expect(statements).toBe(18);
});

describe("a limit of which less than half is used", () => {
  const storedPoints = async () => {
    const { rows } = await pool.query("select points from sealpost.rate_limits where key = $1", [bucket]);
    return rows[0].points as number;
  };

  it("costs a statement when its window begins, and one now and then", async () => {
    const count = createRequestCounter(pool);
    const policy = { requestsMax: 1_000, windowSeconds: 600 };
    for (let n = 1; n <= 500; n++) expect((await count(bucket, policy)).requests).toBe(n);
    expect(statements).toBe(1);
    expect((await count(bucket, policy)).requests).toBe(501);
    expect(statements).toBe(2);
    expect(await storedPoints()).toBe(501);
  });

  it("is told to the others all the same", async () => {
    const count = createRequestCounter(pool);
    const policy = { requestsMax: 1_000_000, windowSeconds: 600 };
    let counted = 0;
    const countAndRead = async () => {
      for (let n = 0; n < 10; n++) counted = (await count(bucket, policy)).requests;
      return await storedPoints();
    };
    await expect.poll(countAndRead, { timeout: 5_000 }).toBeGreaterThan(20);
    expect(await storedPoints()).toBeLessThanOrEqual(counted);
    expect((await createRequestCounter(pool)(bucket, policy)).requests).toBeGreaterThan(20);
  });

  it("passes by less than half of it what another process has not told yet", async () => {
    const [here, there] = [createRequestCounter(pool), createRequestCounter(pool)];
    const policy = { requestsMax: 100, windowSeconds: 600 };
    for (let n = 0; n < 50; n++) await here(bucket, policy);
    let allowed = 50;
    while ((await there(bucket, policy)).requests <= 100) allowed++;
    expect(allowed).toBeGreaterThanOrEqual(100);
    expect(allowed).toBeLessThan(150);
    expect((await here(bucket, policy)).requests).toBeGreaterThan(100);
  });

  it("goes on while the database is away, and forgets nothing", async () => {
    const count = createRequestCounter(pool);
    const policy = { requestsMax: 100, windowSeconds: 600 };
    await count(bucket, policy);
    await withoutTable(database.pool, "rate_limits", async () => {
      for (let n = 2; n <= 50; n++) expect((await count(bucket, policy)).requests).toBe(n);
      await expect(count(bucket, policy)).rejects.toThrow("rate_limits");
    });
    expect((await count(bucket, policy)).requests).toBe(51);
  });
});

it("a window ends, and the next one begins at nothing", async () => {
  const count = createRequestCounter(pool);
  expect(await atOnce(count, 3)).toEqual([1, 2, 3]);
  await pool.query("update sealpost.rate_limits set expire = 0 where key = $1", [bucket]);
  const { requests, resetMs } = await count(bucket, POLICY);
  expect(requests).toBe(1);
  expect(resetMs).toBeGreaterThan((POLICY.windowSeconds - 60) * 1_000);
});

it.each([-700_000, 700_000])(
  "a clock that is %i ms wrong makes no window longer or shorter",
  async (wrongMs) => {
    const count = createRequestCounter(pool);
    const now = vi
      .spyOn(Date, "now")
      .mockImplementation(() => performance.timeOrigin + performance.now() + wrongMs);
    const { resetMs } = await count(bucket, POLICY);
    now.mockRestore();
    expect(resetMs).toBeGreaterThan((POLICY.windowSeconds - 60) * 1_000);
    expect(resetMs).toBeLessThanOrEqual(POLICY.windowSeconds * 1_000);
  },
);

it("a bucket whose name is too long is counted, and so are the others", async () => {
  const count = createRequestCounter(pool);
  const long = count(bucket.padEnd(300, "x"), POLICY);
  expect(await atOnce(count, 2)).toEqual([1, 2]);
  expect((await long).requests).toBe(1);
});

it("a counter that cannot be reached says so to all", async () => {
  const ended = createApiPool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test rate limits",
    onError: () => undefined,
  });
  await ended.end();
  const count = createRequestCounter(ended);
  const settled = await Promise.allSettled([count(bucket, POLICY), count(bucket, POLICY)]);
  expect(settled.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
});

describe("counts of windows that ended an hour ago", () => {
  const HOUR_MS = 3_600_000;
  const endAt = (key: string, beforeMs: number) =>
    pool.query(
      `update sealpost.rate_limits set expire = (extract(epoch from now()) * 1000)::bigint - $2::bigint where key = $1`,
      [key, beforeMs],
    );
  const isKept = async (key: string) =>
    (await pool.query("select from sealpost.rate_limits where key = $1", [key])).rowCount === 1;

  it("are deleted, so many at a time, and no others", async () => {
    const count = createRequestCounter(pool);
    const keys = ["old", "older", "fresh"].map((name) => `${bucket}-${name}`);
    const [old = "", older = "", fresh = ""] = keys;
    await Promise.all(keys.map((key) => count(key, POLICY)));
    await endAt(old, HOUR_MS + 60_000);
    await endAt(older, 2 * HOUR_MS);
    await endAt(fresh, HOUR_MS - 60_000);
    const deleted: number[] = [];
    do deleted.push(await deleteOldRows(pool, "rate_limits", HOUR_MS, 1));
    while (deleted.at(-1) !== 0);
    expect(deleted).toEqual([1, 1, 0]);
    expect(await Promise.all(keys.map(isKept))).toEqual([false, false, true]);
  });

  it("are deleted by no process's own clock", async () => {
    vi.useFakeTimers({ toFake: ["Date", "setTimeout"], now: Date.now() + 100 * HOUR_MS });
    const query = vi.spyOn(pool, "query");
    await createRequestCounter(pool)(bucket, POLICY);
    expect(query).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(HOUR_MS);
    vi.useRealTimers();
    await new Promise(setImmediate);
    expect(query).toHaveBeenCalledTimes(1);
    query.mockRestore();
  });

  it("are left where they are being counted again: nobody waits", async () => {
    const count = createRequestCounter(pool);
    await count(bucket, POLICY);
    await endAt(bucket, 2 * HOUR_MS);
    const client = await pool.connect();
    await client.query("begin");
    await client.query("update sealpost.rate_limits set points = points + 1 where key = $1", [bucket]);
    expect(await deleteOldRows(pool, "rate_limits", HOUR_MS, 1_000)).toBe(0);
    await client.query("commit");
    client.release();
    expect(await isKept(bucket)).toBe(true);
  });
});
