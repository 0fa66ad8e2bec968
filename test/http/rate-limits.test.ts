import { parseItem } from "structured-headers";
import { afterEach, describe, expect, test } from "vitest";
import { trustedProxies } from "../../src/app/api-server.ts";
import { REFUSED_BODY_BYTES_MAX, REFUSED_EVERY_MS, REFUSED_WITHIN_MS } from "../../src/http/limits.ts";
import { addressBucket, createRateLimits } from "../../src/http/rate-limits.ts";
import {
  ADA,
  ALL_SCOPES,
  BOB,
  createToyApi,
  type ToyApi,
  type ToyOverrides,
} from "../support/api-toy-server.ts";
import { openRaw, rawHead } from "../support/raw-http.ts";
import { patience } from "../support/time-limits.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(overrides: ToyOverrides = {}): Promise<{ authorization: string }> {
  api = await createToyApi(overrides);
  await api.listen();
  return { authorization: `Bearer ${api.key}` };
}

const get = (path: string, headers: Record<string, string>): Promise<Response> =>
  fetch(`http://127.0.0.1:${api.port()}${path}`, { headers });

describe("RateLimit", () => {
  test("and its policy are structured headers, on success and error alike", async () => {
    const auth = await start();
    for (const [path, left] of [
      ["/v1/boxes", 599],
      ["/v1/nothing", 598],
      ["/v1/boxes/none", 597],
    ] as const) {
      const { headers } = await get(path, auth);
      expect(parseItem(headers.get("ratelimit") ?? "")).toEqual([
        "default",
        new Map([
          ["r", left],
          ["t", 60],
        ]),
      ]);
      expect(parseItem(headers.get("ratelimit-policy") ?? "")).toEqual([
        "default",
        new Map([
          ["q", 600],
          ["w", 60],
        ]),
      ]);
    }
    const { headers } = await get("/v1/boxes", {});
    expect(headers.get("ratelimit")).toBe('"address";r=59;t=60');
    expect(headers.get("ratelimit-policy")).toBe('"address";q=60;w=60');
  });

  test("reached is 429 with Retry-After, and nothing is done", async () => {
    const policies = {
      key: { name: "default", requestsMax: 2, windowSeconds: 30 },
      address: { name: "address", requestsMax: 1, windowSeconds: 10 },
    };
    const auth = await start({ policies });
    const statuses = [];
    for (let count = 0; count < 3; count++) statuses.push((await get("/v1/boxes", auth)).status);
    expect(statuses).toEqual([200, 200, 429]);
    const refused = await get("/v1/boxes", auth);
    expect(refused.headers.get("retry-after")).toBe("30");
    expect(refused.headers.get("ratelimit")).toBe('"default";r=0;t=30');
    expect(await refused.json()).toMatchObject({ code: "rate_limited", status: 429 });

    // Who has no valid key is counted by address, and does not use up anybody's key.
    expect((await get("/v1/boxes", { authorization: "Bearer svc_test_nonsense" })).status).toBe(401);
    const anonymous = await get("/v1/boxes", { authorization: "Bearer svc_test_nonsense" });
    expect(anonymous.status).toBe(429);
    expect(anonymous.headers.get("retry-after")).toBe("10");
    expect((await get("/errors", {})).status).toBe(429);
    expect((await get("/healthz", {})).status).toBe(200);
  });

  test("of an operation's own is by account, and counts towards no other", async () => {
    const policies = {
      key: { name: "default", requestsMax: 1, windowSeconds: 30 },
      address: { name: "address", requestsMax: 9, windowSeconds: 30 },
      operations: new Map([["boxes.list", { name: "lists", requestsMax: 2, windowSeconds: 1 }]]),
    };
    const auth = await start({ policies });
    const other = {
      authorization: `Bearer ${api.keys.add({ accountId: ADA, scopes: new Set(ALL_SCOPES) })}`,
    };
    const bobs = { authorization: `Bearer ${api.keys.add({ accountId: BOB, scopes: new Set(ALL_SCOPES) })}` };
    const first = await get("/v1/boxes", auth);
    expect([first.status, first.headers.get("ratelimit-policy")]).toEqual([200, '"lists";q=2;w=1']);
    expect((await get("/v1/boxes", other)).status).toBe(200);
    expect((await get("/v1/boxes", auth)).status).toBe(429);
    expect((await get("/v1/boxes", bobs)).status).toBe(200);
    // The key's own limit is untouched.
    const box = await get("/v1/boxes/box-1", auth);
    expect([box.status, box.headers.get("ratelimit-policy")]).toEqual([404, '"default";q=1;w=30']);
    expect((await get("/v1/boxes/box-1", auth)).status).toBe(429);
    const staff = {
      authorization: `Bearer ${api.keys.add({ scopes: new Set(ALL_SCOPES) })}`,
      "x-account-id": ADA,
    };
    expect((await get("/v1/boxes", staff)).status).toBe(200);
  });

  test("of an operation's own leaves users a half beside the account's, and one of them half of that", async () => {
    const policies = {
      key: { name: "default", requestsMax: 1, windowSeconds: 30 },
      address: { name: "address", requestsMax: 9, windowSeconds: 30 },
      operations: new Map([["boxes.list", { name: "lists", requestsMax: 40, windowSeconds: 1 }]]),
    };
    await start({ policies });
    const listOften = async (userId: string | null) => {
      const key = api.keys.add({ accountId: ADA, userId, scopes: new Set(ALL_SCOPES) });
      const answers: Response[] = [];
      for (let n = 0; n < 50; n++)
        answers.push(
          await get("/v1/boxes", { authorization: `Bearer ${key}`, "x-request-id": n % 2 ? "é" : "ok" }),
        );
      const refused = answers.filter(({ status }) => status === 429);
      return [50 - refused.length, refused[0]?.headers.get("ratelimit-policy")];
    };
    expect(await listOften("greedy")).toEqual([10, '"lists";q=10;w=1']);
    expect(await listOften("greedy"), "with another key").toEqual([0, '"lists";q=10;w=1']);
    expect(await listOften("other")).toEqual([10, '"lists";q=10;w=1']);
    expect(await listOften("third"), "all of them together").toEqual([0, '"lists";q=20;w=1']);
    expect(await listOften(null)).toEqual([40, '"lists";q=40;w=1']);
  });

  test("is per key, and for all keys of an account together, whose limit no refused request uses up", async () => {
    const policies = {
      key: { name: "default", requestsMax: 2, windowSeconds: 30 },
      account: { name: "account", requestsMax: 5, windowSeconds: 30 },
      address: { name: "address", requestsMax: 1, windowSeconds: 30 },
    };
    await start({ policies });
    const newAuth = (accountId: string | null, userId: string | null = null) => ({
      authorization: `Bearer ${api.keys.add({ accountId, userId, scopes: new Set(ALL_SCOPES) })}`,
    });
    // A user's keys count together, and in nobody else's way.
    const ofUser: number[] = [];
    for (const auth of [1, 2, 3, 4].map(() => newAuth(ADA, "user-1")))
      for (let n = 0; n < 2; n++) ofUser.push((await get("/v1/boxes", auth)).status);
    expect(ofUser).toEqual([200, 200, 200, 200, 200, 429, 429, 429]);
    expect((await get("/v1/boxes", newAuth(ADA, "user-2"))).status).toBe(200);
    const statuses: number[] = [];
    for (const auth of [1, 2, 3].map(() => newAuth(ADA)))
      for (let n = 0; n < 4; n++) statuses.push((await get("/v1/boxes", auth)).status);
    expect(statuses).toEqual([200, 200, 429, 429, 200, 200, 429, 429, 200, 429, 429, 429]);
    const refused = await get("/v1/boxes", newAuth(ADA));
    expect([refused.status, refused.headers.get("ratelimit-policy")]).toEqual([429, '"account";q=5;w=30']);
    expect(refused.headers.get("ratelimit")).toBe('"account";r=0;t=30');
    expect(api.answered.at(-1)).toMatchObject({ isAccountLimited: true });
    expect((await get("/v1/boxes", newAuth(BOB))).headers.get("ratelimit-policy")).toBe('"default";q=2;w=30');
    const staff = { ...newAuth(null), "x-account-id": ADA };
    expect((await get("/v1/boxes", staff)).status, "staff's are nobody's").toBe(200);
  });

  test("refuses a flood at a pace", async () => {
    const policy = { name: "any", requestsMax: 1, windowSeconds: 30 };
    const headers = await start({ policies: { key: policy, address: policy } });
    const ask = async () => (await api.app.inject({ url: "/v1/boxes", headers })).statusCode;
    expect(await ask()).toBe(200);
    const startMs = performance.now();
    const flood = await Promise.all(Array.from({ length: 100 }, ask));
    expect(new Set(flood)).toEqual(new Set([429]));
    expect(performance.now() - startMs).toBeGreaterThan(99 * REFUSED_EVERY_MS - 1);
  });

  test("holds no refusal for longer than a second, and none that comes alone", () => {
    const { holdRefusal } = createRateLimits({
      countRequest: async () => ({ requests: 1, resetMs: 1 }),
      onRateLimitFailure: () => undefined,
    });
    const heldMs = Array.from({ length: 2_000 }, () => holdRefusal(5_000));
    expect([heldMs[0], heldMs[1], heldMs[50], heldMs.at(-1)]).toEqual([0, 10, 500, REFUSED_WITHIN_MS]);
    expect(holdRefusal(5_500)).toBe(500);
    expect(holdRefusal(7_000)).toBe(0);
  });

  test("has nothing of a body in memory while a refusal is held", async () => {
    const policy = { name: "any", requestsMax: 1, windowSeconds: 30 };
    await start({ policies: { key: policy, address: policy } });
    const flood = Array.from({ length: REFUSED_WITHIN_MS / REFUSED_EVERY_MS }, () =>
      api.app.inject("/v1/boxes"),
    );
    const { socket, received } = await openRaw(api.port());
    // More than the kernels of both sides take.
    const body = Buffer.alloc(REFUSED_BODY_BYTES_MAX - 1);
    const taken = new Promise((resolve) => {
      socket.write(rawHead("POST /v1/boxes", { "content-length": body.length }));
      socket.write(body, () => resolve(received()));
    });
    expect(await taken, "all of it is taken before the answer").toBe("");
    await expect.poll(received).toContain("HTTP/1.1 429");
    await Promise.all(flood);
    socket.destroy();
  });

  test("counts by itself while its store fails, from the state last known", async () => {
    let isAway = false;
    const toy = await createToyApi();
    const auth = await start({
      countRequest: async (bucket, policy) => {
        if (isAway) throw new Error("connection refused");
        return toy.counter.count(bucket, policy);
      },
    });
    await toy.app.close();
    await get("/v1/boxes", auth);
    isAway = true;
    for (const left of [598, 597, 596]) {
      const response = await get("/v1/boxes", auth);
      expect(response.status).toBe(200);
      expect(response.headers.get("ratelimit")).toBe(`"default";r=${left};t=60`);
    }
    const unseen = await get("/v1/boxes", {});
    expect(unseen.headers.get("ratelimit")).toBe('"address";r=59;t=60');
    expect(api.limiterFailures).toHaveLength(4);
    expect(api.faults).toEqual([]);
  });

  test("lets through while its store hangs", async () => {
    const auth = await start({ countRequest: () => new Promise(() => {}) });
    const startMs = performance.now();
    expect((await get("/v1/boxes", auth)).status).toBe(200);
    expect(performance.now() - startMs).toBeLessThan(patience(2_000));
    expect(api.limiterFailures).toHaveLength(1);
  });

  test.each([
    ["192.0.2.1", "address:192.0.2.1"],
    ["::ffff:192.0.2.1", "address:192.0.2.1"],
    ["2001:db8:1:2:3:4:5:6", "address:2001:db8:1:2::/64"],
    ["2001:db8:1:2::9", "address:2001:db8:1:2::/64"],
    ["2001:db8:1:3::9", "address:2001:db8:1:3::/64"],
    ["2001:0db8::1", "address:2001:db8:0:0::/64"],
    ["::1", "address:0:0:0:0::/64"],
    ["fe80::1%eth0", "address:fe80:0:0:0::/64"],
    ["64:ff9b::192.0.2.1", "address:64:ff9b:0:0::/64"],
  ])("counts %s as %s", async (address, bucket) => {
    await start();
    expect(addressBucket(address)).toBe(bucket);
  });

  test("takes the client's address from X-Forwarded-For only where it is told to", async () => {
    const forwarded = { "x-forwarded-for": "198.51.100.1, 203.0.113.9" };
    for (const [trustProxy, bucket] of [
      [false, "address:127.0.0.1"],
      [1, "address:203.0.113.9"],
      [2, "address:198.51.100.1"],
      [["127.0.0.1"], "address:203.0.113.9"],
      [["127.0.0.1", "203.0.113.0/24"], "address:198.51.100.1"],
    ] as const) {
      await start({ isTrustedProxy: trustedProxies(trustProxy) });
      await get("/v1/boxes", forwarded);
      expect(api.counter.of(bucket), String(trustProxy)).toBe(1);
      await api.app.close();
    }
  });

  test.each([
    ["203.0.113.9:50123", "address:203.0.113.9"],
    ["[2001:db8:1:2::9]:50123", "address:2001:db8:1:2::/64"],
    ["[2001:db8:1:2::9]", "address:2001:db8:1:2::/64"],
    ["2001:db8:1:2::9", "address:2001:db8:1:2::/64"],
    ["198.51.100.1:1, 203.0.113.9:50123", "address:203.0.113.9"],
    ["203.0.113.9:50123, 192.0.2.7:443", "address:203.0.113.9"],
    ["192.0.2.7:443,203.0.113.9:x", "address:203.0.113.9:x"],
  ])("takes no port that a proxy writes for part of the address: %s", async (forwarded, bucket) => {
    await start({ isTrustedProxy: trustedProxies(["127.0.0.1", "192.0.2.7"]) });
    await get("/v1/boxes", { "x-forwarded-for": forwarded });
    expect(api.counter.of(bucket)).toBe(1);
  });
});
