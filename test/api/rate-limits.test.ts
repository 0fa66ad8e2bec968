import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { lockTable, withoutTable } from "../support/installation.ts";
import { ask, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const LIMIT = 50;
const AT_ONCE = 8;

let database: TestDatabase;
beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(() => database.drop());

describe("two processes beside one database", () => {
  let api: TestApi;
  let processes: SealpostProcess[];
  beforeEach(async () => {
    const env = {
      DATABASE_URL: database.url,
      RATE_LIMIT_REQUESTS: `${LIMIT}`,
    };
    [api, ...processes] = await Promise.all([
      startTestApi(database),
      startProcess("serve", env),
      startProcess("serve", env),
    ]);
    // The first request of a process opens its connections, which a busy machine may not do within the limiter's bound.
    const { key } = await api.newAccount();
    await Promise.all(processes.map((_, n) => askOne(n, key)));
  });
  afterEach(async () => {
    await api.close();
    const codes = await Promise.all(processes.map((process) => process.stop()));
    expect(codes).toEqual([0, 0]);
  });

  const askOne = (n: number, key: string | null) =>
    ask(processes[n % 2]!.url, "GET", "/v1/operations", { key });

  /** Some at a time: what waits for the limiter beyond its bound is let through uncounted, as it should be. */
  const send = async (count: number, key: string | null) => {
    const answers: Awaited<ReturnType<typeof askOne>>[] = [];
    for (let first = 0; first < count; first += AT_ONCE) {
      const length = Math.min(AT_ONCE, count - first);
      answers.push(...(await Promise.all(Array.from({ length }, (_, n) => askOne(first + n, key)))));
    }
    return answers;
  };

  test("count together, key by key", async () => {
    const answers = await send(80, api.account.ownKey);
    const allowed = answers.filter(({ status }) => status === 200);
    expect(allowed.length).toBeGreaterThanOrEqual(LIMIT);
    expect(allowed.length).toBeLessThan(1.5 * LIMIT);
    const left = allowed.map(({ headers }) => Number(/r=(\d+)/.exec(headers.get("ratelimit") ?? "")?.[1]));
    // Until half of it is used each knows its own requests, and what the other has told.
    expect(Math.min(...left)).toBeLessThan(LIMIT / 2);
    expect(Math.max(...left)).toBe(LIMIT - 1);
    for (const { status, body, headers } of answers) {
      expect(headers.get("ratelimit-policy")).toBe(`"default";q=${LIMIT};w=60`);
      if (status === 200) continue;
      expect([status, body.code]).toEqual([429, "rate_limited"]);
      const seconds = headers.get("retry-after");
      expect(headers.get("ratelimit")).toBe(`"default";r=0;t=${seconds}`);
      expect(Number(seconds)).toBeGreaterThan(Math.max(0, 60 - patience(10_000) / 1_000));
      expect(Number(seconds)).toBeLessThanOrEqual(60);
    }
    // Refused ones are refused from memory too.
    expect((await send(4, api.account.ownKey)).map(({ status }) => status)).toEqual([429, 429, 429, 429]);
    const other = (await api.newAccount()).key;
    expect((await send(2, other)).map(({ status }) => status)).toEqual([200, 200]);
  });

  test("count what comes without a key by its address, under a policy of its own", async () => {
    const answers = await send(2 * LIMIT, null);
    const admitted = answers.filter(({ status }) => status === 401).length;
    // Beyond the limit only what a process had counted by itself when the other one counted its last.
    expect(admitted).toBeGreaterThanOrEqual(LIMIT);
    expect(admitted).toBeLessThan(1.5 * LIMIT);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(2 * LIMIT - admitted);
    expect(answers[0]?.headers.get("ratelimit-policy")).toBe(`"address";q=${LIMIT};w=60`);
    expect((await send(1, api.account.ownKey))[0]?.status).toBe(200);
  });
});

describe("a limiter whose store fails", () => {
  let api: TestApi;
  beforeEach(async () => {
    api = await startTestApi(database, { RATE_LIMIT_REQUESTS: "5" });
  });
  afterEach(() => api.close());

  test("lets through what the state last known leaves, and says so in the log", async () => {
    await api.ask("GET", "/v1/operations");
    await api.ask("GET", "/v1/operations");
    await withoutTable(database.pool, "rate_limits", async () => {
      for (const [status, left] of [
        [200, 2],
        [200, 1],
        [200, 0],
        [429, 0],
        [429, 0],
      ]) {
        const { status: answered, headers } = await api.ask("GET", "/v1/operations");
        expect([answered, headers.get("ratelimit")]).toEqual([
          status,
          expect.stringMatching(`^"default";r=${left};t=\\d+$`),
        ]);
      }
      expect((await api.ask("GET", "/v1/operations", { key: null })).status).toBe(401);
      const message = "the rate limiter's store failed: a request was counted here alone";
      expect(api.log.filter(({ msg }) => msg === message)).toHaveLength(6);
    });
    expect((await api.ask("GET", "/v1/operations")).headers.get("ratelimit")).toMatch(/r=2;/);
  });

  test("is not waited for", async () => {
    const holder = await lockTable(database.pool, "rate_limits");
    const startMs = performance.now();
    expect((await api.ask("GET", "/v1/operations")).status).toBe(200);
    expect(performance.now() - startMs).toBeLessThan(patience(1_500));
    await holder.rollback();
  });
});

test("an account's many keys ask no more than ten of them might, at no statement more", async () => {
  const api = await startTestApi(database, { RATE_LIMIT_REQUESTS: "2" }, { limits: { windowSeconds: 600 } });
  const keys = await Promise.all(Array.from({ length: 12 }, () => api.newKey(api.account.accountId)));
  const counted = () => api.statements().filter((text) => text.includes("sealpost.rate_limits")).length;
  const before = counted();
  const statuses: number[] = [];
  for (const key of keys) {
    for (let n = 0; n < 2; n++) statuses.push((await api.ask("GET", "/v1/operations", { key })).status);
  }
  expect(statuses).toEqual([...Array(20).fill(200), ...Array(4).fill(429)]);
  expect(counted() - before).toBeLessThanOrEqual(statuses.length);
  expect((await api.ask("GET", "/v1/operations", await api.newAccount())).status).toBe(200);
  await api.close();
});

test("a window ends, and the next begins anew", async () => {
  const api = await startTestApi(database, { RATE_LIMIT_REQUESTS: "2" }, { limits: { windowSeconds: 1 } });
  const statuses: number[] = [];
  while (!statuses.includes(429)) statuses.push((await api.ask("GET", "/v1/operations")).status);
  while (statuses.at(-1) === 429) statuses.push((await api.ask("GET", "/v1/operations")).status);
  expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(3);
  await api.close();
});
