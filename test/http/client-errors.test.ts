import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, test } from "vitest";
import { createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(overrides: ToyOverrides = {}): Promise<{ authorization: string }> {
  api = await createToyApi(overrides);
  return { authorization: `Bearer ${api.key}` };
}

async function sendRaw(bytes: string): Promise<{ head: string; problem: Record<string, unknown> }> {
  const socket = connect(api.port(), "127.0.0.1");
  socket.write(bytes, "latin1");
  const [head = "", body = ""] = (await text(socket)).split("\r\n\r\n");
  return { head, problem: JSON.parse(body) };
}

describe("broken HTTP", () => {
  test.each([
    ["no HTTP at all", "HELLO\r\n\r\n", "The request is not well-formed HTTP/1.1."],
    [
      "a broken header",
      "GET / HTTP/1.1\r\nHost: x\r\nA B\r\n\r\n",
      "The request is not well-formed HTTP/1.1.",
    ],
    [
      "two lengths",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      "The request is not well-formed HTTP/1.1.",
    ],
    [
      "headers without end",
      `GET / HTTP/1.1\r\nHost: x\r\n${"a: b\r\n".repeat(9000)}\r\n`,
      "The headers are larger than 16 KiB.",
    ],
  ])("%s is answered with a problem", async (_name, bytes, message) => {
    await start();
    await api.listen();
    const { head, problem } = await sendRaw(bytes);
    expect(head).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(head).toMatch(/\r\ncontent-type: application\/problem\+json(\r\n|$)/);
    expect(head).toMatch(/\r\nratelimit: "address";r=60;t=60(\r\n|$)/);
    expect(problem).toEqual({
      type: "https://docs.boxes.test/errors/invalid_request",
      title: "Invalid request",
      status: 400,
      code: "invalid_request",
      request_id: /\r\nx-request-id: ([^\r]+)/.exec(head)?.[1],
      errors: [{ path: "http", message }],
    });
  });

  test("that names no host is answered like any other request", async () => {
    await start();
    await api.listen();
    const { head, problem } = await sendRaw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    expect(head).toMatch(/^HTTP\/1\.1 400 /);
    expect(problem).toMatchObject({ code: "invalid_request", errors: [{ path: "header.host" }] });
    const { head: probe } = await sendRaw("GET /healthz HTTP/1.0\r\n\r\n");
    expect(probe).toMatch(/^HTTP\/1\.1 200 /);
  });

  test.each(["Host: x\r\nHost: y", "Host: x\r\nhOST: x", "Host: x\r\na: Host\r\nhost:"])(
    "that names two hosts is refused: %j",
    async (headers) => {
      await start();
      await api.listen();
      const { head, problem } = await sendRaw(
        `GET /healthz HTTP/1.1\r\n${headers}\r\nConnection: close\r\n\r\n`,
      );
      expect(head).toMatch(/^HTTP\/1\.1 400 /);
      const errors = [{ path: "header.host", message: "There is more than one." }];
      expect(problem).toMatchObject({ code: "invalid_request", errors });
    },
  );

  test("with two keys is refused: somebody in front may go by the other", async () => {
    const { authorization } = await start();
    await api.listen();
    const headers = ["Host: x", `Authorization: ${authorization}`, "authorization: x", "Connection: close"];
    const { head, problem } = await sendRaw(`GET /v1/boxes HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`);
    expect(head).toMatch(/^HTTP\/1\.1 400 /);
    const errors = [{ path: "header.authorization", message: "There is more than one." }];
    expect(problem).toMatchObject({ code: "invalid_request", errors });
  });

  test("that never ends is answered when its time is up", async () => {
    await start();
    const errors: (Error & { code?: string })[] = [];
    api.app.server.once("connection", (socket) => {
      errors.push(Object.assign(new Error("late"), { code: "ERR_HTTP_REQUEST_TIMEOUT" }));
      api.app.server.emit("clientError", errors[0], socket);
    });
    await api.listen();
    const { problem } = await sendRaw("GET / HTTP/1.1\r\n");
    expect(problem).toMatchObject({
      errors: [{ path: "http", message: "The request did not arrive in time." }],
    });
  });

  test("leaves the server able to answer the next", async () => {
    const auth = await start();
    const url = await api.listen();
    await sendRaw("HELLO\r\n\r\n");
    const socket = connect(api.port(), "127.0.0.1");
    socket.write("POST /v1/boxes HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
    socket.end();
    await text(socket).catch(() => "");
    const response = await fetch(`${url}/v1/boxes`, { headers: auth });
    expect(response.status).toBe(200);
    expect(api.faults).toEqual([]);
  });

  test("an expectation that we do not know is no reason to refuse", async () => {
    const auth = await start();
    await api.listen();
    const socket = connect(api.port(), "127.0.0.1");
    const headers = `Host: x\r\nExpect: the-unexpected\r\nAuthorization: ${auth.authorization}\r\nConnection: close`;
    socket.write(`GET /v1/boxes HTTP/1.1\r\n${headers}\r\n\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 /);
  });
});

describe("CONNECT", () => {
  const connectTo = (authority: string): string =>
    `CONNECT ${authority} HTTP/1.1\r\nHost: x\r\nX-Request-Id: r1\r\n\r\n`;

  test("is answered like any method at an address of nothing, and closed", async () => {
    await start();
    await api.listen();
    const { head, problem } = await sendRaw(connectTo("a.b:443"));
    expect(head).toMatch(/^HTTP\/1\.1 404 Not Found\r\n/);
    expect(head).toMatch(/\r\nconnection: close(\r\n|$)/i);
    expect(head).toMatch(/\r\nratelimit: "address";r=59;t=60\r\n/);
    expect(head).toMatch(/\r\nx-request-id: r1\r\n/);
    expect(problem).toEqual({
      type: "https://docs.boxes.test/errors/not_found",
      title: "Not found",
      status: 404,
      code: "not_found",
      request_id: "r1",
    });
    expect(api.answered).toMatchObject([{ method: "CONNECT", status: 404, operationKey: "none" }]);
  });

  test("behind a request that is not answered yet harms nobody", async () => {
    await start();
    await api.listen();
    const socket = connect(api.port(), "127.0.0.1");
    socket.write(`GET /v1/boxes HTTP/1.1\r\nHost: x\r\n\r\n${connectTo("a.b:443")}`);
    await text(socket).catch(() => "");
    expect((await fetch(`http://127.0.0.1:${api.port()}/healthz`)).status).toBe(200);
  });

  test("of a client that goes before its answer harms nobody", async () => {
    const { promise: entered, resolve: enter } = Promise.withResolvers<void>();
    const { promise: left, resolve: leave } = Promise.withResolvers<void>();
    await start({
      countRequest: async () => {
        enter();
        await left;
        return { requests: 1, resetMs: 1000 };
      },
    });
    const url = await api.listen();
    const accepted = once(api.app.server, "connection");
    const socket = connect(api.port(), "127.0.0.1");
    socket.write(connectTo("a.b:443"));
    const [served] = (await accepted) as [Socket];
    await entered;
    socket.resetAndDestroy();
    await new Promise((resolve) => served.once("close", resolve));
    leave();
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect(api.faults).toEqual([]);
  });
});

describe("a server that closes", () => {
  test("still answers what has begun, and says that the connection ends", async () => {
    const auth = await start();
    await api.listen();
    const { promise: opened, resolve: open } = Promise.withResolvers<void>();
    const { promise: entered, resolve: enter } = Promise.withResolvers<void>();
    api.boxes.gate = () => {
      enter();
      return opened;
    };
    const working = fetch(`${api.app.listeningOrigin}/v1/boxes`, { headers: auth });
    await entered;

    // Another connection has got half of its next request across: the answer to the one before shows it.
    const socket = connect(api.port(), "127.0.0.1");
    socket.write("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/nothing HTTP/1.1\r\nHost: x\r\n");
    await once(socket, "readable");
    const closed = api.app.close();
    await expect.poll(() => api.app.server.listening).toBe(false);
    socket.write("\r\n");
    open();

    const response = await working;
    expect([response.status, response.headers.get("connection")]).toEqual([200, "close"]);
    const answers = await text(socket);
    expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 404"]);
    expect(answers).toContain('"code":"not_found"');
    await closed;
  });
});
