import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { targetsEnv } from "../../support/dispatching.ts";
import {
  createTestAccount,
  createTestKey,
  endSessions,
  publish,
  refusingRows,
  rotateSecret,
  SECRETS_KEY,
} from "../../support/installation.ts";
import { leaksIn } from "../../support/output-watch.ts";
import { type Receiver, startReceiver } from "../../support/receiver.ts";
import { type SealpostProcess, startProcess } from "../../support/sealpost-process.ts";

const ANSWER = "planted-secret-in-an-answer";
const BODY = "planted-secret-in-an-analysis";
const HEADER = "planted-secret-in-a-header";
const PATH = "planted-secret-in-a-path";
const PASSWORD = "planted-secret-password";

let database: TestDatabase;
let receiver: Receiver;
const processes: SealpostProcess[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  receiver = await startReceiver({
    handler: ({ path }) => ({
      status: path.includes("fail") ? 503 : 200,
      headers: { server: ANSWER },
      body: `${ANSWER}\0`,
    }),
  });
});
afterAll(async () => {
  await Promise.all(processes.map((one) => one.stop()));
  await receiver.close();
  await database.drop();
});

async function start(command: "serve" | "dispatch", env: Record<string, string> = {}) {
  const url = new URL(database.url);
  url.password ||= PASSWORD;
  const started = await startProcess(command, {
    DATABASE_URL: url.href,
    LOG_LEVEL: "trace",
    ...targetsEnv([receiver]),
    RETRY_WINDOW_SECONDS: "5",
    ...env,
  });
  processes.push(started);
  return started;
}

const said = async (one: SealpostProcess, text: string) =>
  await expect.poll(() => one.output()).toContain(text);

test("no secret, no body, no path, no answer gets into a log, at any level, whatever goes wrong", async () => {
  const dispatcher = await start("dispatch");
  const api = await start("serve");
  const account = await createTestAccount(database, receiver.url(`/fail?token=${PATH}`).href);
  const other = await createTestAccount(database, receiver.url(`/${PATH}`).href);
  const rotated = await rotateSecret(database.pool, other.accountId);
  const { apiKey } = await createTestKey(database.pool, account.accountId);
  const { apiKey: staffKey } = await createTestKey(database.pool, null);
  const analysis = (id: string, status = "succeeded") => JSON.stringify({ id, status, text: BODY });
  const ask = (method: string, path: string, body: string, key = apiKey) =>
    fetch(`${api.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        "idempotency-key": randomUUID(),
      },
      body,
    });
  const send = (body: string, key = apiKey) => ask("POST", "/v1/analyses", body, key);
  const setHeader = (value: string) => {
    const url = receiver.url(`/fail?token=${PATH}`).href;
    const body = { url, headers: [{ name: "x-gate", value, secret: true }] };
    return ask("PUT", "/v1/webhooks/endpoint", JSON.stringify(body));
  };

  // What goes well, what receivers refuse, and what callers do wrong.
  expect((await setHeader(`${HEADER}\n`)).status).toBe(400);
  expect((await setHeader(HEADER)).status).toBe(200);
  expect((await refusingRows(database.pool, "endpoints", () => setHeader(HEADER))).status).toBe(500);
  await publish(database.pool, other.accountId, analysis("a-1"));
  expect((await send(`{"analysis":${analysis("a-2")}}`)).status).toBe(202);
  expect((await send(`{"analysis":${analysis("a-2", "failed")}}`)).status).toBe(409);
  expect((await send(`{"analysis":${analysis("a-3")}`)).status).toBe(400);
  expect(
    (await send(`{"analysis":${analysis("a-4")},"webhook_url":"https://10.0.0.1/${PATH}"}`)).status,
  ).toBe(422);
  expect((await send("{}", `${apiKey.slice(0, -4)}AAAA`)).status).toBe(401);
  expect((await send(`{"analysis":${analysis("a-5")}}`, staffKey)).status).toBe(400);
  await fetch(`${api.url}/v1/webhooks/signing-secret`, { headers: { authorization: `Bearer ${apiKey}` } });
  await said(dispatcher, '"outcome":"succeeded"');
  await said(dispatcher, '"error_code":"status_503"');
  expect(receiver.requests.map(({ headers }) => headers["x-gate"])).toContain(HEADER);

  // PostgreSQL refuses rows, and puts them whole into its errors.
  await refusingRows(database.pool, "attempts", async () => {
    await publish(database.pool, other.accountId, analysis("a-6"));
    await said(dispatcher, '"work":"record"');
  });
  const refused = () => send(`{"analysis":${analysis("a-7")}}`);
  expect((await refusingRows(database.pool, "bodies", refused)).status).toBe(500);
  await said(api, "internal error");

  // A dispatcher with another key is refused, and a secret that was changed does not open.
  const wrongKey = Buffer.alloc(32, 9).toString("base64");
  const env = { DATABASE_URL: database.url, SECRETS_KEY: wrongKey };
  const { code, stdout, stderr } = await runSealpost(["dispatch"], { env });
  expect(code).toBe(2);
  await database.pool.query(
    "update sealpost.signing_secrets set sealed = set_byte(sealed, 20, 255 - get_byte(sealed, 20))",
  );
  await publish(database.pool, other.accountId, analysis("a-8"));
  await said(dispatcher, '"work":"deliver"');

  // The database cuts every connection.
  await endSessions(database.pool);
  await said(dispatcher, "a database connection broke");

  const outputs = processes.map((one) => one.output()).join("") + stdout + stderr;
  const signature = String(receiver.requests[0]?.headers["extract-signature"]);
  expect(signature).toMatch(/^t=\d+,v1=[0-9a-f]{64}/);
  const planted = [
    ...[
      ANSWER,
      BODY,
      HEADER,
      PATH,
      PASSWORD,
      wrongKey,
      SECRETS_KEY.toString("base64"),
      SECRETS_KEY.toString("hex"),
    ],
    ...[account.secret, other.secret, rotated, apiKey, staffKey],
    ...receiver.requests.flatMap((request) =>
      String(request.headers["extract-signature"]).match(/[0-9a-f]{64}/g),
    ),
  ];
  expect(planted.length).toBeGreaterThan(13);
  expect(planted.filter((secret) => outputs.includes(String(secret)))).toEqual([]);
});

test("the search of the whole suite's output would find one", () => {
  const key = `svc_test_${"a".repeat(43)}`;
  const log = (message: string) =>
    `stdout {"level":"info","time":"2026-01-01T00:00:00.000Z","msg":"${message}"}\n`;
  for (const secret of [key, `whsec_${"A".repeat(43)}=`, `v1=${"0".repeat(64)}`, BODY, "hunter2"]) {
    expect(leaksIn(log(secret))).toHaveLength(1);
    expect(leaksIn(`stderr something about ${secret}\n`)).toHaveLength(1);
  }
  expect(leaksIn(log("svc_test_short v1=00 whsec_ nothing"))).toEqual([]);
  // A command that makes a key answers with it.
  expect(leaksIn(`stdout {"key_id":"1","api_key":"${key}"}\n`)).toEqual([]);
});
