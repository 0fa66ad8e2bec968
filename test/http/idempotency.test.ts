import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { readIdempotencyKey } from "../../src/http/idempotent-write.ts";
import { jsonBody, jsonResponse } from "../../src/http/operation.ts";
import { TemporarilyUnavailable } from "../../src/http/problems.ts";
import { expectProblem } from "../support/api-expect.ts";
import { ADA, ALL_SCOPES, BOB, createToyApi, type ToyApi } from "../support/api-toy-server.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(): Promise<void> {
  api = await createToyApi();
  await api.listen();
}

type Request = {
  path?: string;
  method?: string;
  key?: string;
  headers?: Record<string, string>;
  body?: unknown;
};

function send(idempotencyKey: string | null, request: Request = {}): Promise<Response> {
  const {
    path = "/v1/boxes",
    method = "POST",
    key = api.key,
    headers = {},
    body = { color: "red" },
  } = request;
  return fetch(`http://127.0.0.1:${api.port()}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body === null ? {} : { "content-type": "application/json" }),
      ...(idempotencyKey === null ? {} : { "idempotency-key": idempotencyKey }),
      ...headers,
    },
    ...(body === null ? {} : { body: JSON.stringify(body) }),
  });
}

const weigh = { path: "/v1/boxes/weigh", body: {} };

describe("an Idempotency-Key", () => {
  test("is required of every write and of no read", async () => {
    await start();
    await expectProblem(await send(null), 400, "idempotency_key_required");
    await expectProblem(await send(""), 400, "idempotency_key_required");
    await expectProblem(await send(null, weigh), 400, "idempotency_key_required");
    await expectProblem(await send(null, { body: { color: "green" } }), 400, "idempotency_key_required");
    const remove = { path: "/v1/boxes/box-1", method: "DELETE", body: null };
    await expectProblem(await send(null, remove), 400, "idempotency_key_required");
    expect(api.boxes.rows.size).toBe(0);
    expect((await send(null, { method: "GET", body: null })).status).toBe(200);
    expect((await send("k", { method: "GET", body: null })).status).toBe(200);
  });

  test.each([
    ["k", "k"],
    ['"k"', "k"],
    ['"a \\"b\\" \\\\"', 'a "b" \\'],
    ["x".repeat(200), "x".repeat(200)],
    [`"${"x".repeat(200)}"`, "x".repeat(200)],
    ["8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"],
    ["a, b", "a, b"],
  ])("of %s is %s", (header, key) => {
    expect(readIdempotencyKey(header)).toBe(key);
  });

  test.each([
    "x".repeat(201),
    `"${"x".repeat(201)}"`,
    '""',
    '"a',
    '"a" b',
    '"a"b',
    "caf\u00e9",
    "a\tb",
    '"a";b=',
  ])("of %s is refused", (header) => {
    expect(() => readIdempotencyKey(header)).toThrow(expect.objectContaining({ code: "invalid_request" }));
  });
});

describe("the same request again", () => {
  test("has its effect once and answers the same bytes", async () => {
    await start();
    const first = await send("k");
    const again = await send('"k"');
    expect([first.status, again.status]).toEqual([201, 201]);
    expect(await again.text()).toBe(await first.text());
    for (const name of ["location", "content-type", "cache-control"]) {
      expect(again.headers.get(name), name).toBe(first.headers.get(name));
    }
    expect(first.headers.get("location")).toBe("/v1/boxes/box-1");
    expect(first.headers.get("idempotent-replayed")).toBeNull();
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(again.headers.get("x-request-id")).not.toBe(first.headers.get("x-request-id"));
    expect(api.boxes.rows.size).toBe(1);
  });

  test("is the same however its JSON is written", async () => {
    await start();
    await send("k", { body: { color: "red", weight: 5 } });
    const headers = {
      authorization: `Bearer ${api.key}`,
      "idempotency-key": "k",
      "content-type": "application/json",
    };
    const body = ' {"weight" : 5.0, "color":"r\\u0065d"}';
    const again = await fetch(`http://127.0.0.1:${api.port()}/v1/boxes`, { method: "POST", headers, body });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
  });

  test("without a body is answered without one", async () => {
    await start();
    await send("make");
    const remove = { path: "/v1/boxes/box-1", method: "DELETE", body: null };
    const first = await send("k", remove);
    const again = await send("k", remove);
    expect([first.status, again.status]).toEqual([204, 204]);
    expect([again.headers.get("idempotent-replayed"), await again.text()]).toEqual(["true", ""]);
    await expectProblem(await send("l", remove), 404, "not_found");
  });

  test("is another under another account or API key", async () => {
    await start();
    const staff = api.keys.add({ accountId: null, scopes: new Set(ALL_SCOPES) });
    const second = api.keys.add({ accountId: ADA, scopes: new Set(ALL_SCOPES) });
    const asAda = { key: staff, headers: { "x-account-id": ADA } };
    const asBob = { key: staff, headers: { "x-account-id": BOB } };
    for (const request of [{}, { key: second }, asAda, asBob]) {
      expect((await send("k", request)).headers.get("idempotent-replayed")).toBeNull();
    }
    expect((await send("k", asBob)).headers.get("idempotent-replayed")).toBe("true");
    expect(api.boxes.rows.size).toBe(4);
  });
});

describe("another request under the same key", () => {
  test.each<[string, Request]>([
    ["another body", { body: { color: "blue" } }],
    ["another member, though it is the default in disguise", { body: { color: "red", weight: 1 } }],
    ["another operation", { path: "/v1/locks/combination/rotate", body: null }],
    ["a call", weigh],
  ])("is 422: %s", async (_name, request) => {
    await start();
    await send("k");
    await expectProblem(await send("k", request), 422, "idempotency_key_reused");
    expect(api.boxes.rows.size).toBe(1);
    expect(api.boxes.calls).toBe(0);
  });

  test("differs by its parameters and by its raw bytes", async () => {
    await start();
    const text = (id: string, body: unknown) =>
      send("k", { path: `/v1/boxes/${id}/text`, method: "PUT", body });
    expect((await text("a", { id: "1" })).status).toBe(202);
    expect((await text("a", { id: "1" })).headers.get("idempotent-replayed")).toBe("true");
    await expectProblem(await text("b", { id: "1" }), 422, "idempotency_key_reused");
    await expectProblem(await text("a", { id: "2" }), 422, "idempotency_key_reused");
  });
});

describe("a refusal", () => {
  test("is not stored, and undoes what was done", async () => {
    await start();
    const sealed = { body: { color: "red", note: "sealed" } };
    await expectProblem(await send("k", sealed), 409, "box_sealed");
    expect(api.boxes.rows.size).toBe(0);
    expect(api.recorded).toEqual([]);
    expect(api.store.commits()).toBe(0);
    // The key is still free, even for another request.
    expect((await send("k")).status).toBe(201);
  });

  test("of a request that is wrong does not touch the key", async () => {
    await start();
    expect((await send("k", { body: { color: "green" } })).status).toBe(400);
    expect((await send("k")).status).toBe(201);
  });

  test("for want of the database leaves nothing behind", async () => {
    await start();
    api.boxes.gate = () => Promise.reject(new TemporarilyUnavailable("gone"));
    await expectProblem(await send("k"), 503, "temporarily_unavailable");
    expect(api.boxes.rows.size).toBe(0);
    api.boxes.gate = async () => {};
    const again = await send("k");
    expect([again.status, again.headers.get("idempotent-replayed")]).toEqual([201, null]);
  });
});

describe("a request while the first is still running", () => {
  for (const [name, request] of [
    ["write", {}],
    ["call", weigh],
  ] as const) {
    test(`is 409 at once, and afterwards the first one's answer: ${name}`, async () => {
      await start();
      const { promise: opened, resolve: open } = Promise.withResolvers<void>();
      const { promise: entered, resolve: enter } = Promise.withResolvers<void>();
      api.boxes.gate = () => {
        enter();
        return opened;
      };
      const first = send("k", request);
      await entered;
      await expectProblem(await send("k", request), 409, "idempotency_in_progress");
      open();
      expect((await first).status).toBeLessThan(300);
      const again = await send("k", request);
      expect(again.headers.get("idempotent-replayed")).toBe("true");
      expect(await again.text()).toBe(await (await first).text());
    });
  }

  test("is refused, or answered the same, if twenty come at once", async () => {
    await start();
    const responses = await Promise.all(Array.from({ length: 20 }, () => send("k")));
    expect(api.boxes.rows.size).toBe(1);
    const kinds = responses.map(({ status, headers }) => `${status} ${headers.get("idempotent-replayed")}`);
    expect(kinds.filter((kind) => kind === "201 null")).toHaveLength(1);
    for (const kind of kinds) expect(["201 null", "201 true", "409 null"]).toContain(kind);
  });
});

describe("an operation that calls out", () => {
  test("calls once, with no transaction open, and answers the same again", async () => {
    await start();
    let commitsBefore = -1;
    api.boxes.gate = async () => {
      commitsBefore = api.store.commits();
    };
    expect(await (await send("k", weigh)).json()).toEqual({ calls: 1 });
    expect(commitsBefore).toBe(1);
    const again = await send("k", { ...weigh, body: null });
    expect([await again.json(), again.headers.get("idempotent-replayed")]).toEqual([{ calls: 1 }, "true"]);
    expect([...api.store.entries.values()]).toMatchObject([{ kind: "completed" }]);
  });

  test("gives its claim up when it is refused", async () => {
    await start();
    await expectProblem(await send("k", { ...weigh, body: { is_broken: true } }), 409, "box_sealed");
    expect(api.store.entries.size).toBe(0);
    expect((await send("k", weigh)).status).toBe(200);
  });

  test("leaves a claim that ends by itself when its process dies", async () => {
    await start();
    api.boxes.gate = () => new Promise(() => {});
    const abort = new AbortController();
    const entered = expect.poll(() => api.boxes.calls).toBe(1);
    const request = fetch(`http://127.0.0.1:${api.port()}/v1/boxes/weigh`, {
      method: "POST",
      headers: { authorization: `Bearer ${api.key}`, "idempotency-key": "k" },
      signal: abort.signal,
    });
    await entered;
    abort.abort();
    await expect(request).rejects.toThrow();
    expect([...api.store.entries.values()]).toMatchObject([{ kind: "calling", leaseMs: 120_000 }]);
  });
});

describe("a write that prepares", () => {
  let isAway = false;
  const seen: unknown[] = [];
  const fold = operationDefiners("Boxes").write({
    key: "boxes.fold",
    summary: "Fold a box",
    description: "Measures it first, which takes its time.",
    method: "POST",
    path: "/v1/boxes/fold",
    scope: "boxes:write",
    risk: "reversible",
    mode: "sync",
    audit: () => ({}),
    body: jsonBody(z.strictObject({ width: z.int() })),
    response: jsonResponse(200, z.object({ area: z.int() })),
    prepare: async ({ body: { width } }) => {
      seen.push(["prepare", width, api.store.entries.size]);
      if (isAway) throw new TemporarilyUnavailable("the tape");
      await api.boxes.gate();
      return width * width;
    },
    handle: async ({ body: { width } }, _tx, area) => {
      seen.push(["handle", width]);
      return { body: { area } };
    },
  });
  const folded = (width: number) => send("k", { path: "/v1/boxes/fold", body: { width } });
  beforeEach(async () => {
    seen.length = 0;
    isAway = false;
    api = await createToyApi({ more: [fold] });
    await api.listen();
  });

  test("does so before there is a transaction, and again for an answer that is there", async () => {
    const first = await folded(3);
    expect([first.status, await first.json()]).toEqual([200, { area: 9 }]);
    expect((await folded(3)).headers.get("idempotent-replayed")).toBe("true");
    expect(seen).toEqual([
      ["prepare", 3, 0],
      ["handle", 3],
      ["prepare", 3, 1],
    ]);
  });

  test("has the time of the request for both", async () => {
    isAway = true;
    await expectProblem(await folded(3), 503, "temporarily_unavailable");
    isAway = false;
    api.boxes.gate = () => new Promise(() => {});
    await expectProblem(await folded(3), 503, "temporarily_unavailable");
    expect(seen.filter((step) => (step as string[])[0] === "handle")).toEqual([]);
    api.boxes.gate = async () => {};
    expect((await folded(3)).status).toBe(200);
  });
});

describe("every write", () => {
  test("is told of in its transaction, with who did it", async () => {
    await start();
    const staff = api.keys.add({ accountId: null, scopes: new Set(ALL_SCOPES) });
    await send("k", { key: staff, headers: { "x-account-id": BOB, "x-request-id": "r1" } });
    await send("k", { key: staff, headers: { "x-account-id": BOB } });
    await send("l", weigh);
    expect(api.recorded).toEqual([
      {
        operationKey: "boxes.create",
        accountId: BOB,
        caller: { keyId: "key-2", isStaff: true, userId: null, scopes: new Set(ALL_SCOPES) },
        requestId: "r1",
        details: { color: "red", box_id: "box-1" },
      },
      expect.objectContaining({ operationKey: "boxes.weigh", accountId: ADA, details: { calls: 1 } }),
    ]);
  });

  test("but one that declares that nothing changed, or that it is told of elsewhere", async () => {
    await start();
    const oil = (dry_run: boolean) => ({ path: "/v1/locks/oil", body: { dry_run } });
    expect((await send("k", oil(true))).status).toBe(200);
    expect((await send("l", { path: "/v1/boxes/a/text", method: "PUT", body: { id: "1" } })).status).toBe(
      202,
    );
    expect(api.recorded).toEqual([]);
    expect((await send("m", oil(false))).status).toBe(202);
    expect(api.recorded).toMatchObject([{ operationKey: "locks.oil", details: {} }]);
  });

  test("whose answer holds a secret says so to the store", async () => {
    await start();
    await send("k", { path: "/v1/locks/combination/rotate", body: null });
    expect(JSON.stringify(api.recorded)).not.toContain("1-2-3");
    await send("l");
    const stored = [...api.store.entries.values()].map(
      (entry) => entry.kind === "completed" && entry.response,
    );
    expect(stored).toMatchObject([{ holdsSecret: true }, { holdsSecret: false }]);
  });
});
