import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { digestSecret, formatApiKey } from "../../src/http/api-keys.ts";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { jsonResponse } from "../../src/http/operation.ts";
import { raisedCodes } from "../../src/http/problem-catalogue.ts";
import { expectProblem } from "../support/api-expect.ts";
import { ADA, BOB, createToyApi, TOY_NOW, type ToyApi } from "../support/api-toy-server.ts";
import { createToyCounter, createToyKeys } from "../support/api-toy-stores.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(): Promise<void> {
  api = await createToyApi();
  await api.listen();
}

const get = (path: string, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(`http://127.0.0.1:${api.port()}${path}`, { headers });
const read = (key: string, headers: Record<string, string> = {}): Promise<Response> =>
  get("/v1/boxes", { authorization: `Bearer ${key}`, ...headers });

const scopes = new Set(["boxes:read"]);

describe("a key", () => {
  test("that is valid lets in, in any spelling of Bearer", async () => {
    await start();
    const key = api.keys.add({ accountId: ADA, scopes, expiresAt: new Date(TOY_NOW + 1) });
    for (const scheme of ["Bearer", "bearer", "BEARER", "Bearer  "]) {
      expect((await get("/v1/boxes", { authorization: `${scheme} ${key}` })).status, scheme).toBe(200);
    }
  });

  test("that is not valid is refused with the same bytes, whatever is wrong with it", async () => {
    await start();
    const good = api.keys.add({ accountId: ADA, scopes });
    const refused = {
      absent: {},
      empty: { authorization: "" },
      "of another scheme": { authorization: `Basic ${good}` },
      "without a scheme": { authorization: good },
      malformed: { authorization: "Bearer a b" },
      "too long": { authorization: `Bearer ${"x".repeat(300)}` },
      unknown: { authorization: `Bearer ${formatApiKey("svc", "test", Buffer.alloc(32, 99))}` },
      "of one letter less": { authorization: `Bearer ${good.slice(0, -1)}` },
      revoked: bearer(api.keys.add({ accountId: ADA, scopes, revokedAt: new Date(TOY_NOW - 1) })),
      expired: bearer(api.keys.add({ accountId: ADA, scopes, expiresAt: new Date(TOY_NOW) })),
      "of the other environment": bearer(api.keys.add({ accountId: ADA, scopes, keyClass: "live" })),
    };
    const answers = new Set<string>();
    for (const [name, headers] of Object.entries(refused)) {
      const response = await get("/v1/boxes", { ...headers, "x-request-id": "same" });
      expect(response.status, name).toBe(401);
      expect(response.headers.get("www-authenticate")).toBe("Bearer");
      answers.add(await response.text());
    }
    expect(answers.size).toBe(1);
    await expectProblem(await get("/v1/boxes"), 401, "unauthorized");
  });

  test("is looked up by its digest alone, even one of the other environment", async () => {
    const asked: string[] = [];
    api = await createToyApi({
      findApiKey: async (digest) => {
        asked.push(digest.toString("hex"));
        return null;
      },
    });
    await api.listen();
    const live = formatApiKey("svc", "live", Buffer.alloc(32, 1));
    await read(live);
    expect(asked).toEqual([digestSecret(live).toString("hex")]);
  });

  test("that was valid is looked up and counted at once; revoked since, it counts by address", async () => {
    const { promise: hangs, resolve: goOn } = Promise.withResolvers<void>();
    let gate: Promise<void> = Promise.resolve();
    const toy = createToyKeys();
    api = await createToyApi({
      findApiKey: async (digest) => {
        await gate;
        return (
          (isRevoked && { ...(await toy.find(digest))!, revokedAt: new Date(TOY_NOW) }) || toy.find(digest)
        );
      },
      countRequest: (bucket, policy) => {
        buckets.push(bucket);
        return createToyCounter().count(bucket, policy);
      },
    });
    const buckets: string[] = [];
    let isRevoked = false;
    await api.listen();
    const key = toy.add({ accountId: ADA, scopes });
    expect((await read(key)).status).toBe(200);
    expect(buckets).toEqual(["key:key-1"]);
    gate = hangs;
    isRevoked = true;
    const second = read(key);
    while (buckets.length < 2) await new Promise(setImmediate);
    expect(buckets).toEqual(["key:key-1", "key:key-1"]);
    goOn();
    expect((await second).status).toBe(401);
    expect((await read(key)).status).toBe(401);
    expect(buckets.slice(2)).toEqual(["address:127.0.0.1", "address:127.0.0.1"]);
  });

  test("that was never valid counts towards no key's limit", async () => {
    const buckets: string[] = [];
    api = await createToyApi({
      countRequest: async (bucket) => {
        buckets.push(bucket);
        return { requests: 1, resetMs: 1 };
      },
    });
    await api.listen();
    const dead = api.keys.add({ accountId: ADA, scopes, revokedAt: new Date(TOY_NOW - 1) });
    const other = api.keys.add({ accountId: ADA, scopes, keyClass: "live" });
    for (const key of [dead, dead, other, other]) expect((await read(key)).status).toBe(401);
    expect(buckets).toEqual(Array(4).fill("address:127.0.0.1"));
  });

  test("has a class, 256 bits, and nothing else to be read from it", () => {
    const text = formatApiKey("svc", "live", Buffer.alloc(32, 255));
    expect(text).toMatch(/^svc_live_[\w-]{43}$/);
    expect(() => formatApiKey("svc", "live", Buffer.alloc(31))).toThrow(RangeError);
    expect(digestSecret(text)).toHaveLength(32);
  });
});

describe("a scope", () => {
  test("that is missing is 403, before anything else is looked at", async () => {
    await start();
    const key = api.keys.add({ accountId: ADA, scopes });
    const headers = { authorization: `Bearer ${key}`, "content-type": "text/plain" };
    const write = await fetch(`http://127.0.0.1:${api.port()}/v1/boxes`, {
      method: "POST",
      body: "x",
      headers,
    });
    await expectProblem(write, 403, "access_denied", lacking("It lacks the scope boxes:write."));
    const locks = await get("/v1/locks", { authorization: `Bearer ${key}` });
    await expectProblem(locks, 403, "access_denied", lacking("It lacks the scope locks:read."));
    const there = await get("/v1/boxes/gone", bearer(api.keys.add({ accountId: ADA })));
    await expectProblem(there, 403, "access_denied", lacking("It lacks the scope boxes:read."));
  });
});

describe("an account", () => {
  test("is the key's own, and may be named", async () => {
    await start();
    const key = api.keys.add({ accountId: ADA, scopes });
    expect((await read(key, { "x-account-id": ADA })).status).toBe(200);
    expect((await read(key, { "x-account-id": ADA.toUpperCase() })).status).toBe(200);
    expect((await read(key, { "x-account-id": "" })).status).toBe(200);
  });

  test.each([BOB, "33333333-3333-4333-8333-333333333333", "x"])(
    "of somebody else, %s, is 403 to a tenant, exist it or not",
    async (named) => {
      await start();
      const key = api.keys.add({ accountId: ADA, scopes });
      await expectProblem(await read(key, { "x-account-id": named }), 403, "access_denied", [
        { path: "header.x-account-id", message: "The key belongs to another account." },
      ]);
    },
  );

  test("is named by staff: missing 400, unknown 404", async () => {
    const asked: string[] = [];
    api = await createToyApi({
      accountExists: async (id) => {
        asked.push(id);
        return id === ADA || id === BOB;
      },
    });
    await api.listen();
    const staff = api.keys.add({ accountId: null, scopes });
    await expectProblem(await read(staff), 400, "account_required");
    await expectProblem(await read(staff, { "x-account-id": "" }), 400, "account_required");
    for (const unknown of ["33333333-3333-4333-8333-333333333333", "x", "' or 1=1 --"]) {
      await expectProblem(await read(staff, { "x-account-id": unknown }), 404, "not_found");
    }
    for (const account of [ADA, BOB, BOB.toUpperCase()]) {
      expect((await read(staff, { "x-account-id": account })).status).toBe(200);
      expect(api.answered.at(-1)).toMatchObject({ accountId: account.toLowerCase() });
    }
    // What is no id at all never comes near the database.
    expect(new Set(asked)).toEqual(new Set([ADA, BOB, "33333333-3333-4333-8333-333333333333"]));
  });

  test("is not asked for by what goes across accounts, which only staff may", async () => {
    const asked: unknown[] = [];
    const across = operationDefiners("Locks").staffRead({
      key: "locks.count",
      summary: "Count locks",
      description: "All of them.",
      path: "/v1/lock-count",
      scope: "locks:read",
      response: jsonResponse(200, z.object({ locks: z.int() })),
      handle: async (request) => {
        asked.push(request.caller);
        return { body: { locks: asked.length } };
      },
    });
    api = await createToyApi({ more: [across] });
    await api.listen();
    const locks = (key: string, headers = {}) => get("/v1/lock-count", { ...bearer(key), ...headers });
    const allowed = new Set(["locks:read"]);
    const staff = api.keys.add({ accountId: null, scopes: allowed });
    expect((await locks(staff)).status).toBe(200);
    expect(api.answered.at(-1)).toMatchObject({ accountId: null, operationKey: "locks.count" });
    // One that is named all the same is not looked at.
    expect((await locks(staff, { "x-account-id": "x" })).status).toBe(200);
    const tenant = api.keys.add({ accountId: ADA, scopes: allowed });
    for (const headers of [{}, { "x-account-id": ADA }, { "x-account-id": BOB }])
      await expectProblem(
        await locks(tenant, headers),
        403,
        "access_denied",
        lacking("It is not a staff key."),
      );
    const unable = await locks(api.keys.add({ accountId: null, scopes }));
    await expectProblem(unable, 403, "access_denied", lacking("It lacks the scope locks:read."));
    expect(asked).toHaveLength(2);
    expect(raisedCodes(across)).not.toContain("account_required");
  });

  test("of somebody else has nothing that can be told from nothing", async () => {
    await start();
    const box = { color: "red", weight: 1, made_at: "2026-01-02T03:04:05.678Z" } as const;
    api.boxes.rows.set("of-bob", { ...box, id: "of-bob", accountId: BOB });
    const key = api.keys.add({ accountId: ADA, scopes: new Set(["boxes:read", "boxes:write"]) });
    for (const method of ["GET", "DELETE"]) {
      const answers = await Promise.all(
        ["of-bob", "of-none"].map(async (id) => {
          const headers = { authorization: `Bearer ${key}`, "x-request-id": "same", "idempotency-key": id };
          const response = await fetch(`http://127.0.0.1:${api.port()}/v1/boxes/${id}`, { method, headers });
          return [response.status, await response.text()];
        }),
      );
      expect(answers[0]).toEqual(answers[1]);
      expect(answers[0]?.[0]).toBe(404);
    }
    expect(api.boxes.rows.has("of-bob")).toBe(true);
  });
});

function bearer(key: string): { authorization: string } {
  return { authorization: `Bearer ${key}` };
}

function lacking(message: string) {
  return [{ path: "header.authorization", message }];
}
