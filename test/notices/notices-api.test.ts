import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { deleteOldRows } from "../../src/base/database/old-rows.ts";
import { NOTICE_KINDS } from "../../src/base/model/notices.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import type { NoticeContent } from "../../src/notices/notice-kinds.ts";
import { addNotice } from "../../src/notices/notices-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { changeRows, countRows, insertRow, rowOf } from "../support/installation.ts";
import { MAIL, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const path = "/v1/webhooks/notices";
const recipients = `${path}/recipients`;
const NOW = "2026-11-22T10:43:00.000Z";

const contents: Readonly<Record<NoticeContent["kind"], NoticeContent>> = {
  "endpoint.failing": {
    kind: "endpoint.failing",
    details: {
      url: "https://hooks.example.com/in",
      reason: "no_success",
      since: NOW,
      failed_attempts: 14,
      abandoned: 1,
      error_code: "status_503",
    },
  },
  "endpoint.recovered": {
    kind: "endpoint.recovered",
    details: { url: "https://hooks.example.com/in", succeeded_at: NOW, to_replay: 12 },
  },
  "secret.expiring": { kind: "secret.expiring", details: { rotated_at: NOW, expires_at: NOW } },
  "certificate.expiring": {
    kind: "certificate.expiring",
    details: { host: "hooks.example.com", expires_at: NOW },
  },
};

let database: TestDatabase;
let api: TestApi;
let account: TestAccount;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database, MAIL);
});
afterAll(async () => {
  await api.close();
  await database.drop();
});
beforeEach(async () => {
  account = await api.newAccount();
});

const ask = (method: string, at: string, body?: unknown) =>
  api.ask(method, at, { key: account.ownKey, ...(body === undefined ? {} : { body }) });
const add = (address: unknown) => ask("POST", recipients, { address });

describe("notices", () => {
  const tellAll = async () => {
    for (const kind of NOTICE_KINDS) {
      await addNotice(database.pool, { ...contents[kind], accountId: account.accountId, subject: "s" });
    }
  };

  test("of every kind are listed with what they tell, in words and in fields", async () => {
    await tellAll();
    const { status, body } = await ask("GET", path);
    expect(status).toBe(200);
    expect(body).toMatchObject({ total: 4, next_cursor: null });
    const [certificate, secret, recovered, failing] = body.items as Record<string, unknown>[];
    expect(failing).toMatchObject({
      kind: "endpoint.failing",
      details: {
        url: "https://hooks.example.com/in",
        reason: "no_success",
        since: "2026-11-22T10:43:00.000Z",
        failed_attempts: 14,
        abandoned: 1,
        error_code: "status_503",
      },
      title: "hooks.example.com does not accept webhooks",
      mails: [],
    });
    expect(failing?.message).toContain(
      "No webhook has been accepted since 22 November 2026, 10:43 UTC; 14 attempts have failed. " +
        "1 delivery was abandoned and will not be tried again unless replayed. The last error was status_503: ",
    );
    expect(recovered).toMatchObject({ details: { to_replay: 12 } });
    expect(recovered?.message).toContain("12 abandoned deliveries are waiting to be replayed.");
    expect(secret).toMatchObject({ details: { expires_at: "2026-11-22T10:43:00.000Z" } });
    expect(certificate).toMatchObject({ details: { host: "hooks.example.com" } });
  });

  test.each(NOTICE_KINDS)("of the kind %s alone", async (kind) => {
    await tellAll();
    const { body } = await ask("GET", `${path}?kind=${kind}`);
    expect((body.items as { kind: string }[]).map((item) => item.kind)).toEqual([kind]);
    expect(body.total).toBe(1);
  });

  test("are listed page by page, newest first", async () => {
    await tellAll();
    const seen: unknown[] = [];
    let cursor = "";
    for (;;) {
      const { body } = await ask("GET", `${path}?limit=3${cursor}`);
      seen.push(...(body.items as { kind: string }[]).map(({ kind }) => kind));
      if (body.next_cursor === null) break;
      cursor = `&cursor=${body.next_cursor}`;
    }
    expect(seen).toEqual(NOTICE_KINDS.toReversed());
  });

  test("refuse a kind that there is not, and a cursor of another kind", async () => {
    await tellAll();
    expect((await ask("GET", `${path}?kind=endpoint.lost`)).status).toBe(400);
    const { next_cursor } = (await ask("GET", `${path}?limit=1`)).body;
    expect((await ask("GET", `${path}?kind=endpoint.failing&cursor=${next_cursor}`)).status).toBe(400);
  });

  test("say who was told by mail", async () => {
    await tellAll();
    const batch = "11111111-1111-4111-8111-111111111111";
    const notice = { account_id: account.accountId, kind: "endpoint.failing" };
    await changeRows(database.pool, "notices", notice, { batch, collected_at: new Date() });
    const mail = { account_id: account.accountId, recipient_id: batch, batch };
    await insertRow(database.pool, "notice_mails", { ...mail, address: "b@example.com" });
    const ended = { status: "perhaps_sent", ended_at: new Date(NOW) };
    await insertRow(database.pool, "notice_mails", { ...mail, address: "a@example.com", ...ended });
    const { body } = await ask("GET", `${path}?kind=endpoint.failing`);
    expect(body.items).toMatchObject([
      {
        mails: [
          { address: "a@example.com", status: "perhaps_sent", ended_at: "2026-11-22T10:43:00.000Z" },
          { address: "b@example.com", status: "waiting", ended_at: null },
        ],
      },
    ]);
  });
});

describe("recipients", () => {
  test("are added unconfirmed, listed and removed", async () => {
    const added = await add("Ada@Example.com");
    expect(added.status).toBe(202);
    expect(added.body).toMatchObject({
      address: "Ada@example.com",
      status: "unconfirmed",
      confirmation_mail: "waiting",
      confirmed_at: null,
    });
    const listed = await ask("GET", recipients);
    expect(listed.body).toEqual({ items: [added.body], next_cursor: null, total: 1, sends_mail: true });
    expect((await ask("DELETE", `${recipients}/${added.body.id}`)).status).toBe(204);
    expect((await ask("DELETE", `${recipients}/${added.body.id}`)).status).toBe(404);
    expect((await ask("GET", recipients)).body.total).toBe(0);
  });

  test("are listed page by page", async () => {
    for (const name of ["a", "b", "c"]) await add(`${name}@example.com`);
    const first = (await ask("GET", `${recipients}?limit=2`)).body;
    const second = (await ask("GET", `${recipients}?limit=2&cursor=${first.next_cursor}`)).body;
    const addresses = [first, second].flatMap(({ items }) =>
      (items as { address: string }[]).map((one) => one.address),
    );
    expect(addresses).toEqual(["c@example.com", "b@example.com", "a@example.com"]);
    expect(second.next_cursor).toBeNull();
  });

  test("are ten at most, whoever asks at once", async () => {
    const added = await Promise.all(Array.from({ length: 12 }, (_, n) => add(`a${n}@example.com`)));
    expect(added.map(({ status }) => status).sort()).toEqual([...new Array(10).fill(202), 409, 409]);
    expect(added.find(({ status }) => status === 409)?.body.code).toBe("too_many_recipients");
    expect((await add("a0@example.com")).status).toBe(202);
  });

  test.each([
    ["ada@example.com\r\nBcc: eve@example.com", "line breaks"],
    ["ada@exämple.com", "ASCII"],
    ["Ada <ada@example.com>", "before the @"],
    ["ada@localhost", "domain name"],
    ["ada@db.svc.cluster.local", "cluster.local"],
    ["", "Not an e-mail address"],
    [`ada@${"a".repeat(300)}.com`, "254"],
  ])("refuse %j", async (address, said) => {
    const { status, body } = await add(address);
    expect([status, body.code]).toEqual([400, "invalid_request"]);
    expect(body.errors).toMatchObject([{ path: "body.address" }]);
    expect(JSON.stringify(body.errors)).toContain(said);
    expect(await countRows(database.pool, "notice_mails", { account_id: account.accountId })).toBe(0);
  });

  test("are not added where no mail is sent, and the list says so", async () => {
    const other = await startTestApi(database);
    try {
      const key = account.ownKey;
      const refused = await other.ask("POST", recipients, { key, body: { address: "ada@example.com" } });
      expect([refused.status, refused.body.code]).toEqual([409, "mail_not_configured"]);
      expect((await other.ask("GET", recipients, { key })).body).toMatchObject({ sends_mail: false });
    } finally {
      await other.close();
    }
  });

  const mails = (address: string) => countRows(database.pool, "notice_mails", { address });
  const passTime = (minutes: number) =>
    database.pool.query(
      `update sealpost.notice_mails set id = sealpost.uuid_v7(sealpost.uuid_v7_time(id) - $1 * interval '1 minute')
       where account_id = $2`,
      [minutes, account.accountId],
    );

  test("are asked again when added again, but not within ten minutes, nor once confirmed", async () => {
    const first = await add("again@example.com");
    const second = await add("AGAIN@example.com");
    expect(second.body).toEqual(first.body);
    expect(await mails("again@example.com")).toBe(1);
    await passTime(11);
    expect((await add("again@example.com")).body.id).toBe(first.body.id);
    expect(await mails("again@example.com")).toBe(2);
    await passTime(11);
    await changeRows(database.pool, "notice_recipients", { id: first.body.id }, { confirmed_at: new Date() });
    expect((await add("again@example.com")).body.status).toBe("confirmed");
    expect(await mails("again@example.com")).toBe(2);
  });

  test("are not written to more than five times a day, whoever adds and removes them", async () => {
    for (let n = 0; n < 5; n++) {
      account = await api.newAccount();
      const added = await add("flood@example.com");
      expect(added.status).toBe(202);
      await ask("DELETE", `${recipients}/${added.body.id}`);
    }
    account = await api.newAccount();
    const refused = await add("Flood@example.com");
    expect([refused.status, refused.body.code]).toEqual([429, "rate_limited"]);
    expect(refused.headers.get("retry-after")).toBe("3600");
    expect((await add("other@example.com")).status).toBe(202);
    expect(await mails("flood@example.com")).toBe(5);
  });

  test("nor by many at the same moment", async () => {
    const accounts = await Promise.all(Array.from({ length: 15 }, () => api.newAccount()));
    const body = { address: "crowd@example.com" };
    const added = accounts.map(({ ownKey: key }) => api.ask("POST", recipients, { key, body }));
    const statuses = (await Promise.all(added)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 202)).toHaveLength(5);
    expect(await mails("crowd@example.com")).toBe(5);
  });

  test("are not twenty-one strangers a day", async () => {
    for (let n = 0; n < 20; n++) {
      const added = await add(`stranger${n}@example.com`);
      expect(added.status).toBe(202);
      await ask("DELETE", `${recipients}/${added.body.id}`);
    }
    expect((await add("one-more@example.com")).status).toBe(429);
    await passTime(24 * 60 + 1);
    expect((await add("one-more@example.com")).status).toBe(202);
  });

  test("that nobody confirmed for 7 days are forgotten, others not", async () => {
    const old = { created_at: new Date(Date.now() - 8 * 86_400_000) };
    const ids = await Promise.all(
      ["never", "asked-again", "agreed", "new"].map((name) => add(`${name}@example.net`)),
    );
    const [never, again, agreed] = ids.map(({ body }) => ({ id: body.id }));
    await changeRows(database.pool, "notice_recipients", never!, old);
    const token = { token_digest: digestSecret("x"), token_expires_at: new Date(Date.now() + 60_000) };
    await changeRows(database.pool, "notice_recipients", again!, { ...old, ...token });
    await changeRows(database.pool, "notice_recipients", agreed!, { ...old, confirmed_at: new Date() });
    expect(await deleteOldRows(database.pool, "notice_recipients", 7 * 86_400_000, 100)).toBe(1);
    const left = ((await ask("GET", recipients)).body.items as { address: string }[]).map(
      ({ address }) => address,
    );
    expect(left.sort()).toEqual(["agreed@example.net", "asked-again@example.net", "new@example.net"]);
  });
});

describe("the link of a confirmation", () => {
  const token = "t".repeat(43);
  let id: string;
  let address: string;
  let addressesCount = 0;
  const open = (method: string, of = token) =>
    fetch(`${api.url}/notices/confirm/${of}`, { method, redirect: "manual" });
  const isConfirmed = async () =>
    (await rowOf(database.pool, "notice_recipients", { id })).confirmed_at !== null;

  beforeEach(async () => {
    await changeRows(database.pool, "notice_recipients", {}, { token_digest: null, token_expires_at: null });
    addressesCount += 1;
    address = `reader${addressesCount}@example.com`;
    id = String((await add(address)).body.id);
    const token_expires_at = new Date(Date.now() + 60_000);
    const stored = { token_digest: digestSecret(token), token_expires_at };
    await changeRows(database.pool, "notice_recipients", { id }, stored);
  });

  test("shows a page with a button, and confirms nothing, whoever follows it", async () => {
    for (const method of ["GET", "HEAD", "GET"]) expect((await open(method)).status).toBe(200);
    expect(await isConfirmed()).toBe(false);
    const page = await open("GET");
    const html = await page.text();
    expect(html).toContain('<form method="post"><button type="submit">Yes, send them</button></form>');
    expect(html).toContain(address);
    expect(Object.fromEntries(page.headers)).toMatchObject({
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      "content-security-policy": expect.stringContaining("form-action 'self'"),
    });
  });

  test("confirms when the button is pressed, as a browser does, and again", async () => {
    for (let n = 0; n < 2; n++) {
      const pressed = await fetch(`${api.url}/notices/confirm/${token}`, {
        method: "POST",
        headers: { "content-type": "application/x-www-form-urlencoded" },
        body: "",
      });
      expect(pressed.status).toBe(200);
      expect(await pressed.text()).toContain(`${address} gets notices`);
      expect(await isConfirmed()).toBe(true);
    }
    expect((await ask("GET", recipients)).body.items).toMatchObject([{ status: "confirmed" }]);
    expect(await (await open("GET")).text()).not.toContain("<form");
  });

  test.each([
    ["that was never sent", "u".repeat(43)],
    ["of its digest", digestSecret(token).toString("base64url")],
    ["without a letter", token.slice(1)],
    ["with a NUL", "%00"],
    ["that is no text", "%ff"],
  ])("says that it is not valid: %s", async (_, other) => {
    for (const method of ["GET", "POST"]) {
      const page = await open(method, other);
      expect([400, 404]).toContain(page.status);
    }
    expect(await isConfirmed()).toBe(false);
  });

  test("is good for as long as it says", async () => {
    await changeRows(
      database.pool,
      "notice_recipients",
      { id },
      { token_expires_at: new Date(Date.now() - 1) },
    );
    for (const method of ["GET", "POST"]) {
      const page = await open(method);
      expect(page.status).toBe(404);
      expect(await page.text()).toContain("This link is not valid");
    }
    expect(await isConfirmed()).toBe(false);
  });

  test("escapes the account's name", async () => {
    await changeRows(
      database.pool,
      "accounts",
      { id: account.accountId },
      { name: '<script>alert("x")</script>' },
    );
    const html = await (await open("GET")).text();
    expect(html).not.toContain("<script");
    expect(html).toContain("&#60;script&#62;");
  });

  test("allows only these methods, and is in no log", async () => {
    const refused = await open("DELETE");
    expect([refused.status, refused.headers.get("allow")]).toEqual([405, "GET, HEAD, POST"]);
    expect(JSON.stringify(api.log)).not.toContain(token);
  });
});
