import { hash } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import { matchesEntityTag } from "../../src/http/bytes.ts";
import { expectProblem } from "../support/api-expect.ts";
import { ADA, createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(overrides: ToyOverrides = {}): Promise<{ authorization: string }> {
  api = await createToyApi(overrides);
  await api.listen();
  return { authorization: `Bearer ${api.key}` };
}

const get = (path: string, headers: Record<string, string>): Promise<Response> =>
  fetch(`http://127.0.0.1:${api.port()}${path}`, { headers });

describe("X-Request-Id", () => {
  const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;

  test.each(["a", "x".repeat(128), 'odd "ones", too ~'])("%s is kept", async (id) => {
    const auth = await start();
    for (const path of ["/v1/boxes", "/v1/nothing", "/v1/%", "/healthz", "/errors", "/v1/openapi.json"]) {
      const response = await get(path, { ...auth, "x-request-id": id });
      expect(response.headers.get("x-request-id"), path).toBe(id);
    }
  });

  test("absent or empty is made anew", async () => {
    const auth = await start();
    const ids = await Promise.all(
      [{}, { "x-request-id": "" }].map(async (headers) => {
        const response = await get("/v1/boxes", { ...auth, ...headers });
        expect(response.status).toBe(200);
        return response.headers.get("x-request-id");
      }),
    );
    for (const id of ids) expect(id).toMatch(UUID);
    expect(ids[0]).not.toBe(ids[1]);
  });

  test.each([
    "x".repeat(129),
    "caf\u00e9",
    "a\tb",
    `svc_live_${"k".repeat(43)}`,
    `Bearer any_test_${"k".repeat(43)}`,
    "whsec_c2VjcmV0",
  ])("%s is refused, with a fresh id", async (id) => {
    const auth = await start();
    for (const path of ["/v1/boxes", "/v1/nothing", "/errors", "/healthz", "/readyz", "/favicon.ico"]) {
      const response = await get(path, { ...auth, "x-request-id": id });
      expect(response.headers.get("x-request-id"), path).toMatch(UUID);
      await expectProblem(response, 400, "invalid_request_id");
    }
  });
});

describe("ETag", () => {
  test("of a read changes with the bytes, and 304 answers who has them", async () => {
    const auth = await start();
    const first = await get("/v1/boxes", auth);
    const tag = first.headers.get("etag") ?? "";
    expect(tag).toMatch(/^"[\w-]{43}"$/);
    expect(first.headers.get("cache-control")).toBe("private, no-cache");

    for (const ifNoneMatch of [tag, `W/${tag}`, `"other", ${tag}`, "*"]) {
      const unchanged = await get("/v1/boxes", { ...auth, "if-none-match": ifNoneMatch });
      expect(unchanged.status, ifNoneMatch).toBe(304);
      expect(unchanged.headers.get("etag")).toBe(tag);
      expect(unchanged.headers.get("ratelimit")).toMatch(/^"default"/);
      expect(unchanged.headers.get("content-type")).toBeNull();
      expect(await unchanged.text()).toBe("");
    }

    api.boxes.rows.set("box-1", {
      ...{ id: "box-1", color: "red", weight: 1, made_at: "2026-01-02T03:04:05.678Z", accountId: ADA },
    });
    const changed = await get("/v1/boxes", { ...auth, "if-none-match": tag });
    expect(changed.status).toBe(200);
    expect(changed.headers.get("etag")).not.toBe(tag);
  });

  test("of a read changes with the operation's own headers, too", async () => {
    const auth = await start();
    const made_at = "2026-01-02T03:04:05.678Z";
    const addBox = (id: string) =>
      api.boxes.rows.set(id, { id, color: "red", weight: 1, made_at, accountId: ADA });
    for (let count = 1000; count < 2000; count++) addBox(`box-${count}`);
    const path = "/v1/boxes?limit=1";
    const exact = await get(path, auth);
    const exactBody = await exact.text();
    expect(exact.headers.get("total-capped")).toBeNull();
    const exactTag = { ...auth, "if-none-match": exact.headers.get("etag") ?? "" };
    expect((await get(path, exactTag)).status).toBe(304);

    addBox("box-2000");
    const capped = await get(path, exactTag);
    expect([capped.status, capped.headers.get("total-capped")]).toEqual([200, "true"]);
    expect(await capped.text()).toBe(exactBody);
    const cappedTag = { ...auth, "if-none-match": capped.headers.get("etag") ?? "" };
    expect((await get(path, cappedTag)).status).toBe(304);
    api.boxes.rows.delete("box-2000");
    expect((await get(path, cappedTag)).status).toBe(200);
  });

  test("is not on errors nor on writes, and If-None-Match does nothing there", async () => {
    const auth = await start();
    const missing = await get("/v1/boxes/none", { ...auth, "if-none-match": "*" });
    expect([missing.status, missing.headers.get("etag")]).toEqual([404, null]);
    const written = await fetch(`http://127.0.0.1:${api.port()}/v1/locks/combination/rotate`, {
      method: "POST",
      headers: { ...auth, "idempotency-key": "k", "if-none-match": "*" },
    });
    expect([written.status, written.headers.get("etag")]).toEqual([200, null]);
    expect(written.headers.get("cache-control")).toBe("no-store");
  });

  test("and everything else but the body is the same for HEAD", async () => {
    const auth = await start();
    const url = `http://127.0.0.1:${api.port()}/v1/boxes`;
    const [read, head] = [
      await fetch(url, { headers: auth }),
      await fetch(url, { method: "HEAD", headers: auth }),
    ];
    for (const name of ["etag", "content-type", "content-length", "cache-control"]) {
      expect(head.headers.get(name), name).toBe(read.headers.get(name));
    }
    expect(head.status).toBe(200);
    expect(await head.text()).toBe("");
    const conditional = { ...auth, "if-none-match": head.headers.get("etag") ?? "" };
    expect((await fetch(url, { method: "HEAD", headers: conditional })).status).toBe(304);
    expect((await fetch(`${url}/none`, { method: "HEAD", headers: auth })).status).toBe(404);
  });

  test.each([
    ['"a"', true],
    ['W/"a"', true],
    ['"b" , W/"a"', true],
    ['"b,a","a"', true],
    [" * ", true],
    ['"b"', false],
    ["a", false],
    ['"a', false],
    ['"*"', false],
    ["", false],
  ])("If-None-Match: %s", async (header, isMatch) => {
    await start();
    expect(matchesEntityTag(header, '"a"')).toBe(isMatch);
  });
});

describe("raw bytes", () => {
  test("come back as they were sent, with a tag of their own", async () => {
    const auth = await start();
    const url = `http://127.0.0.1:${api.port()}/v1/boxes/box-1/text`;
    const sent = Buffer.from('{ "id":"1",  "id":"2","n":9007199254740993,"e":1e400,"u":"\\u0000\\ud800" }\n');
    const headers = { ...auth, "idempotency-key": "k", "content-type": "application/json" };
    const put = await fetch(url, { method: "PUT", body: sent, headers });
    expect([put.status, await put.json()]).toEqual([202, { bytes: sent.length }]);
    const read = await fetch(url, { headers: auth });
    expect(Buffer.from(await read.arrayBuffer()).equals(sent)).toBe(true);
    expect(read.headers.get("content-type")).toBe("application/json");
    expect(read.headers.get("etag")).toBe(`"${hash("sha256", sent, "base64url")}"`);
    const empty = await fetch(url, { method: "PUT", headers: { ...headers, "idempotency-key": "l" } });
    await expectProblem(empty, 400, "invalid_request", [{ path: "body", message: "The body is empty." }]);
    const large = {
      method: "PUT",
      body: Buffer.alloc(1001, 32),
      headers: { ...headers, "idempotency-key": "m" },
    };
    await expectProblem(await fetch(url, large), 413, "payload_too_large");
  });
});

describe("an operation at the end of its life", () => {
  test("says so while it is deprecated", async () => {
    const auth = await start();
    const { status, headers } = await get("/v1/locks", auth);
    expect(status).toBe(200);
    expect(headers.get("deprecation")).toBe("@1688169600");
    expect(headers.get("sunset")).toBe("Sun, 30 Jun 2030 23:59:59 GMT");
    expect((await get("/v1/boxes", auth)).headers.get("deprecation")).toBeNull();
  });

  test("is 410 when it is retired, whoever asks and however", async () => {
    const auth = await start();
    const pick = (headers: Record<string, string>) =>
      fetch(`http://127.0.0.1:${api.port()}/v1/locks/7/pick`, { method: "POST", headers });
    await expectProblem(await pick(auth), 410, "route_retired");
    await expectProblem(await pick({}), 410, "route_retired");
    const other = await get("/v1/locks/7/pick", auth);
    expect(other.headers.get("allow")).toBe("POST");
    await expectProblem(other, 405, "method_not_allowed");
  });
});

describe("each answer", () => {
  test("is told of once, without a secret", async () => {
    const auth = await start();
    await get("/v1/boxes", { ...auth, "x-request-id": "r1" });
    await get("/v1/boxes/none", { ...auth, "x-request-id": "r2" });
    await get("/v1/boxes", { "x-request-id": "r3" });
    await get("/healthz", { "x-request-id": "r4" });
    expect(api.answered).toMatchObject([
      {
        operationKey: "boxes.list",
        status: 200,
        problemCode: null,
        requestId: "r1",
        keyId: "key-1",
        accountId: ADA,
      },
      { operationKey: "boxes.get", status: 404, problemCode: "not_found", requestId: "r2" },
      { operationKey: "boxes.list", status: 401, problemCode: "unauthorized", requestId: "r3", keyId: null },
      { operationKey: "page", method: "GET", status: 200, requestId: "r4" },
    ]);
    for (const { durationMs } of api.answered) expect(durationMs).toBeGreaterThan(0);
    expect(JSON.stringify(api.answered)).not.toContain(api.key);
  });
});

describe("an operation with two successes", () => {
  test("answers each under its status, and again as it was", async () => {
    const auth = await start();
    const oil = async (key: string, dry_run: boolean) => {
      const headers = { ...auth, "idempotency-key": key, "content-type": "application/json" };
      const init = { method: "POST", headers, body: JSON.stringify({ dry_run }) };
      const response = await fetch(`http://127.0.0.1:${api.port()}/v1/locks/oil`, init);
      return [response.status, await response.json()];
    };
    for (const _ of ["first", "again"]) {
      expect(await oil("a", true)).toEqual([200, { locks: 2 }]);
      expect(await oil("b", false)).toEqual([202, { started: true }]);
    }
  });
});
