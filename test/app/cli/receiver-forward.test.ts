import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { sequenceEvents } from "../../../src/feed/feed-sql.ts";
import { verifyWebhook } from "../../../src/signing/index.ts";
import { RunningCommand, runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { publish } from "../../support/installation.ts";
import { startTestApi, type TestApi } from "../../support/sealpost-api.ts";
import { SealpostProcess } from "../../support/sealpost-process.ts";

const HOLDER = randomUUID();
let database: TestDatabase;
let api: TestApi;
let receiver: Server;
let to: string;
const running: (RunningCommand | SealpostProcess)[] = [];
let made = 0;
let status = 204;
const arrived: { url: string; headers: IncomingHttpHeaders; body: Buffer }[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  receiver = createServer(async (request, response) => {
    arrived.push({ url: request.url ?? "", headers: request.headers, body: await buffer(request) });
    response.writeHead(status).end();
  }).listen(0, "127.0.0.1");
  await once(receiver, "listening");
  to = `http://localhost:${(receiver.address() as AddressInfo).port}/webhooks`;
});
afterEach(async () => {
  for (const one of running.splice(0)) await one.stop();
  // Or the next test would take it for its own.
  await expect.poll(() => api.waiting()).toBe(0);
  arrived.splice(0);
  status = 204;
});
afterAll(async () => {
  receiver.closeAllConnections();
  receiver.close();
  await api.close();
  await database.drop();
});

async function publishInFeed(): Promise<string> {
  const { accountId } = api.account;
  const id = await publish(database.pool, accountId, `{"id":"w-${made++}","status":"failed","n":1.0}`);
  await sequenceEvents(database.pool, HOLDER, 60_000);
  api.news.tell([accountId]);
  return id;
}

/** Starts it; `next` resolves to its next line, parsed. */
async function forward(target = to, more: readonly string[] = [], isProcess = false) {
  const args = ["receiver", "forward", "--to", target, "--api", api.url, "--json", ...more];
  const env = { SEALPOST_API_KEY: api.account.ownKey };
  const started = isProcess ? new SealpostProcess(args, env) : new RunningCommand(args, { env });
  running.push(started);
  const next = async () => JSON.parse(await started.nextLine());
  expect(await next()).toEqual({ event: "forwarding", from: api.url, to: target });
  return { started, next };
}

describe("receiver forward", () => {
  test("posts what is published from now on as a webhook that verifies, and prints a line for each", async () => {
    await publishInFeed();
    const { next, started } = await forward(to, [], true);
    await expect.poll(() => api.waiting()).toBe(1);
    for (const id of [await publishInFeed(), await publishInFeed()]) {
      expect(await next()).toMatchObject({
        event: "forwarded",
        name: "analysis.failed",
        delivery_id: id,
        to,
        status: 204,
        error: null,
      });
      const { url, headers, body } = arrived.shift()!;
      expect(url).toBe("/webhooks");
      expect(headers["content-type"]).toBe("application/json");
      const header = headers["extract-signature"];
      const event = verifyWebhook({ rawBody: body, header, secret: api.account.secret });
      expect(event.id).toBe(id);
      expect(body.toString()).toContain('"n":1.0}');
    }
    await started.stop("SIGINT");
    expect(await started.finished).toMatchObject({ code: 0, stderr: "" });
  });

  test("goes on after a receiver that refuses or is away, and says so", async () => {
    status = 500;
    const { next } = await forward();
    await expect.poll(() => api.waiting()).toBe(1);
    await publishInFeed();
    expect(await next()).toMatchObject({ status: 500, error: null });
    const away = await forward("http://127.0.0.1:1/");
    await expect.poll(() => api.waiting()).toBe(2);
    await publishInFeed();
    expect(await away.next()).toMatchObject({ status: null, error: "bad port" });
  });

  test("begins at the oldest where that is asked for", async () => {
    const { next } = await forward(to, ["--from", "oldest"]);
    const first = await next();
    expect(first).toMatchObject({ status: 204 });
    const { rows } = await database.pool.query("select min(id::text) as id from sealpost.deliveries");
    expect(first.delivery_id).toBe(rows[0].id);
  });
});

describe("receiver forward is refused", () => {
  const env = { SEALPOST_API_KEY: "svc_test_unknown" };
  const run = (args: readonly string[], more: Record<string, string> = env) =>
    runSealpost(["receiver", "forward", ...args], { env: more });

  test.each([
    ["ftp://localhost/", /http:\/\/ or https:\/\/ URL/],
    ["http://user:word@localhost/", /without a user name/],
    ["http://192.168.0.1/", /192\.168\.0\.1, which is not this machine.*--unsafe-any-target/],
    ["http://localhost.example.com/", /not this machine/],
    ["http://[::2]/", /not this machine/],
  ])("to %s", async (url, message) => {
    const { code, stderr } = await run(["--to", url]);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });

  test("without a key, and with one that is not valid", async () => {
    const none = await run(["--to", "http://127.0.0.1:9/"], {});
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining("SEALPOST_API_KEY") });
    const wrong = await run(["--to", "http://[::1]:9/", "--api", api.url]);
    expect(wrong).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/401.*unauthorized.*valid API key/),
    });
  });

  test("with a key that may not read analyses", async () => {
    const key = await api.newKey(api.account.accountId, ["webhooks:read"]);
    const { code, stderr } = await run(["--to", to, "--api", api.url], { SEALPOST_API_KEY: key });
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining("analyses:read") });
  });
});
