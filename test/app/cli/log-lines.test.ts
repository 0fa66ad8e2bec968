import { randomBytes, randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { expect, test } from "vitest";
import { createTestDatabase } from "../../support/database.ts";
import { targetsEnv } from "../../support/dispatching.ts";
import { createTestAccount, createTestKey } from "../../support/installation.ts";
import { startReceiver } from "../../support/receiver.ts";
import { runProcess, type SealpostProcess, startProcess } from "../../support/sealpost-process.ts";

const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

test("a request and an attempt are one wide line each, and lead to each other", async () => {
  const database = await createTestDatabase();
  const receiver = await startReceiver();
  const env = { DATABASE_URL: database.url, LOG_LEVEL: "debug", ...targetsEnv([receiver]) };
  const [dispatcher, api] = await Promise.all([startProcess("dispatch", env), startProcess("serve", env)]);
  const { accountId } = await createTestAccount(database, receiver.url("/hooks?token=1").href);
  const { apiKey, keyId } = await createTestKey(database.pool, accountId);

  const response = await fetch(`${api.url}/v1/analyses`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${apiKey}`,
      "content-type": "application/json",
      "idempotency-key": "once",
      "x-request-id": "request-1",
      traceparent: TRACE,
    },
    body: '{"analysis":{"id":"a-1","status":"succeeded"}}',
  });
  const { delivery_id } = (await response.json()) as { delivery_id: string };
  await expect.poll(() => dispatcher.output()).toContain('"msg":"attempt"');
  expect([await dispatcher.stop(), await api.stop()]).toEqual([0, 0]);

  const linesOf = ({ lines, errors }: SealpostProcess, msg: string) => {
    expect(errors).toBe("");
    return lines.filter((line) => line.msg === msg);
  };
  expect(linesOf(api, "answered")).toEqual([
    {
      level: "info",
      time: expect.stringMatching(ISO_TIME),
      process: "serve",
      hostname: hostname(),
      pid: api.pid,
      operation: "analyses.publish",
      method: "POST",
      status: 202,
      code: null,
      duration_ms: expect.any(Number),
      request_id: "request-1",
      key_id: keyId,
      account_id: accountId,
      session_id: null,
      traceparent: TRACE,
      msg: "answered",
    },
  ]);
  expect(linesOf(dispatcher, "attempt")).toEqual([
    {
      level: "debug",
      time: expect.stringMatching(ISO_TIME),
      process: "dispatch",
      hostname: hostname(),
      pid: dispatcher.pid,
      account_id: accountId,
      delivery_id,
      run: 1,
      number: 1,
      host: `localhost:${receiver.port}`,
      outcome: "succeeded",
      error_code: null,
      status_code: 200,
      duration_ms: expect.any(Number),
      dns_ms: expect.any(Number),
      connect_ms: expect.any(Number),
      tls_ms: expect.any(Number),
      first_byte_ms: expect.any(Number),
      next: "succeeded",
      traceparent: TRACE,
      recorded: "ours",
      msg: "attempt",
    },
  ]);
  await receiver.close();
  await database.drop();
});

test("a quarantine process that cannot reach the database logs that", async () => {
  const env = {
    DATABASE_URL: "postgres://ada:hunter2@127.0.0.1:1/sealpost",
    SECRETS_KEY: randomBytes(32).toString("base64"),
  };
  const { code, stdout, stderr } = await runProcess(["dispatch", "--alone", randomUUID()], { env });
  expect([code, stderr]).toEqual([1, ""]);
  const lines = stdout.trim().split("\n");
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    {
      level: "error",
      process: "dispatch",
      err: { code: "ECONNREFUSED" },
      msg: "the quarantine's process failed",
    },
  ]);
});

test("LOG_FORMAT=pretty writes the same for people", async () => {
  const env = {
    DATABASE_URL: "postgres://ada:hunter2@127.0.0.1:1/sealpost",
    SECRETS_KEY: randomBytes(32).toString("base64"),
    LOG_FORMAT: "pretty",
  };
  const { code, stdout } = await runProcess(["dispatch", "--alone", randomUUID()], { env });
  expect(code).toBe(1);
  const [first, ...more] = stdout.trim().split("\n");
  expect(first).toMatch(/^\[\d{4}-\d\d-\d\dT[\d:.]+Z\] ERROR \(\d+\): the quarantine's process failed$/);
  expect(more.join("\n")).toMatch(/process: "dispatch"\n +err: \{[\s\S]*ECONNREFUSED/);
});
