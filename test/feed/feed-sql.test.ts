import { randomUUID } from "node:crypto";
import pg, { type Pool } from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createGeneralPool } from "../../src/base/database/pools.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import {
  endSequencingLease,
  findFeedEvents,
  findFeedPlaces,
  sequenceEvents,
} from "../../src/feed/feed-sql.ts";
import { publishExample } from "../../src/publish/publish-call-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import {
  begin,
  changeRows,
  countRows,
  endSessions,
  insertAccount,
  publish,
  publishMany,
  rowsOf,
} from "../support/installation.ts";

const LEASE_MS = 60_000;
const HOLDER = randomUUID();
const FROM_THE_START = 0;
const WEEK_MS = 7 * 86_400_000;

let database: TestDatabase;
/** As in production: generic plans made while everything is empty. */
let pool: Pool;
let accountId: string;
let made = 0;
const transactions: Awaited<ReturnType<typeof begin>>[] = [];

beforeEach(async () => {
  database = await createTestDatabase();
  pool = createGeneralPool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test feed",
    onError: () => undefined,
  });
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});
afterEach(async () => {
  for (const one of transactions.splice(0)) await one.rollback().catch(() => undefined);
  await pool.end();
  await database.drop();
});

const analysis = () => `{"id":"f-${made++}","status":"succeeded"}`;
const publishOne = (client: Pool | pg.ClientBase = database.pool) => publish(client, accountId, analysis());
const step = () => sequenceEvents(pool, HOLDER, LEASE_MS);
const feed = async (of = accountId) =>
  (await findFeedPlaces(pool, wholeAccount(of), FROM_THE_START, WEEK_MS, 10_000)).places.map(
    ({ deliveryId }) => deliveryId,
  );

/** Rolled back after the test at the latest. */
async function open(sql?: string) {
  const transaction = await begin(database.pool, sql);
  transactions.push(transaction);
  return transaction;
}

/** Publishes in transactions that are all open at once, and returns what ends each. */
async function openPublishers(count: number) {
  const publishers = [];
  for (let n = 0; n < count; n++) {
    const transaction = await open();
    publishers.push({ id: await publishOne(transaction.client), ...transaction });
  }
  return publishers;
}

describe("what is published", () => {
  it("is in the feed after a step, oldest first, however it was published", async () => {
    const one = await publishOne();
    const [two, three] = await publishMany(
      database.pool,
      [accountId, accountId],
      [analysis(), analysis()],
      [null, "https://other.example.com/"],
    );
    const [example] = await publishExample(database.pool, { accountId, analysis: analysis() });
    const { rows } = await database.pool.query(
      "select delivery_ids as ids from sealpost.publish_each($1, $2, $3, $4, false, now())",
      [[accountId], [analysis()], [null], [null]],
    );
    expect(await feed()).toEqual([]);
    expect(await step()).toEqual({ leads: true, sequenced: 5, isFull: false });
    expect(await feed()).toEqual([one, two, three, example, rows[0].ids[0]]);
    expect(await step()).toEqual({ leads: true, sequenced: 0, isFull: false });
  });

  it("is in the feed without a target, too", async () => {
    const unconfigured = await insertAccount(database.pool);
    const id = await publish(database.pool, unconfigured, analysis());
    await step();
    expect(await feed(unconfigured)).toEqual([id]);
  });

  it("is there once when it is published again", async () => {
    const text = analysis();
    const id = await publish(database.pool, accountId, text);
    await publish(database.pool, accountId, text);
    await step();
    await publish(database.pool, accountId, text);
    await step();
    expect(await feed()).toEqual([id]);
  });

  it("is in the feed of its account alone", async () => {
    const neighbour = await insertAccount(database.pool, "https://receiver.example.com/");
    const [mine, its] = await publishMany(
      database.pool,
      [accountId, neighbour],
      [analysis(), analysis()],
      [null, null],
    );
    await step();
    expect(await feed()).toEqual([mine]);
    expect(await feed(neighbour)).toEqual([its]);
    expect(await findFeedEvents(pool, neighbour, [mine!], 1_000)).toEqual([null]);
  });
});

describe("what commits out of order", () => {
  it("comes when it has committed, after what was there already", async () => {
    const [first, second, third] = await openPublishers(3);
    await step();
    expect(await feed()).toEqual([]);
    await third!.commit();
    await step();
    expect(await feed()).toEqual([third!.id]);
    await first!.commit();
    await step();
    expect(await feed()).toEqual([third!.id, first!.id]);
    await second!.commit();
    await step();
    expect(await feed()).toEqual([third!.id, first!.id, second!.id]);
  });

  it("holds up nothing that has committed, and is waited for as long as it takes", async () => {
    const [idle] = await openPublishers(1);
    const ids: string[] = [];
    for (let n = 0; n < 30; n++) {
      const [one] = await openPublishers(1);
      if (n % 3 === 0) await one!.rollback();
      else {
        await one!.commit();
        ids.push(one!.id);
      }
      await step();
      expect(await feed()).toEqual(ids);
    }
    // One gap for all that were rolled back meanwhile, because the same transaction is still open.
    const steps = await rowsOf(database.pool, "feed_steps");
    expect(steps.at(-1)!.gaps.match(/\{/g)).toHaveLength(3);
    await idle!.commit();
    await step();
    expect(await feed()).toEqual([...ids, idle!.id]);
    expect((await rowsOf(database.pool, "feed_steps")).at(-1)!.gaps).toBe("{}");
  });

  it("leaves nothing behind that rolled back, to a savepoint or altogether, or whose session was ended", async () => {
    const [rolledBack, kept, last] = await openPublishers(3);
    const killed = new pg.Client({ connectionString: database.url });
    killed.on("error", () => undefined);
    await killed.connect();
    await killed.query("begin");
    await publishOne(killed);
    const { rows } = await killed.query<{ pid: number }>("select pg_backend_pid() as pid");
    await kept!.client.query("savepoint here");
    await publishOne(kept!.client);
    await kept!.client.query("rollback to savepoint here");
    const after = await publishOne(kept!.client);
    await rolledBack!.rollback();
    await endSessions(database.pool, [rows[0]!.pid]);
    await kept!.commit();
    await expect
      .poll(async () => {
        await step();
        return await feed();
      })
      .toEqual([kept!.id, after]);
    await last!.commit();
    await step();
    expect(await feed()).toEqual([kept!.id, after, last!.id]);
    expect((await rowsOf(database.pool, "feed_steps")).at(-1)!.gaps).toBe("{}");
  });

  it("comes whole when it is more than a step takes", async () => {
    const transaction = await open();
    const many = await publishMany(
      transaction.client,
      Array.from({ length: 2_500 }, () => accountId),
      Array.from({ length: 2_500 }, analysis),
      Array.from({ length: 2_500 }, () => null),
    );
    const newer = await publishOne();
    await step();
    expect(await feed()).toEqual([newer]);
    await transaction.commit();
    const taken = [await step(), await step(), await step(), await step()];
    expect(taken.map(({ sequenced }) => sequenced)).toEqual([1_000, 1_000, 500, 0]);
    expect(taken.map(({ isFull }) => isFull)).toEqual([true, true, false, false]);
    const all = await feed();
    expect(all[0]).toBe(newer);
    expect(new Set(all)).toEqual(new Set([newer, ...many]));
    expect(all).toHaveLength(2_501);
  });
});

describe("an old transaction that has published nothing", () => {
  it("holds up nothing, whether it reads or writes", async () => {
    const reader = await open("select count(*) from sealpost.bodies");
    const writer = await open("create table public.something ()");
    const ids = [];
    for (let n = 0; n < 3; n++) {
      ids.push(await publishOne());
      await step();
      expect(await feed()).toEqual(ids);
    }
    await Promise.all([reader.rollback(), writer.rollback()]);
  });

  it("comes when it does publish, though its ids are as old as it is", async () => {
    const old = await open("select now()");
    const newer = await publishOne();
    await step();
    const late = await publishOne(old.client);
    expect(late < newer, "made from the transaction's time").toBe(true);
    await step();
    await old.commit();
    await step();
    expect(await feed()).toEqual([newer, late]);
  });
});

describe("those who make steps", () => {
  it("are one while it has the lease, and the next when it has ended", async () => {
    const other = randomUUID();
    await step();
    await publishOne();
    expect(await sequenceEvents(pool, other, LEASE_MS)).toEqual({
      leads: false,
      sequenced: 0,
      isFull: false,
    });
    await endSequencingLease(pool, other);
    expect(await sequenceEvents(pool, other, LEASE_MS)).toMatchObject({ leads: false });
    await endSequencingLease(pool, HOLDER);
    expect(await sequenceEvents(pool, other, LEASE_MS)).toMatchObject({ leads: true, sequenced: 1 });
    expect(await step()).toMatchObject({ leads: false });
  });

  it("take over a lease that a clock set back has made endless", async () => {
    const lease_until = new Date(Date.now() + 10 * LEASE_MS);
    await changeRows(database.pool, "feed_steps", {}, { lease_until, holder: randomUUID() });
    expect(await step()).toMatchObject({ leads: true });
  });

  it("give each event one position, even when many take themselves for the one", async () => {
    const pools = Array.from({ length: 6 }, () =>
      createGeneralPool({
        databaseUrl: database.url,
        connectionsMax: 1,
        applicationName: "test feed",
        onError: () => undefined,
      }),
    );
    const published: string[] = [];
    const publishing = Promise.all(
      Array.from({ length: 4 }, async () => {
        for (let n = 0; n < 50; n++) published.push(await publishOne());
      }),
    );
    // A lease of no time is nobody's.
    const stepping = pools.map(async (one) => {
      for (let n = 0; n < 100; n++) await sequenceEvents(one, randomUUID(), 0);
    });
    await Promise.all([publishing, ...stepping]);
    await step();
    expect((await feed()).sort()).toEqual(published.sort());
    await Promise.all(pools.map((one) => one.end()));
  });

  it("write nothing while there is nothing to do and their lease is young", async () => {
    await publishOne();
    await step();
    const before = await countRows(database.pool, "feed_steps");
    for (let n = 0; n < 20; n++) await step();
    expect(await countRows(database.pool, "feed_steps")).toBe(before);
  });

  it("keep the last steps only", async () => {
    for (let n = 0; n < 2_100; n++) await sequenceEvents(pool, HOLDER, 0);
    expect(await countRows(database.pool, "feed_steps")).toBeLessThanOrEqual(1_200);
  });
});

describe("positions", () => {
  it("grow with time, also in an idle installation, and never fall when the clock does", async () => {
    await step();
    const idle = await findFeedPlaces(pool, wholeAccount(accountId), null, WEEK_MS, 1);
    expect(Math.abs(idle.newest / 1_000 - idle.nowMs)).toBeLessThan(60_000);
    const ahead = (Date.now() + 3_600_000) * 1_000;
    await changeRows(database.pool, "feed_steps", {}, { position: ahead });
    await publishOne();
    await step();
    const { places } = await findFeedPlaces(pool, wholeAccount(accountId), ahead, WEEK_MS, 10);
    expect(places.map(({ position }) => position)).toEqual([ahead + 1]);
  });

  it("go on beyond those that were given between a backup and its restore", async () => {
    await publishOne();
    await step();
    const backup = (await rowsOf(database.pool, "feed_steps")).at(-1)!;
    const lost = await publishOne();
    await step();
    const cursor = (await findFeedPlaces(pool, wholeAccount(accountId), null, WEEK_MS, 1)).newest;
    await database.pool.query(`delete from sealpost.feed_steps where step > ${backup.step}`);
    await database.pool.query(`delete from sealpost.feed where position > ${backup.position}`);
    await database.pool.query("delete from sealpost.bodies where delivery_id = $1", [lost]);
    await database.pool.query(`select setval('sealpost.event_serials', ${backup.serial})`);
    const id = await publishOne();
    await step();
    const { places } = await findFeedPlaces(pool, wholeAccount(accountId), cursor, WEEK_MS, 10);
    expect(places.map(({ deliveryId }) => deliveryId)).toEqual([id]);
  });
});

describe("a look at the feed", () => {
  it("reads beyond a position, so many, and says what was the newest at that moment", async () => {
    const ids = [await publishOne(), await publishOne(), await publishOne()];
    await step();
    const all = await findFeedPlaces(pool, wholeAccount(accountId), FROM_THE_START, WEEK_MS, 10);
    expect(all.places.map(({ deliveryId }) => deliveryId)).toEqual(ids);
    expect(all.newest).toBe(all.places[2]!.position);
    const next = await findFeedPlaces(pool, wholeAccount(accountId), all.places[0]!.position, WEEK_MS, 1);
    expect(next.places).toEqual([all.places[1]]);
    const end = await findFeedPlaces(pool, wholeAccount(accountId), all.newest, WEEK_MS, 10);
    expect(end).toMatchObject({ places: [], newest: all.newest });
    expect((await findFeedPlaces(pool, wholeAccount(accountId), null, WEEK_MS, 10)).places).toEqual([]);
  });

  it("takes no more bytes than it may, but at least one event", async () => {
    const texts = Array.from(
      { length: 4 },
      () => `{"id":"f-${made++}","status":"failed","t":"${"x".repeat(1_000)}"}`,
    );
    const ids = await publishAt(database.pool, accountId, new Date(), texts);
    const bytes = Buffer.byteLength(texts[0]!);
    const read = async (bytesMax: number) =>
      (await findFeedEvents(pool, accountId, ids, bytesMax)).map((one) => one?.id);
    expect(await read(4 * bytes)).toEqual(ids);
    expect(await read(4 * bytes - 1)).toEqual(ids.slice(0, 3));
    expect(await read(bytes)).toEqual(ids.slice(0, 1));
    expect(await read(1)).toEqual(ids.slice(0, 1));
    const [first] = await findFeedEvents(pool, accountId, ids, 1);
    expect(first).toMatchObject({ event: "analysis.failed", status: "pending", analysisText: texts[0] });
  });

  it("goes on behind an event whose analysis is no longer kept", async () => {
    const gone = randomUUID();
    const id = await publishOne();
    const events = await findFeedEvents(pool, accountId, [gone, id], 1_000);
    expect(events.map((one) => one?.id)).toEqual([undefined, id]);
  });
});
