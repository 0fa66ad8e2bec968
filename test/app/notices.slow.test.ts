import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { sharedAuthority } from "../support/certificates.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import {
  changeRows,
  createTestAccount,
  createTestKey,
  insertRow,
  publish,
  rowOf,
  rowsOf,
} from "../support/installation.ts";
import { type MailServerOptions, startIllServer, startMailServer } from "../support/mail-server.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const HOUR = 3_600_000;

let database: TestDatabase;
let receiver: Receiver;
let status = 200;
const running: SealpostProcess[] = [];
const open: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  receiver = await startReceiver({ handler: () => ({ status }) });
});
afterAll(async () => {
  await receiver.close();
});
beforeEach(async () => {
  status = 200;
  database = await createTestDatabase();
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.stop()));
  await Promise.all(open.splice(0).map((one) => one.close()));
  await database.drop();
});

async function start(command: "serve" | "dispatch", smtpUrl: string): Promise<SealpostProcess> {
  const targets = targetsEnv([receiver]);
  const started = await startProcess(command, {
    DATABASE_URL: database.url,
    SMTP_URL: smtpUrl,
    NOTICES_FROM: "Sealpost <notices@example.org>",
    PUBLIC_URL: "https://api.example.com",
    ...targets,
    // The mail server's authority: as an operator adds one.
    NODE_EXTRA_CA_CERTS: targets.TARGET_CA_FILE,
    RETRY_WINDOW_SECONDS: "5",
  });
  running.push(started);
  return started;
}

async function startMail(options: MailServerOptions = {}) {
  const server = await startMailServer(options);
  open.push(server);
  return server;
}

const poll = (look: () => unknown) => expect.poll(look, { timeout: patience(20_000), interval: 50 });
const metric = async ({ metricsUrl }: SealpostProcess, line: string) =>
  (await (await fetch(`${metricsUrl}/metrics`)).text()).includes(line);

test("an endpoint fails, somebody who has confirmed is told, it recovers, and they are told", async () => {
  const mail = await startMail({ credentials: { user: "sealpost", password: "planted-secret" } });
  const [dispatcher, api] = await Promise.all([start("dispatch", mail.url), start("serve", mail.url)]);
  const { accountId } = await createTestAccount(database, receiver.url("/in").href);
  const { apiKey } = await createTestKey(database.pool, accountId);
  const ask = async (method: string, path: string, body?: unknown) => {
    const response = await fetch(`${api.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${apiKey}`,
        "idempotency-key": `k-${method}`,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return (await response.json()) as {
      readonly items: readonly { readonly kind: string; readonly mails: unknown }[];
    };
  };

  await ask("POST", "/v1/webhooks/notices/recipients", { address: "ada@example.com" });
  const [asking] = await mail.waitForMails(1, 20_000);
  expect(asking).toMatchObject({ to: ["ada@example.com"], isSecure: true, user: "sealpost" });
  const link = /https:\/\/api\.example\.com(\/notices\/confirm\/\S+)/.exec(asking?.text ?? "")?.[1];
  expect((await fetch(`${api.url}${link}`)).status).toBe(200);
  expect((await fetch(`${api.url}${link}`, { method: "POST" })).status).toBe(200);

  status = 503;
  await publish(database.pool, accountId, '{"id":"a-1","status":"succeeded"}');
  // Failing for an hour takes an hour: the row is made older.
  await poll(() => rowsOf(database.pool, "endpoint_health")).toMatchObject([
    { last_error_code: "status_503" },
  ]);
  const longAgo = { failing_since: new Date(Date.now() - HOUR), failed_attempts: 10 };
  await changeRows(database.pool, "endpoint_health", { account_id: accountId }, longAgo);
  const [, failing] = await mail.waitForMails(2, 20_000);
  expect(failing?.headers.get("subject")).toMatch(/^test: localhost:\d+ does not accept webhooks$/);
  expect(failing?.text).toContain("The last error was status_503");

  status = 200;
  await publish(database.pool, accountId, '{"id":"a-2","status":"succeeded"}');
  const [, , recovered] = await mail.waitForMails(3, 20_000);
  expect(recovered?.headers.get("subject")).toMatch(/^test: localhost:\d+ accepts webhooks again$/);

  await poll(async () => (await ask("GET", "/v1/webhooks/notices")).items).toMatchObject([
    { kind: "endpoint.recovered", mails: [{ address: "ada@example.com", status: "sent" }] },
    { kind: "endpoint.failing", mails: [{ address: "ada@example.com", status: "sent" }] },
  ]);
  expect(await metric(dispatcher, 'sealpost_notice_mails_total{result="sent"} 3')).toBe(true);
  const output = dispatcher.output() + api.output();
  for (const secret of ["planted-secret", "ada@example.com", String(link)])
    expect(output).not.toContain(secret);
});

test("the endpoint's certificate is seen while delivering", async () => {
  const authority = await sharedAuthority();
  const notAfter = new Date(Math.floor(Date.now() / 1_000) * 1_000 + 13 * 24 * HOUR);
  const certificate = await authority.issue({ names: ["127.0.0.1"], notAfter });
  await using short = await startReceiver({ certificate });
  const { accountId } = await createTestAccount(database, short.url("/", "127.0.0.1").href);
  await publish(database.pool, accountId, '{"id":"a-1","status":"succeeded"}');
  const dispatcher = await startProcess("dispatch", {
    DATABASE_URL: database.url,
    ...targetsEnv([short]),
    RETRY_WINDOW_SECONDS: "5",
  });
  running.push(dispatcher);
  await poll(() => rowsOf(database.pool, "notices")).toMatchObject([
    {
      kind: "certificate.expiring",
      details: { host: `127.0.0.1:${short.port}`, expires_at: notAfter.toISOString() },
    },
  ]);
  // And says at its start that nobody gets a mail.
  expect(dispatcher.output()).toContain("SMTP_URL is unset");
});

describe("with a mail that is due", () => {
  let accountId: string;
  beforeEach(async () => {
    ({ accountId } = await createTestAccount(database, receiver.url("/in").href));
    const recipient = { account_id: accountId, address: "ada@example.com" };
    const { id: recipient_id } = await insertRow(database.pool, "notice_recipients", recipient);
    await insertRow(database.pool, "notice_mails", { ...recipient, recipient_id });
  });

  test("deliveries flow as ever while the mail server hangs, and the process ends in time", async () => {
    const ill = await startIllServer();
    open.push(ill);
    const connected = ill.nextConnection();
    const dispatcher = await start("dispatch", ill.url);
    await connected;
    const before = receiver.requests.length;
    for (let n = 0; n < 50; n++) {
      await publish(database.pool, accountId, `{"id":"a-${n}","status":"succeeded"}`);
    }
    await receiver.waitForRequests(before + 50);
    await poll(async () => (await rowsOf(database.pool, "deliveries", { status: "succeeded" })).length).toBe(
      50,
    );
    // The mail is still on its way to nowhere.
    expect(await rowOf(database.pool, "notice_mails")).toMatchObject({ status: "sending" });
    expect(await dispatcher.stop()).toBe(0);
    expect(await rowOf(database.pool, "notice_mails")).toMatchObject({ status: "waiting", tries: 0 });
  });

  test("a process that is killed while it sends leaves one that is perhaps sent, and is not sent again", async () => {
    const hanging = await startMail({ hangsAfterMessage: true });
    const killed = await start("dispatch", hanging.url);
    await hanging.waitForMails(1, 20_000);
    await killed.kill();
    expect(await rowOf(database.pool, "notice_mails")).toMatchObject({ status: "sending" });
    // Its claim ends after a minute: it is made older.
    await changeRows(database.pool, "notice_mails", {}, { claimed_until: new Date(Date.now() - 1) });
    const mail = await startMail();
    const next = await start("dispatch", mail.url);
    await poll(() => rowOf(database.pool, "notice_mails")).toMatchObject({ status: "perhaps_sent" });
    await poll(() => next.output()).toContain("perhaps sent");
    expect(mail.mails).toEqual([]);
    expect(hanging.mails).toHaveLength(1);
  });

  test("a mail server that is down is tried again later, and its error is in the log", async () => {
    const down = await startIllServer();
    await down.close();
    const dispatcher = await start("dispatch", down.url.replace("//", "//ada:planted-secret@"));
    await poll(() => dispatcher.output()).toContain("ECONNREFUSED");
    await poll(() => rowOf(database.pool, "notice_mails")).toMatchObject({ status: "waiting", tries: 1 });
    expect(dispatcher.output()).not.toContain("planted-secret");
  });
});
