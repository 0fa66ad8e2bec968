// What deliveries of others' spaces cost a user who does not see them: no more than if they were the user's own, but
// for the looks that a page of these ends early.
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { readingFrom } from "../../src/base/database/log-reader.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../src/base/model/audit.ts";
import type { Reader } from "../../src/base/model/reader.ts";
import { createReadFeedPage } from "../../src/feed/events-api.ts";
import { findFeedPlaces } from "../../src/feed/feed-sql.ts";
import type { DeliveryFilter } from "../../src/log/delivery-filter-api.ts";
import { createListDeliveries } from "../../src/log/delivery-pages-sql.ts";
import { previewReplay } from "../../src/log/replay-set-sql.ts";
import { createReplay } from "../../src/log/replays-sql.ts";
import { flushStatistics, insertAccount, insertLog } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const HIDDEN = 150_000;
const OWN = 3;
/** For the page, its total and its cursor. */
const LOOKS_OF_PAGE = 3;
const DAY_MS = 86_400_000;
const RETENTION_MS = 7 * DAY_MS;

const database = await openDatabase();
const { pool } = database;
let stranger: Reader;
let member: Reader;
let own: readonly string[];

/** The hidden ones are the younger ones, in the log and in the feed's end. */
beforeAll(async () => {
  const accountId = await insertAccount(pool, "https://receiver.example.com/");
  const spaceId = randomUUID();
  await insertLog(pool, accountId, HIDDEN, { isReplayable: true, spaceId });
  await pool.query(
    `insert into sealpost.feed (account_id, position, delivery_id)
     select account_id, (extract(epoch from now()) * 1000000)::bigint - row_number() over (order by id desc), id
     from sealpost.deliveries`,
  );
  await insertLog(pool, accountId, OWN, { isReplayable: true, younger: -2 * HIDDEN, name: "own" });
  const { rows } = await pool.query<{ id: string }>(
    "select id from sealpost.deliveries where space_id is null order by id desc",
  );
  own = rows.map(({ id }) => id);
  await pool.query("vacuum analyze sealpost.deliveries, sealpost.feed");
  stranger = { accountId, spaceIds: `{${randomUUID()}}` };
  member = { accountId, spaceIds: `{${spaceId}}` };
});

/** Blocks of all tables and indexes that were looked at. */
async function blocksOf(work: () => Promise<unknown>): Promise<number> {
  const count = async () => {
    await flushStatistics(pool);
    const { rows } = await pool.query<{ blocks: number }>(
      `select sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::float8 as blocks
       from pg_statio_user_tables where relname ~ '^(deliveries|feed)_2'`,
    );
    return rows[0]!.blocks;
  };
  const before = await count();
  await work();
  return (await count()) - before;
}

async function expectNoMore(times: number, work: (reader: Reader) => Promise<unknown>): Promise<void> {
  await work(member);
  const mine = await blocksOf(() => work(member));
  expect(mine).toBeGreaterThan(0);
  expect(await blocksOf(() => work(stranger))).toBeLessThan(times * mine);
}

it("the feed looks at no more than for a member, and leads on to what the user sees", async () => {
  const readPage = createReadFeedPage(pool, Buffer.alloc(32), RETENTION_MS);
  const mine = await blocksOf(() => findFeedPlaces(pool, member, 0, RETENTION_MS, 10_000));
  expect(await blocksOf(() => readPage(stranger, 0, 100))).toBeLessThan(1.1 * mine);
  const { items, next } = await readPage(stranger, 0, 100);
  expect(items).toEqual([]);
  const { places } = await findFeedPlaces(pool, member, 0, RETENTION_MS, 10_000);
  expect(next).toBe(places.at(-1)?.position);
});

const list = createListDeliveries(readingFrom(pool), () => 0);
const filters: [string, Partial<DeliveryFilter>][] = [
  ["of the whole log", {}],
  ["by an index", { status: ["failed", "abandoned"] }],
  ["of what has no index", { event: "analysis.succeeded" }],
];

describe.each(filters)("a page %s", (_, filter) => {
  it("looks at no more than for a member", async () => {
    await expectNoMore(LOOKS_OF_PAGE, (reader) => list(reader, filter, null, 50));
    const { next } = await list(stranger, filter, null, 50);
    await expectNoMore(LOOKS_OF_PAGE, (reader) => list(reader, filter, next, 50));
  });

  it("leads on to what the user sees, and counts nothing else", async () => {
    const found: string[] = [];
    let pages = 0;
    for (let belowId: string | null = null; pages === 0 || belowId !== null; pages++) {
      const page = await list(stranger, filter, belowId, 50);
      expect([page.total, page.isTotalCapped]).toEqual([0, true]);
      found.push(...page.items.map(({ id }) => id));
      belowId = page.next;
    }
    expect(found).toEqual(own);
    expect(pages).toBe(HIDDEN / 10_000);
  });
});

describe("a replay", () => {
  const filters: Partial<DeliveryFilter>[] = [{}, { status: ["abandoned"] }, { event: "analysis.succeeded" }];
  const create = (reader: Reader, filter: DeliveryFilter) =>
    inTransaction(pool, (client) =>
      createReplay(client, reader, {
        ...{
          filter,
          ratePerSecond: 1,
          expectedMatched: null,
          note: null,
          createdBy: COMMAND_LINE,
        },
        ...{ analysisRetentionMs: RETENTION_MS, limits: { runningMax: 100, waitingMax: 1_000_000 } },
      }),
    );

  it.each(filters)("of %j looks at no more than for a member, and takes none of too many", async (filter) => {
    const preview = (retentionMs: number) => (reader: Reader) =>
      previewReplay(pool, reader, filter, retentionMs);
    await expectNoMore(1.1, preview(RETENTION_MS));
    await expectNoMore(1.1, preview(0));
    await expectNoMore(1.1, (reader) => create(reader, filter));
    expect(await preview(RETENTION_MS)(stranger)).toMatchObject({ matched: 100_001, expired: 0 });
    expect(await preview(0)(stranger)).toEqual({ matched: 0, own_url: 0, expired: 0 });
    expect(await create(stranger, filter)).toBe("too_many_deliveries");
  });

  it.each(filters)("of %j in a shorter time takes what the user sees", async (some) => {
    const created_before = new Date(Date.now() - HIDDEN - 60_000).toISOString();
    const filter = { ...some, created_before };
    const preview = await previewReplay(pool, stranger, filter, RETENTION_MS);
    expect(preview).toEqual({ matched: OWN, own_url: 0, expired: 0 });
    expect(await create(stranger, filter)).toMatchObject({ matched: OWN });
  });
});
