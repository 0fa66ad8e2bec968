import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { digestSecret } from "../../src/http/api-keys.ts";
import { endingOf, sendNextMail } from "../../src/notices/mail-sending.ts";
import type { NoticeContent } from "../../src/notices/notice-kinds.ts";
import { claimMail, collectMails, giveUpCutMails, settleMail } from "../../src/notices/notice-mails-sql.ts";
import { removeRecipient } from "../../src/notices/notice-recipients-sql.ts";
import { startNoticeWork } from "../../src/notices/notice-work.ts";
import { addNotice } from "../../src/notices/notices-sql.ts";
import type { Mail, SendResult } from "../../src/notices/smtp.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import {
  begin,
  changeRows,
  countRows,
  createTestAccount,
  insertRow,
  rowOf,
  rowsOf,
} from "../support/installation.ts";

const HOUR = 3_600_000;
const PUBLIC_URL = "https://api.example.com";

const databases: TestDatabase[] = [];
let database: TestDatabase;
let accountId: string;
afterAll(async () => {
  await Promise.all(databases.map((one) => one.drop()));
});
// Mails are sent whoever they are for, so each test has a database of its own.
beforeEach(async () => {
  database = await createTestDatabase();
  databases.push(database);
  ({ accountId } = await createTestAccount(database));
});

async function addRecipient(address: string, isConfirmed = true): Promise<string> {
  const confirmed_at = isConfirmed ? new Date() : null;
  return (
    await insertRow(database.pool, "notice_recipients", { account_id: accountId, address, confirmed_at })
  ).id;
}

let subjects = 0;
const certificate: NoticeContent = {
  kind: "certificate.expiring",
  details: { host: "hooks.example.com", expires_at: "2026-12-01T00:00:00.000Z" },
};
const secret: NoticeContent = {
  kind: "secret.expiring",
  details: { rotated_at: "2026-11-22T00:00:00.000Z", expires_at: "2026-11-23T00:00:00.000Z" },
};
function tell(content: NoticeContent = certificate): Promise<boolean> {
  subjects += 1;
  return addNotice(database.pool, { ...content, accountId, subject: `s-${subjects}` });
}

const collect = () => collectMails(database.pool, { everyMs: HOUR, untilMs: 24 * HOUR, groupsMax: 100 });

/** Sends what is due, each mail ending as `result` says; returns what was given to the mail server. */
async function sendAll(result: SendResult = { kind: "sent" }): Promise<readonly Mail[]> {
  const given: Mail[] = [];
  const send = async (mail: Mail) => {
    given.push(mail);
    return result;
  };
  const options = { pool: database.pool, send, publicUrl: PUBLIC_URL, onEnded: () => undefined };
  while (await sendNextMail(options, new AbortController().signal));
  return given;
}

describe("notices of one account and kind are collected", () => {
  test("into one mail to each confirmed recipient", async () => {
    await addRecipient("ada@example.com");
    await addRecipient("bob@example.com");
    await addRecipient("eve@example.com", false);
    await tell();
    await tell();
    await tell(secret);
    expect(await collect()).toBe(4);
    const mails = await sendAll();
    const told = mails.map(({ to, subject }) => `${to} ${subject}`).sort();
    expect(told).toEqual([
      "ada@example.com test: The certificate of hooks.example.com expires, and 1 more",
      "ada@example.com test: The previous signing secret expires",
      "bob@example.com test: The certificate of hooks.example.com expires, and 1 more",
      "bob@example.com test: The previous signing secret expires",
    ]);
  });

  test("at most once an hour; what comes meanwhile is in the next", async () => {
    await addRecipient("ada@example.com");
    await tell();
    expect(await collect()).toBe(1);
    await tell();
    await tell();
    expect(await collect()).toBe(0);
    await tell(secret);
    expect(await collect()).toBe(1);
    await passTime(HOUR - 60_000);
    expect(await collect()).toBe(0);
    await passTime(60_001);
    expect(await collect()).toBe(1);
    const subjectsSent = (await sendAll()).map(({ subject }) => subject);
    expect(subjectsSent.at(-1)).toContain("and 1 more");
  });

  test("for nobody, where nobody has asked: a recipient who comes later gets no old ones", async () => {
    await tell();
    expect(await collect()).toBe(0);
    await addRecipient("ada@example.com");
    expect(await collect()).toBe(0);
    await tell();
    expect(await collect()).toBe(1);
  });

  test("not when they are a day old, because there was no mail server", async () => {
    await addRecipient("ada@example.com");
    const { rows } = await database.pool.query("select sealpost.uuid_v7(now() - interval '25 hours') as id");
    await insertRow(database.pool, "notices", {
      id: rows[0].id,
      account_id: accountId,
      kind: "secret.expiring",
      subject: "old",
      details: secret.details,
    });
    expect(await collect()).toBe(0);
    expect(await countRows(database.pool, "notices", { collected_at: null })).toBe(0);
  });

  test("once, by two that collect at once", async () => {
    await addRecipient("ada@example.com");
    await tell();
    const collected = await Promise.all([collect(), collect(), collect()]);
    expect(collected.filter((mails) => mails > 0)).toEqual([1]);
    expect(await sendAll()).toHaveLength(1);
  });

  /** Makes all that was collected older. */
  async function passTime(ms: number): Promise<void> {
    await database.pool.query(
      "update sealpost.notices set collected_at = collected_at - $1::float8 * interval '1 millisecond'",
      [ms],
    );
  }
});

describe("a mail says", () => {
  test("what happened, since when, what to do, where to see it, and how to end it", async () => {
    const id = await addRecipient("ada@example.com");
    await tell();
    await collect();
    const [mail] = await sendAll();
    expect(mail?.text).toContain("Account: test");
    expect(mail?.text).toContain(
      "The TLS certificate of hooks.example.com expires on 1 December 2026, 00:00 UTC.",
    );
    expect(mail?.text).toContain("What to do\nRenew it before then");
    expect(mail?.text).toContain(`Where to see it\n${PUBLIC_URL}/v1/webhooks/endpoint`);
    expect(mail?.text).toContain(`DELETE ${PUBLIC_URL}/v1/webhooks/notices/recipients/${id}`);
  });

  test("only the host of an endpoint, and at most 20 of a kind", async () => {
    await addRecipient("ada@example.com");
    const details = {
      url: "https://hooks.example.com/planted-secret",
      reason: "abandoned",
      since: null,
      failed_attempts: 0,
      abandoned: 3,
      error_code: "status_503",
    } as const;
    for (let n = 0; n < 23; n++) await tell({ kind: "endpoint.failing", details });
    await collect();
    const [mail] = await sendAll();
    expect(mail?.subject).toBe("test: Webhooks to hooks.example.com were abandoned, and 22 more");
    expect(mail?.text).not.toContain("planted-secret");
    expect(mail?.text.match(/3 deliveries were abandoned/g)).toHaveLength(20);
    expect(mail?.text).toContain("3 more of this kind");
  });

  test("in a confirmation's link a token that is stored as its digest alone", async () => {
    const id = await addRecipient("ada@example.com", false);
    await insertRow(database.pool, "notice_mails", {
      account_id: accountId,
      recipient_id: id,
      address: "ada@example.com",
    });
    const [mail] = await sendAll();
    const token =
      /https:\/\/api\.example\.com\/notices\/confirm\/([\w-]{43})\n/.exec(mail?.text ?? "")?.[1] ?? "";
    expect(Buffer.from(token, "base64url")).toHaveLength(32);
    const { token_digest, token_expires_at } = await rowOf(database.pool, "notice_recipients", { id });
    expect(token_digest.equals(digestSecret(token))).toBe(true);
    const validDays = (token_expires_at.getTime() - Date.now()) / 86_400_000;
    expect(validDays).toBeGreaterThan(6.9);
    expect(validDays).toBeLessThanOrEqual(7);
  });
});

describe("a mail is sent at most once", () => {
  beforeEach(async () => {
    await addRecipient("ada@example.com");
    await tell();
    await collect();
  });
  const onlyMail = () => rowOf(database.pool, "notice_mails");
  const claim = () => claimMail(database.pool, 60_000, 20);
  const letClaimsEnd = () =>
    changeRows(
      database.pool,
      "notice_mails",
      { status: "sending" },
      { claimed_until: new Date(Date.now() - 1) },
    );

  test("by one of several that claim", async () => {
    const claimed = await Promise.all([claim(), claim(), claim()]);
    expect(claimed.filter((mail) => mail !== null)).toHaveLength(1);
    expect(await sendAll()).toEqual([]);
  });

  test("and not once its account is erased", async () => {
    await changeRows(database.pool, "accounts", {}, { erased_at: new Date() });
    expect(await claim()).toBeNull();
    await changeRows(database.pool, "accounts", {}, { erased_at: null });
    expect(await claim()).not.toBeNull();
  });

  test("not again when whoever claimed it has died: it is perhaps sent", async () => {
    const mail = await claim();
    expect(await giveUpCutMails(database.pool)).toEqual([]);
    await letClaimsEnd();
    expect(await giveUpCutMails(database.pool)).toEqual([mail?.id]);
    expect(await sendAll()).toEqual([]);
    expect(await onlyMail()).toMatchObject({ status: "perhaps_sent", claim_token: null });
  });

  test("and its late sender changes nothing", async () => {
    const mail = await claim();
    await letClaimsEnd();
    await giveUpCutMails(database.pool);
    expect(await settleMail(database.pool, mail!, { status: "sent" })).toBe(false);
    expect((await onlyMail()).status).toBe("perhaps_sent");
  });

  test("not again when it was cut on its way", async () => {
    expect(await sendAll({ kind: "perhaps_sent", error: "Timeout" })).toHaveLength(1);
    expect(await sendAll()).toEqual([]);
    expect(await onlyMail()).toMatchObject({ status: "perhaps_sent", error: "Timeout" });
  });

  test("but again, later, when it has not left for certain; six times at most", async () => {
    const refused: SendResult = { kind: "not_sent", error: "ECONNREFUSED", isRefusedForGood: false };
    const waits: number[] = [];
    for (let tries = 0; tries < 6; tries++) {
      const askedAt = Date.now();
      expect(await sendAll(refused)).toHaveLength(1);
      expect(await sendAll(refused)).toEqual([]);
      const { due_at, tries: tried } = await onlyMail();
      expect(tried).toBe(tries + 1);
      waits.push(Math.round((due_at.getTime() - askedAt) / 60_000));
      await changeRows(
        database.pool,
        "notice_mails",
        { status: "waiting" },
        { due_at: new Date(askedAt - 1) },
      );
    }
    expect(waits.slice(0, 5)).toEqual([1, 4, 16, 64, 256]);
    expect(await onlyMail()).toMatchObject({ status: "failed", error: "ECONNREFUSED" });
  });

  test("nor again when it is refused for good", async () => {
    await sendAll({ kind: "not_sent", error: "550 no such mailbox", isRefusedForGood: true });
    expect((await onlyMail()).status).toBe("failed");
  });

  test("a stop of ours uses up no try", () => {
    const result = { kind: "not_sent", error: "stopping", isRefusedForGood: false } as const;
    const ending = endingOf(result, { tries: 5 }, true);
    expect(ending).toEqual({ status: "waiting", error: "stopping", againInMs: 0, isTry: false });
  });

  test("nor at all once the recipient was removed", async () => {
    const { client, commit } = await begin(database.pool);
    const [recipient] = await rowsOf(client, "notice_recipients");
    expect(await removeRecipient(client, accountId, recipient?.id)).toBe(true);
    await commit();
    expect(await sendAll()).toEqual([]);
    expect((await onlyMail()).status).toBe("failed");
  });
});

test("a mail server that hangs keeps nobody from looking for news, and a stop does not wait for it", async () => {
  await addRecipient("ada@example.com");
  await tell();
  const asked = Promise.withResolvers<void>();
  const found = Promise.withResolvers<void>();
  const send = async (_: Mail, signal: AbortSignal): Promise<SendResult> => {
    asked.resolve();
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    return { kind: "not_sent", error: "stopped", isRefusedForGood: false };
  };
  const { pool } = database;
  const stop = startNoticeWork({
    pool,
    everyMs: 10,
    analysisRetentionMs: 7 * 24 * HOUR,
    onNotice: () => found.resolve(),
    sending: { send, publicUrl: PUBLIC_URL, onEnded: () => undefined },
    onCut: () => undefined,
    onError: (_, error) => found.reject(error),
  });
  try {
    await asked.promise;
    await insertRow(pool, "endpoints", { account_id: accountId, url: "https://hooks.example.com/" });
    const ends_at = new Date(Date.now() + 24 * HOUR);
    await insertRow(pool, "endpoint_certificates", {
      account_id: accountId,
      host: "hooks.example.com",
      ends_at,
    });
    await found.promise;
  } finally {
    await stop();
  }
  expect((await rowsOf(pool, "notice_mails"))[0]).toMatchObject({ status: "waiting", tries: 0 });
});
