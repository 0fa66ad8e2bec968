import { beforeEach, describe, expect, test } from "vitest";
import { deleteOldRows } from "../../src/base/database/old-rows.ts";
import {
  type EndpointNews,
  findExpiringCertificates,
  noteCertificates,
  noteEndpointNews,
} from "../../src/delivery/endpoint-health-sql.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { CERTIFICATE_WARNING_MS, lookForNews } from "../../src/notices/news.ts";
import { findExpiringSecrets, listNotices } from "../../src/notices/notices-sql.ts";
import {
  begin,
  changeRows,
  countRows,
  createTestAccount,
  insertRow,
  publish,
  rotateSecret,
  rowOf,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const URL = "https://hooks.example.com/in?token=t";

const database = await openDatabase();
let accountId: string;
beforeEach(async () => {
  ({ accountId } = await createTestAccount(database, URL));
});

/** The kinds that were told in this look. */
async function look(): Promise<readonly string[]> {
  const told: string[] = [];
  const onNotice = (kind: string, of: string) => {
    if (of === accountId) told.push(kind);
  };
  const options = { pool: database.pool, analysisRetentionMs: 7 * DAY, onNotice };
  await lookForNews(options, new AbortController().signal);
  return told;
}

const notices = async () => (await listNotices(database.pool, accountId, null, null, 100)).items;

function note(news: Partial<EndpointNews>): Promise<void> {
  const nothing = {
    succeededAtMs: null,
    failingSinceMs: null,
    failedAttempts: 0,
    abandoned: 0,
    errorCode: null,
  };
  return noteEndpointNews(database.pool, [{ accountId, url: URL, ...nothing, ...news }]);
}

const fail = (agoMs: number, failedAttempts = 10) =>
  note({ failingSinceMs: Date.now() - agoMs, failedAttempts, errorCode: "status_503" });
const succeed = () => note({ url: null, succeededAtMs: Date.now() });

/** A delivery to the endpoint that did not arrive. */
async function insertUndelivered(
  status: "failed" | "abandoned",
  webhookUrl: string | null = null,
): Promise<void> {
  const reason = status === "abandoned" ? "attempts_exhausted" : null;
  const { id } = await publishOne(webhookUrl);
  await changeRows(database.pool, "deliveries", { id }, { status, reason });
}

let published = 0;
async function publishOne(webhookUrl: string | null) {
  published += 1;
  const analysis = `{"id":"n-${published}","status":"succeeded"}`;
  return { id: await publish(database.pool, accountId, analysis, webhookUrl) };
}

describe("an endpoint without a success for an hour", () => {
  test("is told of once, and told to have recovered once", async () => {
    await insertUndelivered("failed");
    await fail(HOUR + 1_000);
    expect(await look()).toEqual(["endpoint.failing"]);
    expect(await look()).toEqual([]);
    await fail(0);
    expect(await look()).toEqual([]);
    await insertUndelivered("abandoned");
    await insertUndelivered("abandoned");
    await insertUndelivered("abandoned", "https://own.example.com/");
    await note({ url: null, succeededAtMs: Date.now() + 1_000 });
    expect(await look()).toEqual(["endpoint.recovered"]);
    expect(await look()).toEqual([]);
    expect(await notices()).toMatchObject([
      { kind: "endpoint.recovered", details: { url: URL, to_replay: 2 }, mails: [] },
      {
        kind: "endpoint.failing",
        details: {
          url: URL,
          reason: "no_success",
          failed_attempts: 10,
          abandoned: 0,
          error_code: "status_503",
        },
      },
    ]);
  });

  test("is not told of while it is paused, but after that", async () => {
    await insertUndelivered("failed");
    await fail(2 * HOUR);
    await changeRows(database.pool, "endpoints", { account_id: accountId }, { paused_at: new Date() });
    expect(await look()).toEqual([]);
    await changeRows(database.pool, "endpoints", { account_id: accountId }, { paused_at: null });
    expect(await look()).toEqual(["endpoint.failing"]);
  });

  test("is told of by what several dispatchers saw, together", async () => {
    await insertUndelivered("failed");
    await fail(HOUR + 1_000, 4);
    await fail(HOUR, 5);
    expect(await look()).toEqual([]);
    await fail(0, 1);
    expect(await look()).toEqual(["endpoint.failing"]);
  });

  test("is not told of when one has seen a success", async () => {
    await insertUndelivered("failed");
    await fail(HOUR + 1_000);
    await succeed();
    expect(await look()).toEqual([]);
    expect(await countRows(database.pool, "endpoint_health", { account_id: accountId })).toBe(0);
  });

  test("is not told of when a success is within what one has seen", async () => {
    await insertUndelivered("failed");
    await fail(HOUR + 1_000);
    const now = Date.now();
    await note({ succeededAtMs: now, failingSinceMs: now, failedAttempts: 20 });
    expect(await look()).toEqual([]);
  });

  test("is not told of when the URL was another until now", async () => {
    await insertUndelivered("failed");
    await fail(HOUR + 1_000);
    const url = "https://new.example.com/";
    await setEndpoint(database.pool, accountId, url);
    await note({ url, failingSinceMs: Date.now(), failedAttempts: 20 });
    expect(await look()).toEqual([]);
    const row = await rowOf(database.pool, "endpoint_health", { account_id: accountId });
    expect(row).toMatchObject({ url, failed_attempts: 20 });
  });

  test("is not told of when all has arrived: whoever saw the success has died", async () => {
    await insertUndelivered("failed", "https://own.example.com/");
    await fail(HOUR + 1_000);
    expect(await look()).toEqual([]);
    expect(await countRows(database.pool, "endpoint_health", { account_id: accountId })).toBe(0);
  });
});

describe("abandoned deliveries", () => {
  const abandon = async () => {
    await insertUndelivered("abandoned");
    await note({ url: null, abandoned: 1 });
  };

  test("are told of at once, those of the next hour later and together", async () => {
    await abandon();
    expect(await look()).toEqual(["endpoint.failing"]);
    await note({ url: null, succeededAtMs: Date.now() + 1_000 });
    // The endpoint takes others; whoever reads this knows how many to replay.
    await note({ failingSinceMs: Date.now(), failedAttempts: 1 });
    await note({ url: null, succeededAtMs: Date.now() + 1_000 });
    expect(await look()).toEqual(["endpoint.recovered"]);
    await abandon();
    await abandon();
    expect(await look()).toEqual([]);
    await changeRows(
      database.pool,
      "endpoint_health",
      { account_id: accountId },
      { told_at: new Date(Date.now() - HOUR) },
    );
    expect(await look()).toEqual(["endpoint.failing"]);
    expect((await notices())[0]).toMatchObject({
      details: { reason: "abandoned", abandoned: 2, since: null },
    });
  });

  test("that are noted while their notice is written are told of by the next", async () => {
    await abandon();
    await note({ url: null, abandoned: 1 });
    const { client, ...transaction } = await lockedHealth();
    const looking = look();
    await untilSomebodyWaits(database.pool);
    await client.query(
      "update sealpost.endpoint_health set abandoned = abandoned + 5 where account_id = $1",
      [accountId],
    );
    await transaction.commit();
    expect(await looking).toEqual(["endpoint.failing"]);
    const row = await rowOf(database.pool, "endpoint_health", { account_id: accountId });
    expect(row).toMatchObject({ is_failing: true, abandoned: 5 });
  });

  async function lockedHealth() {
    return await begin(database.pool, "lock table sealpost.endpoint_health in share row exclusive mode");
  }
});

describe("two that look at once", () => {
  test("tell everything once", async () => {
    await insertUndelivered("failed");
    await fail(HOUR + 1_000);
    const told = await Promise.all([look(), look(), look()]);
    expect(told.flat()).toEqual(["endpoint.failing"]);
  });
});

describe("a signing secret", () => {
  test("is told of before the end of its overlap, once", async () => {
    await rotateSecret(database.pool, accountId, 2 * 86_400);
    expect(await look()).toEqual([]);
    await database.pool.query(
      `update sealpost.signing_secrets set created_at = now() - interval '1 day',
         expires_at = case when expires_at is not null then now() + interval '1 hour' end
       where account_id = $1`,
      [accountId],
    );
    expect(await look()).toEqual(["secret.expiring"]);
    expect(await look()).toEqual([]);
  });

  test.each([
    ["a day before the end of a long overlap", 7 * DAY, DAY, true],
    ["not sooner", 7 * DAY, DAY + 1, false],
    ["at half of a day's overlap", DAY, 12 * HOUR, true],
    ["not sooner", DAY, 12 * HOUR + 1, false],
    ["until it has expired", DAY, 1, true],
    ["not then", DAY, 0, false],
    ["not without an overlap", 0, 0, false],
  ])("is told of %s", async (_, overlapMs, leftMs, isTold) => {
    await rotateSecret(database.pool, accountId, 86_400);
    // In one transaction it is always the same time.
    const { client, rollback } = await begin(
      database.pool,
      `update sealpost.signing_secrets set
         created_at = now() + interval '${leftMs - overlapMs} ms',
         expires_at = case when expires_at is not null then now() + interval '${leftMs} ms' end
       where account_id = '${accountId}'`,
    );
    const told = await findExpiringSecrets(client, 10);
    await rollback();
    expect(told.filter((notice) => notice.accountId === accountId)).toHaveLength(Number(isTold));
  });

  test("that leaked, and has no overlap, is not", async () => {
    await rotateSecret(database.pool, accountId, 0);
    expect(await look()).toEqual([]);
  });
});

describe("a certificate", () => {
  const see = (host: string, leftMs: number) =>
    noteCertificates(database.pool, [
      { accountId, host, expiresAtMs: Math.floor((Date.now() + leftMs) / 1_000) * 1_000 },
    ]);

  test("is told of once, and its successor not", async () => {
    await see("hooks.example.com", 13 * DAY);
    expect(await look()).toEqual(["certificate.expiring"]);
    expect(await look()).toEqual([]);
    await see("hooks.example.com", 90 * DAY);
    expect(await look()).toEqual([]);
  });

  test.each([
    ["is not told of 15 days before", "hooks.example.com", 15 * DAY],
    ["of another host than the endpoint's is not", "old.example.com", 13 * DAY],
    ["that has expired is not: attempts fail", "hooks.example.com", -DAY],
  ])("%s", async (_, host, leftMs) => {
    await see(host, leftMs);
    expect(await look()).toEqual([]);
  });

  test.each([
    [14 * DAY + 1, false],
    [14 * DAY, true],
    [1, true],
    [0, false],
    [-1, false],
  ])("that ends in %i ms is told of: %s", async (leftMs, isTold) => {
    const { client, rollback } = await begin(
      database.pool,
      `insert into sealpost.endpoint_certificates (account_id, host, ends_at)
       values ('${accountId}', 'hooks.example.com', now() + interval '${leftMs} ms')`,
    );
    const told = await findExpiringCertificates(client, CERTIFICATE_WARNING_MS, 10);
    await rollback();
    expect(told.filter((seen) => seen.accountId === accountId)).toHaveLength(Number(isTold));
  });

  test("is written once, however often it is seen", async () => {
    await see("hooks.example.com", 90 * DAY);
    const before = await rowOf(database.pool, "endpoint_certificates", { account_id: accountId });
    await noteCertificates(database.pool, [
      { accountId, host: before.host, expiresAtMs: before.ends_at.getTime() },
    ]);
    expect(await rowOf(database.pool, "endpoint_certificates", { account_id: accountId })).toEqual(before);
  });
});

test("endpoints that only succeed leave no row", async () => {
  await succeed();
  expect(await countRows(database.pool, "endpoint_health", { account_id: accountId })).toBe(0);
});

test("notices older than the log are forgotten", async () => {
  const { rows } = await database.pool.query("select sealpost.uuid_v7(now() - interval '31 days') as id");
  const row = { account_id: accountId, kind: "secret.expiring", subject: "s", details: {} };
  await insertRow(database.pool, "notices", { ...row, id: rows[0].id });
  await insertRow(database.pool, "notices", { ...row, subject: "t" });
  expect(await deleteOldRows(database.pool, "notices", 30 * DAY, 1_000)).toBe(1);
  expect(await countRows(database.pool, "notices", { account_id: accountId })).toBe(1);
});
