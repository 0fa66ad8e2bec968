import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { reseal } from "../../src/base/database/resealing.ts";
import { hidingSecrets, unsealHeaders } from "../../src/delivery/endpoint-headers.ts";
import { excerptOf, recordedHeaders } from "../../src/egress/post/result.ts";
import { verifyWebhook } from "../../src/signing/index.ts";
import { startTestDispatcher, targetsEnv, unsafeAllowed } from "../support/dispatching.ts";
import { allowTargets, changeRows, publish, rowOf, rowsOf, SECRETS_KEY } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import { type ReceivedRequest, startReceiver } from "../support/receiver.ts";
import type { AskOptions, Json, TestAccount } from "../support/sealpost-api.ts";

const path = "/v1/webhooks/endpoint";
const SECRET_VALUE = 'Basic "c2VjcmV0LWhlYWRlcg=="';

/** Sends back what it was sent, as a receiver in trouble may. */
const receiver = await startReceiver({
  handler: ({ headers, path: asked }) => ({
    status: asked === "/ok" ? 200 : 500,
    headers: { "x-echo": String(headers["x-gate"]) },
    body: `${JSON.stringify(headers)} ${String(headers["x-gate"]).slice(0, -3)}`,
  }),
});
/** Allowed, too, at another port. */
const elsewhere = await startReceiver();
const { database, api } = await openApi(targetsEnv([receiver, elsewhere]));
await allowTargets(database.pool, unsafeAllowed([receiver, elsewhere]));
afterAll(async () => {
  await receiver.close();
  await elsewhere.close();
});
let account: TestAccount;
beforeEach(async () => {
  const made = await api.newAccount();
  account = { ...made, key: made.ownKey };
  receiver.requests.length = 0;
});

const url = (at = "/ok") => receiver.url(at).href;
const set = (body: Json, options: AskOptions = {}) =>
  api.ask("PUT", path, { ...account, ...options, body: { url: url(), ...body } });
const GATE = { name: "X-Gate", value: SECRET_VALUE, secret: true };
const PLAIN = { name: "x-tenant", value: "7", secret: false };

async function delivered(webhookUrl: string | null = null): Promise<ReceivedRequest> {
  const dispatcher = startTestDispatcher(database, [receiver]);
  try {
    await publish(
      database.pool,
      account.accountId,
      `{"id":"${Math.random()}","status":"succeeded"}`,
      webhookUrl,
    );
    await dispatcher.waitForAttempts(1);
    expect(dispatcher.failures).toEqual([]);
  } finally {
    await dispatcher.stop();
  }
  return receiver.requests.at(-1)!;
}

test("come with every webhook to the endpoint, beside the service's own, and with none to a webhook_url", async () => {
  await set({ headers: [GATE, PLAIN] });
  const { headers, body } = await delivered();
  expect(headers).toMatchObject({
    "x-gate": SECRET_VALUE,
    "x-tenant": "7",
    "content-type": "application/json",
  });
  verifyWebhook({ rawBody: body, headers, secret: account.secret });
  const other = await delivered(url("/ok?other"));
  expect(other.path).toBe("/ok?other");
  expect(Object.keys(other.headers)).not.toEqual(expect.arrayContaining(["x-gate"]));
  expect(other.headers["x-tenant"]).toBeUndefined();
});

test("are shown again, but never a secret value: not in an answer, a row or a log", async () => {
  const { body } = await set({ url: url("/fails"), headers: [GATE, PLAIN] });
  const shown = [
    { name: "X-Gate", value: null, secret: true },
    { name: "x-tenant", value: "7", secret: false },
  ];
  expect(body.headers).toEqual(shown);
  const read = await api.ask("GET", path, account);
  expect(read.body.headers).toEqual(shown);
  expect((await delivered()).headers["x-gate"], "it was sent").toBe(SECRET_VALUE);

  const { accountId } = account;
  const [attempt] = await rowsOf(database.pool, "attempts", { account_id: accountId });
  expect(attempt!.response_excerpt).toContain("[secret]");
  const tables = ["endpoints", "attempts", "audit_log", "idempotency_keys", "deliveries"];
  const rows = await Promise.all(
    tables.map((table) => rowsOf(database.pool, table, { account_id: accountId })),
  );
  const everything = JSON.stringify([rows, body, read.body, api.log]);
  for (const form of [SECRET_VALUE, "c2VjcmV0", Buffer.from(SECRET_VALUE).toString("hex")])
    expect(everything).not.toContain(form);
  const audited = (await rowsOf(database.pool, "audit_log", { account_id: accountId })).at(-1)!;
  expect(audited.details).toMatchObject({ headers: ["X-Gate", "x-tenant"] });
});

test.each([[[]], [[PLAIN]]])("can be set to %j where nothing opens those of before", async (headers) => {
  await set({ headers: [GATE] });
  await changeRows(
    database.pool,
    "endpoints",
    { account_id: account.accountId },
    { sealed_headers: Buffer.from("x") },
  );
  await expect(set({ headers: [{ name: GATE.name, secret: true }] })).rejects.toThrow("cannot be decrypted");
  expect((await set({ headers })).body.headers).toEqual(headers);
  expect((await delivered()).headers["x-tenant"]).toBe(headers[0]?.value);
});

test("stay as they are when they are not given; one without a value keeps it; what is left out is gone", async () => {
  await set({ headers: [GATE, PLAIN] });
  expect((await set({})).body.headers).toHaveLength(2);
  await set({ headers: [{ name: "x-gate", secret: true }] });
  const { headers } = await delivered();
  expect([headers["x-gate"], headers["x-tenant"]]).toEqual([SECRET_VALUE, undefined]);
  await set({ headers: [{ ...GATE, value: "next-secret" }] });
  expect((await delivered()).headers["x-gate"], "rotated").toBe("next-secret");
  const { sealed_headers: sealed } = await rowOf(database.pool, "endpoints", {
    account_id: account.accountId,
  });
  expect(sealed).not.toBeNull();
  await set({ headers: [] });
  const row = await rowOf(database.pool, "endpoints", { account_id: account.accountId });
  expect(row.sealed_headers).toBeNull();
});

test.each([
  ["another host", () => receiver.url("/ok", "127.0.0.1").href],
  ["another port", () => elsewhere.url("/ok").href],
])("at %s the secret ones are gone, and cannot be kept", async (_, other) => {
  await set({ headers: [GATE, PLAIN] });
  const kept = await set({ url: other(), headers: [{ name: "X-Gate", secret: true }] });
  expect([kept.status, kept.body.code]).toEqual([400, "invalid_request"]);
  expect(kept.body.errors).toEqual([
    { path: "body.headers.0.value", message: "There is no value to be kept: send one." },
  ]);
  const { body } = await api.ask("GET", path, account);
  expect([body.url, body.headers], "nothing was done").toEqual([url(), [expect.anything(), PLAIN]]);
  expect((await set({ url: url("/another-path") })).body.headers, "the same origin").toHaveLength(2);
  expect((await set({ url: other() })).body.headers).toEqual([PLAIN]);
  expect((await set({})).body.headers, "back again").toEqual([PLAIN]);
});

test("a secret value cannot be made readable, whoever asks, nor be too short to be hidden", async () => {
  expect((await set({ headers: [{ ...GATE, value: "1234567" }] })).status).toBe(400);
  await set({ headers: [GATE] });
  const { status } = await set({ headers: [{ name: "X-Gate", secret: false }] });
  expect(status).toBe(400);
  expect((await set({ headers: [{ name: "new", secret: true }] })).status).toBe(400);
});

test("the secret ones go nowhere else, however the URL got there", async () => {
  await set({ headers: [GATE, PLAIN] });
  // As a process of the version before does it, or another first PUT at the same moment.
  await changeRows(
    database.pool,
    "endpoints",
    { account_id: account.accountId },
    { url: elsewhere.url("/ok").href },
  );
  const dispatcher = startTestDispatcher(database, [elsewhere]);
  await publish(database.pool, account.accountId, '{"id":"elsewhere","status":"succeeded"}');
  const [request] = await elsewhere.waitForRequests(1);
  await dispatcher.stop();
  expect([request!.headers["x-gate"], request!.headers["x-tenant"]]).toEqual([undefined, "7"]);
  expect((await api.ask("GET", path, account)).body.headers).toEqual([PLAIN]);
});

describe("what a receiver sends back is logged without secret values", () => {
  const hide = hidingSecrets([
    { name: "authorization", value: "Bearer Zx9/SECRET+token=", secret: true },
    { name: "x-basic", value: `Basic ${Buffer.from("ada:pass<word>").toString("base64")}`, secret: true },
    { name: "x-json", value: '{"server":"y"}', secret: true },
    { name: "x-open", value: "open-value", secret: false },
  ])!;

  test.each([
    ["Bearer Zx9/SECRET+token=", "[secret]"],
    ["invalid token: Zx9/SECRET+token=", "invalid token: [secret]"],
    ["INVALID TOKEN: ZX9/SECRET+TOKEN=", "INVALID TOKEN: [secret]"],
    ["the token Zx9/SECRET+to… is not known", "the token [secret]… is not known"],
    ["ET+token= in\nBearer Zx9/SECR", "ET+token= in\n[secret]"],
    ['{"a":"Bearer Zx9\\/SECRET+token="}', '{"a":"[secret]"}'],
    ['{"a":"Zx9/SECRET\\u002Btoken\\u003D"}', '{"a":"[secret]"}'],
    ['{"a":"{\\"b\\":\\"Zx9/SECRET\\\\u002btoken\\u003d\\"}"}', '{"a":"{\\"b\\":\\"[secret]\\"}"}'],
    ["?t=Zx9%2FSECRET%2Btoken%3D&u", "?t=[secret]&u"],
    ["?t=zx9%2fsecret%2btoken%3d&u", "?t=[secret]&u"],
    ["?r=%2Flogin%3Ft%3DZx9%252FSECRET%252Btoken%253D", "?r=%2Flogin%3Ft%3D[secret]"],
    ["<p>Zx9/SECRET&#43;token&#61; &amp; more</p>", "<p>[secret] &amp; more</p>"],
    ["<p>Zx9&#x2F;SECRET+token&#x3D;</p>", "<p>[secret]</p>"],
    ["hello ada:pass<word>", "hello [secret]"],
    ["hello pass&lt;word&gt;", "hello [secret]"],
    ["hello pass\\u003cword\\u003e", "hello [secret]"],
    ["cut off: Bearer Zx9/SECR", "cut off: [secret]"],
    ["cut off: Zx9%2", "cut off: Zx9%2"],
    ["cut off: Zx9%2FSE%", "cut off: [secret]"],
    ["open-value", "open-value"],
  ])("%s", (text, told) => {
    expect(hide(text)).toBe(told);
  });

  test.each(["", "y", "yy"])("in base64, behind %j", (before) => {
    const text = Buffer.from(`${before}Zx9/SECRET+token=, and more`).toString("base64");
    expect(hide(`${text} and ${text.slice(before.length)}`)).toMatch(/^\[secret\]=* and \[secret\]=*$/);
  });

  test("where the text was cut, in a body and in a header, and JSON stays JSON", () => {
    const value = "Bearer Zx9/SECRET+token=";
    for (let before = 990; before < 1_024; before++) {
      const chunks = [Buffer.from(`${"y".repeat(before)}${value}${"z".repeat(300)}`)];
      const bytesCount = chunks[0]!.length;
      expect(excerptOf({ chunks, bytesCount, isCut: false }, {}, 1_024, hide)).not.toMatch(/Zx9|Bear/);
    }
    const location = `https://l/?${"q".repeat(460)}${value}`;
    const recorded = recordedHeaders({ location, server: "nginx", via: '{"server":"y"}' }, hide);
    expect(recorded).toMatchObject({ server: "nginx", via: "[secret]" });
    expect(recorded!.location).not.toMatch(/Zx9|Bear/);
  });

  test.each([
    ["that begin alike, and almost like the answer", "a", "b"],
    ["of which each character has many spellings", `"'<>&/= `, "x"],
  ])("in little time, with headers %s", (_, part, last) => {
    const text = (chars: number, end: string) => part.repeat(chars).slice(0, chars - 1) + end;
    const secrets = Array.from({ length: 9 }, (_, n) => ({
      name: `x-${n}`,
      value: text(640 + n, last),
      secret: true,
    }));
    const names = [
      "allow",
      "cf-ray",
      "date",
      "location",
      "server",
      "via",
      "www-authenticate",
      "x-request-id",
    ];
    const answered = Object.fromEntries(names.map((name) => [name, text(700, "c")]));
    const chunks = [Buffer.from(text(1_024, "c"))];
    const before = process.cpuUsage();
    for (let n = 0; n < 10; n++) {
      // For each attempt anew.
      const hideAll = hidingSecrets(secrets)!;
      recordedHeaders(answered, hideAll);
      excerptOf({ chunks, bytesCount: 1_024, isCut: false }, {}, 1_024, hideAll);
    }
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1_000, "milliseconds").toBeLessThan(200);
  });
});

const named = (name: string) => ({ name, value: "v", secret: false });
const valued = (value: string) => ({ name: "x-a", value, secret: false });
test.each([
  ...["", "a b", "a:b", "ä", "x\r\ny", "x".repeat(101)].map(named),
  ...[
    "Host",
    "content-length",
    "Content-Type",
    "transfer-encoding",
    "Connection",
    "keep-alive",
    "upgrade",
  ].map(named),
  ...["te", "trailer", "proxy-authorization", "expect", "user-agent", "traceparent"].map(named),
  ...[
    "extract-signature",
    "webhook-id",
    "Webhook-Signature",
    "sealpost-probe",
    "Content_Length",
    "extract_signature",
  ].map(named),
  ...["", " v", "v ", "a\r\nx-b: c", "a\nb", "a\tb", "ü", "\u0000", "v".repeat(2_049)].map(valued),
])("$name: $value is refused with the reason, and nothing is set", async (header) => {
  const { status, body } = await set({ headers: [PLAIN, header] });
  expect([status, body.code]).toEqual([400, "invalid_request"]);
  const [{ path: at, message }] = body.errors as [{ path: string; message: string }];
  expect(at).toMatch(/^body\.headers\.1\.(name|value)$/);
  expect(message).toMatch(/^(Must|[a-z0-9-]+ is set by)/);
  expect((await api.ask("GET", path, account)).status).toBe(404);
});

test.each([
  ["eleven", Array.from({ length: 11 }, (_, n) => named(`x-${n}`))],
  ["two of one name", [named("x-a"), named("X-A")]],
  ["more than servers take", [1, 2, 3].map((n) => ({ ...named(`x-${n}`), value: "v".repeat(2_048) }))],
])("%s are refused", async (_, headers) => {
  expect((await set({ headers })).status).toBe(400);
});

test("are sealed anew with another key, and an account's do not open for another", async () => {
  await set({ headers: [GATE] });
  const where = { account_id: account.accountId };
  const { sealed_headers: before } = await rowOf(database.pool, "endpoints", where);
  const count = await reseal(database.pool, [Buffer.alloc(32, 9), SECRETS_KEY]);
  expect(count).toBeGreaterThan(0);
  expect((await rowOf(database.pool, "endpoints", where)).sealed_headers).not.toEqual(before);
  await reseal(database.pool, [SECRETS_KEY, Buffer.alloc(32, 9)]);
  const { sealed_headers: sealed } = await rowOf(database.pool, "endpoints", where);
  const { accountId: other } = await api.newAccount();
  expect(unsealHeaders(sealed, url(), account.accountId, SECRETS_KEY)).toEqual([GATE]);
  expect(() => unsealHeaders(sealed, url(), other, SECRETS_KEY)).toThrow("cannot be decrypted");
});
