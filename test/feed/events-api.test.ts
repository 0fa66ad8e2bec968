import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import type { Pool } from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createGeneralPool } from "../../src/base/database/pools.ts";
import { type FeedNews, listenToFeed, sequenceEvents } from "../../src/feed/feed-sql.ts";
import { LOOKS_AGAIN_MAX } from "../../src/http/limits.ts";
import { verifyWebhook } from "../../src/signing/index.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import {
  endSessions,
  findWaiting,
  publish,
  rotateSecret,
  untilSomebodyWaits,
} from "../support/installation.ts";
import {
  type Asked,
  type AskOptions,
  startTestApi,
  type TestAccount,
  type TestApi,
} from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";

const HOLDER = randomUUID();
const DAY_MICROSECONDS = 86_400_000_000;

type Item = {
  delivery_id: string;
  event: string;
  created_at: string;
  status: string;
  body: string;
  signature: string;
};
type Page = { items: Item[]; next_cursor: string };

let database: TestDatabase;
let api: TestApi;
let feedPool: Pool;
let listening: FeedNews | undefined;
let account: TestAccount;
let made = 0;

beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  feedPool = createGeneralPool({
    databaseUrl: database.url,
    connectionsMax: 2,
    applicationName: "test feed",
    onError: () => undefined,
  });
});
afterAll(async () => {
  await api.close();
  await feedPool.end();
  await database.drop();
});
beforeEach(async () => {
  account = await api.newAccount();
});
afterEach(async () => {
  await listening?.stop();
  listening = undefined;
});

const analysis = (more = "") => `{"id":"e-${made++}","status":"succeeded"${more}}`;
const step = () => sequenceEvents(feedPool, HOLDER, 60_000);

async function publishInFeed(texts: readonly string[], of = account): Promise<string[]> {
  const ids = [];
  for (const text of texts) ids.push(await publish(database.pool, of.accountId, text));
  await step();
  return ids;
}

async function askPage(query: Record<string, string> = {}, options: AskOptions = {}): Promise<Asked> {
  const asked = new URLSearchParams(query);
  return await api.ask("GET", `/v1/webhooks/events?${asked}`, { key: account.ownKey, ...options });
}

async function readPage(query: Record<string, string> = {}): Promise<Page> {
  const answer = await askPage(query);
  expect(answer.status).toBe(200);
  return answer.body as Page;
}

const idsOf = ({ items }: Page) => items.map(({ delivery_id }) => delivery_id);

/** The API's readers are told by the database, as in production. */
async function listen(onError: (error: unknown) => void = () => undefined): Promise<void> {
  const begun = Promise.withResolvers<void>();
  listening = listenToFeed({
    pool: feedPool,
    onNews: (accountIds) => api.news.tell(accountIds),
    onPublished: () => undefined,
    onListening: () => {
      begun.resolve();
      api.news.tellAll();
    },
    onError,
    random: () => 0,
  });
  await begun.promise;
}

const looks = () => api.statements().filter((text) => text.includes("sealpost.feed")).length;

const untilWaiting = (count: number) =>
  expect.poll(() => api.waiting(), { timeout: patience(5_000) }).toBe(count);

describe("a page", () => {
  it("has the events oldest first, each with the webhook and a signature that verifies", async () => {
    const texts = [analysis(), analysis(',"n":12345678901234567890,"t":"\\u0000 é"')];
    const ids = await publishInFeed(texts);
    const page = await readPage();
    expect(idsOf(page)).toEqual(ids);
    for (const [n, item] of page.items.entries()) {
      expect(item.body).toBe(
        `{"id":"${ids[n]}","event":"analysis.succeeded","created_at":"${item.created_at}","data":${texts[n]}}`,
      );
      const given = { rawBody: Buffer.from(item.body), header: item.signature };
      expect(verifyWebhook({ ...given, secret: account.secret })).toMatchObject({ id: item.delivery_id });
      expect(() => verifyWebhook({ ...given, secret: "whsec_another" })).toThrow();
      expect(item).toMatchObject({ event: "analysis.succeeded", status: "abandoned" });
    }
  });

  it("is signed with both secrets while a rotation's overlap lasts", async () => {
    await publishInFeed([analysis()]);
    const secret = await rotateSecret(database.pool, account.accountId);
    const [item] = (await readPage()).items;
    for (const one of [secret, account.secret]) {
      verifyWebhook({ rawBody: Buffer.from(item!.body), header: item!.signature, secret: one });
    }
  });

  it("ends at the limit, and the next one goes on behind it, for ever", async () => {
    const ids = await publishInFeed([analysis(), analysis(), analysis()]);
    const first = await readPage({ limit: "2" });
    expect(idsOf(first)).toEqual(ids.slice(0, 2));
    const second = await readPage({ limit: "2", cursor: first.next_cursor });
    expect(idsOf(second)).toEqual(ids.slice(2));
    const end = await readPage({ cursor: second.next_cursor });
    expect(end).toEqual({ items: [], next_cursor: expect.any(String) });
    const [next] = await publishInFeed([analysis()]);
    expect(idsOf(await readPage({ cursor: end.next_cursor }))).toEqual([next]);
    expect(idsOf(await readPage({ cursor: second.next_cursor }))).toEqual([next]);
  });

  it("begins with what is to come where that is asked for", async () => {
    await publishInFeed([analysis()]);
    const start = await readPage({ cursor: "newest" });
    expect(start.items).toEqual([]);
    const [id] = await publishInFeed([analysis()]);
    expect(idsOf(await readPage({ cursor: start.next_cursor }))).toEqual([id]);
  });

  it("never has another account's events, whatever cursor is used", async () => {
    const other = await api.newAccount();
    await publishInFeed([analysis(), analysis()], other);
    const [mine] = await publishInFeed([analysis()]);
    expect(idsOf(await readPage())).toEqual([mine]);
    const its = (await askPage({ limit: "1" }, { key: other.ownKey })).body as Page;
    const answer = await askPage({ cursor: its.next_cursor });
    expect(answer).toMatchObject({ status: 400, body: { code: "invalid_request" } });
  });

  it("is what staff read for an account that they name", async () => {
    const [id] = await publishInFeed([analysis()]);
    const key = await api.newKey(null);
    const answer = await askPage({}, { key, headers: { "x-account-id": account.accountId } });
    expect(idsOf(answer.body as Page)).toEqual([id]);
  });

  it("needs the scope that reads analyses", async () => {
    const key = await api.newKey(account.accountId, ["webhooks:read"]);
    expect((await askPage({}, { key })).status).toBe(403);
  });

  it("holds analyses of at most 1 MiB together", async () => {
    // Each quote takes two bytes in JSON, and so does what escapes it.
    const quotes = (count: number) => analysis(`,"t":"${'\\"'.repeat(count)}"`);
    const ids = await publishInFeed([400_000, 250_000, 250_000, 250_000].map(quotes));
    const sizes = [];
    const read: string[] = [];
    for (let query = {}; read.length < ids.length; ) {
      const answer = await askPage(query);
      const page = answer.body as Page;
      sizes.push(answer.bytes.length);
      read.push(...idsOf(page));
      query = { cursor: page.next_cursor };
    }
    expect(read).toEqual(ids);
    expect(sizes).toHaveLength(3);
    for (const size of sizes) expect(size).toBeLessThan(2.1 * 1024 * 1024);
  });

  it.each([
    { wait: "26" },
    { wait: "-1" },
    { limit: "0" },
    { limit: "101" },
    { cursor: "xyz" },
    { after: "1" },
  ])("is refused for %j", async (query) => {
    expect((await askPage(query as Record<string, string>)).status).toBe(400);
  });
});

function cursorAt(page: Page, position: number): string {
  const [version, digest] = JSON.parse(Buffer.from(page.next_cursor, "base64url").toString());
  return Buffer.from(JSON.stringify([version, digest, position])).toString("base64url");
}

it("has no place in the future, where a reader would wait for nothing", async () => {
  const cursor = cursorAt(await readPage(), Date.now() * 1_000 + DAY_MICROSECONDS);
  const answer = await askPage({ cursor, wait: "25" });
  expect([answer.status, answer.body.code]).toEqual([400, "invalid_request"]);
  expect(answer.body.errors).toMatchObject([{ path: "query.cursor" }]);
});

describe("a cursor older than 7 days", () => {
  it("is refused, with the oldest that can be read from", async () => {
    const [id] = await publishInFeed([analysis()]);
    const page = await readPage();
    const now = Date.now() * 1_000;
    const answer = await askPage({ cursor: cursorAt(page, now - 7.01 * DAY_MICROSECONDS) });
    expect(answer).toMatchObject({ status: 410, body: { code: "cursor_expired" } });
    const [error] = answer.body.errors as { path: string; message: string }[];
    expect(error!.path).toBe("query.cursor");
    const oldest = error!.message.split(" ").at(-1)!;
    // It does not expire while it is read and used.
    expect(idsOf(await readPage({ cursor: oldest }))).toEqual([id]);
  });

  it("is read when it is a little younger", async () => {
    const [id] = await publishInFeed([analysis()]);
    const cursor = cursorAt(await readPage(), Date.now() * 1_000 - 6.99 * DAY_MICROSECONDS);
    expect(idsOf(await readPage({ cursor }))).toEqual([id]);
  });
});

describe("waiting", () => {
  const start = async () => (await readPage({ cursor: "newest" })).next_cursor;

  it("ends as soon as there is something", async () => {
    await listen();
    const cursor = await start();
    const answer = readPage({ cursor, wait: "25" });
    await untilWaiting(1);
    const [id] = await publishInFeed([analysis()]);
    expect(idsOf(await answer)).toEqual([id]);
    expect(api.waiting()).toBe(0);
  });

  it("ends for all who wait, of whom a few look at a time", async () => {
    const cursor = await start();
    const answers = Promise.all(Array.from({ length: 30 }, () => askPage({ cursor, wait: "25" })));
    await untilWaiting(30);
    const [id] = await publishInFeed([analysis()]);
    const holder = await feedPool.connect();
    await holder.query("begin");
    await holder.query("lock table sealpost.feed");
    // Whoever has no turn yet is told again and again, and waits for it.
    for (let n = 0; n < 3; n++) {
      api.news.tell([account.accountId]);
      await untilSomebodyWaits(database.pool);
      expect((await findWaiting(database.pool)).length).toBeLessThanOrEqual(LOOKS_AGAIN_MAX);
    }
    await holder.query("rollback");
    holder.release();
    const found = (await answers).map(({ status, body }) => [status, ...idsOf(body as Page)]);
    expect(found).toEqual(found.map(() => [200, id]));
  });

  it("does not end for another account's events", async () => {
    await listen();
    const cursor = await start();
    const answer = readPage({ cursor, wait: "25" });
    await untilWaiting(1);
    await publishInFeed([analysis()], await api.newAccount());
    const [id] = await publishInFeed([analysis()]);
    expect(idsOf(await answer)).toEqual([id]);
  });

  it("does not begin where 10,000 events of others were passed over", async () => {
    // What has no delivery that the user sees.
    await database.pool.query(
      `insert into sealpost.feed (account_id, position, delivery_id)
       select $1, (extract(epoch from now()) * 1000000)::bigint - n, gen_random_uuid()
       from generate_series(1, 10000) as n`,
      [account.accountId],
    );
    const [id] = await publishInFeed([analysis()]);
    const before = looks();
    const answer = await askPage({ wait: "25" }, { key: account.key });
    const { items, next_cursor } = answer.body as Page;
    expect([items, answer.headers.get("more-behind"), looks() - before]).toEqual([[], "true", 1]);
    const next = await askPage({ cursor: next_cursor }, { key: account.key });
    expect([idsOf(next.body as Page), next.headers.get("more-behind")]).toEqual([[id], null]);
  });

  it("does not begin where there is something already", async () => {
    const [id] = await publishInFeed([analysis()]);
    expect(idsOf(await readPage({ wait: "25" }))).toEqual([id]);
  });

  it("ends empty after its time, having asked the feed once", async () => {
    const cursor = await start();
    const before = looks();
    const startedAt = performance.now();
    const page = await readPage({ cursor, wait: "1" });
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(999);
    expect(page.items).toEqual([]);
    expect(looks() - before).toBe(1);
    const [id] = await publishInFeed([analysis()]);
    expect(idsOf(await readPage({ cursor: page.next_cursor }))).toEqual([id]);
  });

  it("holds neither a connection nor a place of the account's", async () => {
    await listen();
    const cursor = await start();
    const answers = Array.from({ length: 40 }, () => readPage({ cursor, wait: "25" }));
    await untilWaiting(40);
    // Far more than there are connections or places; another request of the account goes on beside them.
    expect((await askPage()).status).toBe(200);
    const [id] = await publishInFeed([analysis()]);
    for (const page of await Promise.all(answers)) expect(idsOf(page)).toEqual([id]);
  });

  it("is forgotten when the client goes", async () => {
    const cursor = await start();
    const gone = new AbortController();
    const answer = fetch(`${api.url}/v1/webhooks/events?wait=25&cursor=${cursor}`, {
      headers: { authorization: `Bearer ${account.ownKey}` },
      signal: gone.signal,
    }).catch((error: Error) => error.name);
    await untilWaiting(1);
    gone.abort();
    expect(await answer).toBe("AbortError");
    await untilWaiting(0);
  });

  it("does not begin for clients that have gone before it could", async () => {
    const cursor = await start();
    const { hostname, port } = new URL(api.url);
    const head = `GET /v1/webhooks/events?wait=25&cursor=${cursor} HTTP/1.1\r\nhost: a\r\n`;
    const requests = Array.from({ length: 20 }, async () => {
      const socket = connect(Number(port), hostname);
      await once(socket, "connect");
      socket.write(`${head}authorization: Bearer ${account.ownKey}\r\n\r\n`, () => socket.destroy());
    });
    const before = looks();
    await Promise.all(requests);
    await expect.poll(() => looks() - before, { timeout: patience(5_000) }).toBe(20);
    // By the time that another has been read, each of them would wait, if it did at all.
    await readPage();
    await untilWaiting(0);
  });

  it("goes on when the connection that listens is cut, and misses nothing meanwhile", async () => {
    const failed = Promise.withResolvers<unknown>();
    await listen(failed.resolve);
    const cursor = await start();
    const answer = readPage({ cursor, wait: "25" });
    await untilWaiting(1);
    const { rows } = await database.pool.query<{ pid: number }>(
      "select pid from pg_stat_activity where application_name = 'test feed' and query ilike 'listen%'",
    );
    await endSessions(
      database.pool,
      rows.map(({ pid }) => pid),
    );
    await failed.promise;
    const [id] = await publishInFeed([analysis()]);
    expect(idsOf(await answer)).toEqual([id]);
  });

  it("ends at once when the API stops", async () => {
    const other = await startTestApi(database);
    const newest = await other.ask("GET", "/v1/webhooks/events?cursor=newest");
    const { next_cursor } = newest.body as Page;
    const answer = other.ask("GET", `/v1/webhooks/events?wait=25&cursor=${next_cursor}`);
    await expect.poll(() => other.waiting(), { timeout: patience(5_000) }).toBe(1);
    const closing = other.close();
    expect((await answer).body).toMatchObject({ items: [] });
    await closing;
  });
});
