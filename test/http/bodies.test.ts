import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, test } from "vitest";
import { expectProblem } from "../support/api-expect.ts";
import { createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(overrides: ToyOverrides = {}): Promise<{ authorization: string }> {
  api = await createToyApi(overrides);
  return { authorization: `Bearer ${api.key}` };
}

function asResponse(bytes: string): Response {
  const [head = "", body = ""] = bytes.split("\r\n\r\n");
  const [statusLine = "", ...lines] = head.split("\r\n");
  const headers = lines.map((line) => line.split(": ", 2) as [string, string]);
  return new Response(body, { status: Number(statusLine.split(" ")[1]), headers });
}

const json = { "content-type": "application/json" };
const write = { ...json, "idempotency-key": "k1" };

describe("a body", () => {
  const post = async (init: RequestInit & { headers?: Record<string, string> }, path = "/v1/boxes") => {
    const auth = await start();
    const headers = { ...auth, "idempotency-key": "k1", ...init.headers };
    return fetch((await api.listen()) + path, { method: "POST", ...init, headers });
  };
  const form = { "content-type": "application/x-www-form-urlencoded" };

  test.each([
    ["of no type", { body: new Uint8Array([123, 125]) }],
    ["of text", { body: "{}", headers: { "content-type": "text/plain" } }],
    ["of a form", { body: "a=b", headers: form }],
    ["of problem JSON", { body: "{}", headers: { "content-type": "application/problem+json" } }],
    ["of JSON in Latin-1", { body: "{}", headers: { "content-type": "application/json; charset=latin1" } }],
    ["that is compressed", { body: "{}", headers: { ...json, "content-encoding": "gzip" } }],
    ["of a type that is none", { body: "{}", headers: { "content-type": "json" } }],
  ])("%s is 415", async (_name, init) => {
    await expectProblem(await post(init), 415, "unsupported_media_type");
  });

  test.each([json["content-type"], "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'])(
    "of %s is JSON",
    async (type) => {
      expect((await post({ body: '{"color":"red"}', headers: { "content-type": type } })).status).toBe(201);
    },
  );

  test("that is empty needs no type, and is 400 where one is wanted", async () => {
    await expectProblem(await post({}), 400, "invalid_request", [
      { path: "body", message: "The body is empty." },
    ]);
    expect((await post({}, "/v1/boxes/weigh")).status).toBe(200);
    expect((await post({ body: "", headers: form }, "/v1/locks/combination/rotate")).status).toBe(200);
  });

  test("of {} is as good as none where none is wanted; another is not", async () => {
    expect((await post({ body: "{}", headers: json }, "/v1/locks/combination/rotate")).status).toBe(200);
    const other = await post({ body: '{"a":1}', headers: json }, "/v1/locks/combination/rotate");
    await expectProblem(other, 400, "invalid_request", [
      { path: "body", message: "This operation takes no body." },
    ]);
  });

  test.each([
    ["{", "The body is not valid JSON."],
    ["  ", "The body is empty."],
    ["'a'", "The body is not valid JSON."],
    ["\ufeff{}", "The body is not valid JSON."],
    [`{"a":${"[".repeat(600)}${"]".repeat(600)}}`, "The body is nested deeper than 512 levels."],
    [`${"[".repeat(30_000)}`, "The body is nested deeper than 512 levels."],
  ])("%.20s is 400", async (body, message) => {
    await expectProblem(await post({ body, headers: json }), 400, "invalid_request", [
      { path: "body", message },
    ]);
  });

  test("may hold any number of brackets, as long as they are shallow or in its texts", async () => {
    const body = JSON.stringify({ color: "red", note: `\\"${"[{".repeat(40)}` });
    expect((await post({ body, headers: json })).status).toBe(201);
    const wide = await post({ body: JSON.stringify(Array(2000).fill([])), headers: json });
    expect(await wide.json()).toMatchObject({
      errors: [{ path: "body", message: "Must be an object." }],
    });
    const long = JSON.stringify({ color: "red", note: `\\"${"[".repeat(600)}` });
    expect(await (await post({ body: long, headers: json })).json()).toMatchObject({
      errors: [{ path: "body.note" }],
    });
  });

  test("that is not UTF-8 is 400", async () => {
    const body = Buffer.from('{"color":"\xff"}', "latin1");
    const message = "The body is not valid UTF-8.";
    await expectProblem(await post({ body, headers: json }), 400, "invalid_request", [
      { path: "body", message },
    ]);
  });

  test.each([
    ['{"color":"red","weight":1,"weight":2}', ["body.weight"]],
    ['{"color":"red","color":"red"}', ["body.color"]],
    ['{"color":"red","weight":1,"weight":1,"weight":1,"color":"red"}', ["body.weight", "body.color"]],
    ['{"color":"red","we\\u0069ght":1,"weight":2}', ["body.weight"]],
    ['{"a":[{"b":1},{"b":{"c":1,"c":1}}]}', ["body.a.1.b.c"]],
    ['{"__proto__":1,"__proto__":1}', ["body.__proto__"]],
    ['{"color":"red","":1,"":1}', ["body."]],
  ])("%s, with a member that stands there twice, is 400", async (body, paths) => {
    await expectProblem(
      await post({ body, headers: json }),
      400,
      "invalid_request",
      paths.map((path) => ({ path, message: "Duplicate field." })),
    );
  });

  test("may have members of one name in different objects, and texts that look like members", async () => {
    const body = '[{"a":1,"b":{"a":[{"a":2},{"a":3}]}},{"a":"\\"a\\":1,\\"a\\":1"}]';
    await expectProblem(await post({ body, headers: json }), 400, "invalid_request", [
      { path: "body", message: "Must be an object." },
    ]);
  });

  test("with a hundred members repeated names twenty, shortly", async () => {
    const members = Array.from({ length: 100 }, (_, index) => `"${index}${"x".repeat(300)}":1`);
    const response = await post({ body: `{${[...members, ...members].join()}}`, headers: json });
    const { errors } = (await response.json()) as { errors: { path: string }[] };
    expect(errors).toHaveLength(20);
    for (const { path } of errors) expect(path.length).toBeLessThanOrEqual(200);
  });

  test("with mistakes names each of them and echoes none of its values", async () => {
    const body = '{"color":"my secret","weight":0,"__proto__":{"a":1},"constructor":2,"hight":3}';
    const response = await post({ body, headers: json });
    expect(await response.clone().text()).not.toContain("my secret");
    await expectProblem(response, 400, "invalid_request", [
      { path: "body.color", message: "Must be one of red, blue." },
      { path: "body.weight", message: "Must be at least 1." },
      ...["__proto__", "constructor", "hight"].map((name) => ({
        path: `body.${name}`,
        message: "Unknown field.",
      })),
    ]);
  });

  test("with a thousand mistakes names twenty, shortly", async () => {
    const names = Array.from({ length: 1000 }, (_, index) => [`${"x".repeat(50)}\ud800${index}`, 1]);
    const response = await post({ body: JSON.stringify(Object.fromEntries(names)), headers: json });
    const { errors } = (await response.json()) as { errors: { path: string }[] };
    expect(errors).toHaveLength(20);
    for (const { path } of errors) expect(path.length).toBeLessThanOrEqual(200);
  });

  test.each([100_000, 5_000_000])("of %d bytes is 413, and the answer is seen", async (bytes) => {
    const response = await post({ body: `"${"x".repeat(bytes)}"`, headers: json });
    await expectProblem(response, 413, "payload_too_large");
  });

  test("that is refused is read to its end, for a client that reads no answer before", async () => {
    const auth = await start();
    await api.listen();
    const socket = connect(api.port(), "127.0.0.1");
    const bytes = 5_000_000;
    const headers = [
      "Host: x",
      `Authorization: ${auth.authorization}`,
      "Content-Type: application/json",
      "Idempotency-Key: k",
      `Content-Length: ${bytes}`,
    ].join("\r\n");
    socket.write(`POST /v1/boxes HTTP/1.1\r\n${headers}\r\n\r\n`);
    await new Promise<void>((resolve, reject) => {
      socket.write(Buffer.alloc(bytes, 32), (error) => (error ? reject(error) : resolve()));
    });
    // The connection is still good for another request.
    socket.write("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    const answers = await text(socket);
    expect(answers).toMatch(/^HTTP\/1\.1 413 /);
    expect(answers).toContain('{"status":"ok"}');
  });

  test("of unannounced length is 413 past the bound", async () => {
    const auth = await start();
    await api.listen();
    const socket = connect(api.port(), "127.0.0.1");
    const headers = [
      "Host: x",
      `Authorization: ${auth.authorization}`,
      "Content-Type: application/json",
      "Idempotency-Key: k",
      "Transfer-Encoding: chunked",
    ];
    socket.write(`POST /v1/boxes HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`);
    socket.write(`11000\r\n${"x".repeat(0x11000)}\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 413 /);
  });

  describe("of unannounced length", () => {
    const chunked = async (path: string, body: string, ...more: string[]): Promise<Response> => {
      const socket = connect(api.port(), "127.0.0.1");
      const headers = [
        "Host: x",
        "Connection: close",
        `Authorization: Bearer ${api.key}`,
        `Idempotency-Key: ${path}`,
        "Transfer-Encoding: chunked",
        ...more,
      ];
      const chunk = body === "" ? "" : `${body.length.toString(16)}\r\n${body}\r\n`;
      socket.write(`POST ${path} HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n${chunk}0\r\n\r\n`);
      return asResponse(await text(socket));
    };

    test.each([
      [[]],
      [["Content-Type: text/plain"]],
      [["Content-Type: application/json"]],
      [["Content-Encoding: gzip"]],
    ])("and empty needs no type: %j", async (headers) => {
      await start();
      await api.listen();
      expect((await chunked("/v1/locks/combination/rotate", "", ...headers)).status).toBe(200);
      expect((await chunked("/v1/boxes/weigh", "", ...headers)).status).toBe(200);
      await expectProblem(await chunked("/v1/boxes", "", ...headers), 400, "invalid_request", [
        { path: "body", message: "The body is empty." },
      ]);
    });

    test.each([
      [[]],
      [["Content-Type: text/plain"]],
      [["Content-Type: json"]],
      [["Content-Type: application/json; charset=latin1"]],
      [["Content-Type: application/json", "Content-Encoding: gzip"]],
    ])("and not empty is 415 where it is not declared as JSON: %j", async (headers) => {
      await start();
      await api.listen();
      for (const path of ["/v1/locks/combination/rotate", "/v1/boxes/weigh", "/v1/boxes"]) {
        await expectProblem(await chunked(path, "{}", ...headers), 415, "unsupported_media_type");
      }
      expect(api.store.commits()).toBe(0);
    });

    test("and declared as JSON is taken", async () => {
      await start();
      await api.listen();
      const made = await chunked("/v1/boxes", '{"color":"red"}', "Content-Type: application/json");
      expect(made.status).toBe(201);
    });
  });

  test("without a key is not read", async () => {
    await start();
    const body = `"${"x".repeat(5_000_000)}"`;
    const response = await fetch(`${await api.listen()}/v1/boxes`, { method: "POST", body, headers: write });
    await expectProblem(response, 401, "unauthorized");
  });
});
