import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import { DAY_MS } from "../../src/base/model/time.ts";
import { sequenceEvents } from "../../src/feed/feed-sql.ts";
import {
  changeRows,
  countRows,
  deleteRows,
  insertRow,
  publish,
  rowOf,
  rowsOf,
} from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { Asked, AskOptions, Json, TestAccount } from "../support/sealpost-api.ts";

const HOLDER = randomUUID();
const { database, api } = await openApi();
let account: TestAccount;
let made = 0;

beforeEach(async () => {
  account = await api.newAccount();
});

async function publishInFeed(of = account): Promise<string> {
  const id = await publish(database.pool, of.accountId, `{"id":"c-${made++}","status":"succeeded"}`);
  await sequenceEvents(database.pool, HOLDER, 60_000);
  return id;
}

const ask = (query: string, options: AskOptions = {}): Promise<Asked> =>
  api.ask("GET", `/v1/webhooks/events?${query}`, { key: account.ownKey, ...options });

/** A page as a reader has it, with what it was told. */
async function read(name: string, more = "", options: AskOptions = {}) {
  const { status, body } = await ask(`consumer=${name}${more}`, options);
  expect(status, JSON.stringify(body)).toBe(200);
  const { items, next_cursor: cursor, other_reader: other } = body;
  return { ids: (items as Json[]).map((item) => item.delivery_id), cursor: String(cursor), other };
}

const tryAck = (name: string, cursor: string, options: AskOptions = {}) =>
  api.ask("POST", `/v1/webhooks/events/consumers/${name}/ack`, {
    key: account.ownKey,
    body: { cursor },
    ...options,
  });

async function ack(name: string, cursor: string, options: AskOptions = {}): Promise<void> {
  expect((await tryAck(name, cursor, options)).status).toBe(204);
}

const kept = async (name: string) =>
  Number((await rowOf(database.pool, "feed_consumers", { account_id: account.accountId, name })).position);
const change = (to: Record<string, unknown>) =>
  changeRows(database.pool, "feed_consumers", { account_id: account.accountId }, to);
const makeOld = (days: number) => change({ position: Math.floor((Date.now() - days * DAY_MS) * 1_000) });
const TOLD = { seen_at: expect.stringMatching(/^\d{4}-.*\.\d{3}Z$/) };

function cursorAt(cursor: string, position: number): string {
  const [version, digest] = JSON.parse(Buffer.from(cursor, "base64url").toString());
  return Buffer.from(JSON.stringify([version, digest, position])).toString("base64url");
}

describe("a consumer", () => {
  it("goes on behind what it has acknowledged, and has the same again until then", async () => {
    const ids = [await publishInFeed(), await publishInFeed(), await publishInFeed()];
    const first = await read("one", "&limit=2");
    expect(first).toMatchObject({ ids: ids.slice(0, 2), other: null });
    expect(await read("one", "&limit=2")).toMatchObject({ ids: ids.slice(0, 2), other: null });
    await ack("one", first.cursor);
    expect(await read("one")).toMatchObject({ ids: ids.slice(2), other: null });
    expect((await read("other")).ids).toEqual(ids);
  });

  it("reads ahead with a cursor, which leaves its place as it is", async () => {
    const ids = [await publishInFeed(), await publishInFeed()];
    const first = await read("one", "&limit=1");
    const second = await read("one", `&cursor=${first.cursor}`);
    expect([first.ids, second.ids]).toEqual([[ids[0]], [ids[1]]]);
    expect((await read("one")).ids).toEqual(ids);
    await ack("one", first.cursor);
    await ack("one", second.cursor);
    expect(await read("one")).toMatchObject({ ids: [], other: null });
  });

  it("can begin with what is to come", async () => {
    await publishInFeed();
    await ack("one", (await read("one", "&cursor=newest")).cursor);
    const next = await publishInFeed();
    expect(await read("one")).toMatchObject({ ids: [next], other: null });
  });

  it("waits as every reader does", async () => {
    await publishInFeed();
    await ack("one", (await read("one")).cursor);
    const waiting = read("one", "&wait=25");
    await expect.poll(() => api.waiting()).toBe(1);
    const id = await publishInFeed();
    api.news.tell([account.accountId]);
    expect((await waiting).ids).toEqual([id]);
  });

  it("never goes back, nor beyond what there is", async () => {
    await publishInFeed();
    const first = await read("one");
    await publishInFeed();
    await ack("one", (await read("one")).cursor);
    const place = await kept("one");
    await ack("one", first.cursor);
    expect(await kept("one")).toBe(place);
    await ack("one", cursorAt(first.cursor, (Date.now() + DAY_MS) * 1_000));
    expect(await kept("one")).toBeLessThan((Date.now() + 60_000) * 1_000);
    expect((await read("one")).ids).toEqual([]);
  });

  it("is the account's own, whatever others call theirs", async () => {
    const other = await api.newAccount();
    await publishInFeed();
    const mine = await read("one");
    const refused = await tryAck("one", mine.cursor, { key: other.ownKey });
    expect(refused).toMatchObject({ status: 400, body: { errors: [{ path: "body.cursor" }] } });
    const theirs = await publishInFeed(other);
    await ack("one", mine.cursor);
    expect((await read("one", "", { key: other.ownKey })).ids).toEqual([theirs]);
  });

  it("is nothing for keys that act for a user", async () => {
    await publishInFeed();
    const { cursor } = await read("one");
    const answer = await ask("consumer=one", { key: account.key });
    expect(answer).toMatchObject({ status: 403, body: { errors: [{ path: "query.consumer" }] } });
    expect((await tryAck("one", cursor, { key: account.key })).status).toBe(403);
  });

  it.each(["", "a b", "é", "a".repeat(65), "a%2Fb", ".", ".."])("cannot be called %j", async (name) => {
    expect((await ask(`consumer=${name}`)).status).toBe(400);
    // `..` leads to another path, where nothing is, or nothing of this method.
    expect([400, 404, 405]).toContain((await tryAck(name, "x")).status);
  });

  it("is one of a hundred at most, none of which is lost by that", async () => {
    const { cursor } = await read("one");
    await ack("one", cursor);
    for (let n = 1; n < 101; n++) {
      await insertRow(database.pool, "feed_consumers", {
        account_id: account.accountId,
        name: `n-${n}`,
        position: 1,
        updated_at: new Date(),
        key_id: randomUUID(),
      });
    }
    expect(await tryAck("new", cursor)).toMatchObject({ status: 409, body: { code: "too_many_consumers" } });
    await ack("one", cursor);
  });
});

describe("the account's consumers", () => {
  const list = async () => {
    const { status, body } = await api.ask("GET", "/v1/webhooks/events/consumers", { key: account.ownKey });
    expect(status).toBe(200);
    return body;
  };
  const remove = (name: string) =>
    api.ask("DELETE", `/v1/webhooks/events/consumers/${name}`, { key: account.ownKey });
  const timeOf = (position: unknown) => new Date(Math.floor(Number(position) / 1_000)).toISOString();

  it("are listed by name, with what is behind each", async () => {
    expect(await list()).toEqual({ items: [], next_cursor: null, total: 0 });
    for (let n = 0; n < 3; n++) await publishInFeed();
    const other = await api.newAccount();
    await publishInFeed(other);
    const [first, all] = [await read("slow", "&limit=1"), await read("quick")];
    await ack("slow", first.cursor);
    await ack("quick", all.cursor);
    await ack("quick", (await read("quick", `&cursor=${cursorAt(all.cursor, 0)}`)).cursor);
    const places = await rowsOf(database.pool, "feed", { account_id: account.accountId });
    const second = places.map(({ position }) => Number(position)).sort((one, two) => one - two)[1];
    const { items, total } = await list();
    expect([total, items]).toEqual([
      2,
      [
        {
          name: "quick",
          read_to: timeOf(await kept("quick")),
          updated_at: expect.stringMatching(/Z$/),
          events_behind: 0,
          behind_since: null,
          expired: false,
          other_reader: TOLD,
        },
        {
          name: "slow",
          read_to: timeOf(await kept("slow")),
          updated_at: expect.stringMatching(/Z$/),
          events_behind: 2,
          behind_since: timeOf(second),
          expired: false,
          other_reader: null,
        },
      ],
    ]);
  });

  it("have their events counted up to 1,000, of those that are kept, and are told to be too old", async () => {
    await ack("one", (await read("one")).cursor);
    expect(await list()).toMatchObject({ items: [{ events_behind: 0, expired: false }] });
    await makeOld(7.01);
    await database.pool.query(
      `insert into sealpost.feed select $1, (extract(epoch from now()) * 1000000)::bigint - n * 600, $2
       from generate_series(1, 1001) as n`,
      [account.accountId, randomUUID()],
    );
    expect(await list()).toMatchObject({ items: [{ events_behind: 1_000, expired: true }] });
    await deleteRows(database.pool, "feed", { account_id: account.accountId });
    expect(await list()).toMatchObject({ items: [{ events_behind: 0, behind_since: null, expired: true }] });
    // What has never acknowledged an event begins at the oldest, whenever that is.
    await change({ position: 0 });
    expect(await list()).toMatchObject({ items: [{ expired: false }] });
  });

  it("are removed one by one, and such a reader begins at the oldest event", async () => {
    const id = await publishInFeed();
    const { cursor } = await read("one");
    for (const name of ["one", "two"]) await ack(name, cursor);
    expect((await remove("one")).status).toBe(204);
    expect((await remove("one")).status).toBe(404);
    expect(await list()).toMatchObject({ items: [{ name: "two" }], total: 1 });
    expect(await read("one")).toMatchObject({ ids: [id], other: null });
    const key = account.key;
    const path = "/v1/webhooks/events/consumers";
    for (const [method, where] of [
      ["GET", path],
      ["DELETE", `${path}/two`],
    ] as const)
      expect((await api.ask(method, where, { key })).status, method).toBe(403);
  });
});

describe("two readers of one name", () => {
  it("are both told once one acknowledges what the other has acknowledged since", async () => {
    await publishInFeed();
    const [one, other] = [await read("shared"), await read("shared")];
    await ack("shared", one.cursor);
    expect((await read("shared")).other).toBeNull();
    await ack("shared", other.cursor);
    expect((await read("shared")).other).toEqual(TOLD);
    expect((await read("shared", "&cursor=newest")).other).toEqual(TOLD);
    expect((await read("another")).other).toBeNull();
  });

  it("are told if the later one has more, and only for a day", async () => {
    await publishInFeed();
    const one = await read("shared");
    await publishInFeed();
    const other = await read("shared");
    await ack("shared", one.cursor);
    await ack("shared", other.cursor);
    expect((await read("shared")).other).toEqual(TOLD);
    const dayAgo = { other_seen_at: new Date(Date.now() - 1.01 * DAY_MS) };
    await change(dayAgo);
    expect((await read("shared")).other).toBeNull();
  });

  it("are told if they take turns with keys of their own, but not if one followed the other", async () => {
    const other = { key: await api.newKey(account.accountId, ["analyses:read"]) };
    const turn = async (options: AskOptions = {}) => {
      await publishInFeed();
      const page = await read("shared", "", options);
      await ack("shared", page.cursor, options);
      return (await read("shared", "", options)).other;
    };
    expect(await turn()).toBeNull();
    const dayAgo = { updated_at: new Date(Date.now() - 1.01 * DAY_MS) };
    await change(dayAgo);
    expect(await turn(other)).toBeNull();
    expect(await turn()).toEqual(TOLD);
  });

  it("are not seen where one repeats a request, page by page or after a crash", async () => {
    for (let n = 0; n < 3; n++) {
      await publishInFeed();
      await read("lone");
      const { cursor, other } = await read("lone");
      expect(other).toBeNull();
      for (let tries = 0; tries < 2; tries++) await ack("lone", cursor, { idempotencyKey: `lone ${n}` });
      // Nothing was read that could have been handled twice.
      await ack("lone", (await read("lone")).cursor);
    }
    expect((await read("lone")).other).toBeNull();
  });

  it("are not seen where one goes on with its own cursor from before its place was moved on", async () => {
    const { cursor } = await read("lone");
    await ack("lone", cursor);
    await makeOld(1.01);
    const own = `&cursor=${cursorAt(cursor, await kept("lone"))}`;
    // Moved on as this begins to wait.
    const waiting = read("lone", `${own}&wait=25`);
    await expect.poll(() => api.waiting()).toBe(1);
    const id = await publishInFeed();
    api.news.tell([account.accountId]);
    const page = await waiting;
    expect(page.ids).toEqual([id]);
    await ack("lone", page.cursor);
    await ack("lone", (await read("lone", `&cursor=${page.cursor}`)).cursor);
    expect((await read("lone")).other).toBeNull();
    // Another one that reads the same page is.
    const again = await read("lone", own);
    expect(again.ids).toEqual([id]);
    await ack("lone", again.cursor);
    expect((await read("lone")).other).toEqual(TOLD);
  });
});

describe("a place that is old", () => {
  it("of more than 7 days is refused, and another name begins at the oldest event", async () => {
    await ack("one", (await read("one")).cursor);
    await makeOld(7.01);
    const id = await publishInFeed();
    expect(await ask("consumer=one")).toMatchObject({ status: 410, body: { code: "cursor_expired" } });
    expect((await read("two")).ids).toEqual([id]);
  });

  it("does not come to that while its reader asks and there is nothing", async () => {
    await ack("one", (await read("one")).cursor);
    await makeOld(1.01);
    const page = await read("one");
    expect(await kept("one")).toBeGreaterThan((Date.now() - DAY_MS / 2) * 1_000);
    await ack("one", page.cursor);
    expect(await read("one")).toMatchObject({ ids: [], other: null });
  });

  it("stays where there is something behind it, and in an account that has moved", async () => {
    await ack("one", (await read("one")).cursor);
    await makeOld(6);
    const place = await kept("one");
    await publishInFeed();
    await read("one");
    expect(await kept("one")).toBe(place);
    await deleteRows(database.pool, "feed", { account_id: account.accountId });
    await changeRows(database.pool, "accounts", { id: account.accountId }, { moved_to: "other" });
    await read("one");
    expect(await kept("one")).toBe(place);
    expect(await countRows(database.pool, "feed_consumers", { account_id: account.accountId })).toBe(1);
  });
});
