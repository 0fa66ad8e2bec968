import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import { describe, expect, it } from "vitest";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { deleteMoved } from "../../src/cells/calling-off.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { type FeedPosition, findFeedPlaces, sequenceEvents } from "../../src/feed/feed-sql.ts";
import type { TestDatabase } from "../support/database.ts";
import {
  createTestAccount,
  lockTable,
  publish,
  SECRETS_KEY,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { accountId, cells, useMovableAccount } from "./movable-account.ts";

useMovableAccount();

let serial = 0;
const publishOne = ({ pool }: TestDatabase) =>
  publish(pool, accountId, `{"id":"${++serial}","status":"succeeded"}`);

const holders = { source: randomUUID(), target: randomUUID() };
const sequence = (cell: "source" | "target") => sequenceEvents(cells[cell].pool, holders[cell], 1_000);

/** A page of two, and the cursor that its reader goes on with. */
async function read(cell: "source" | "target", after: FeedPosition | null) {
  const found = await findFeedPlaces(cells[cell].pool, wholeAccount(accountId), after, 7 * 86_400_000, 2);
  const last = found.places.at(-1);
  const isLast = found.places.length < 2;
  const next = isLast ? Math.max(found.newest, after ?? 0) : last!.position;
  return { ids: found.places.map(({ deliveryId }) => deliveryId), next };
}

/** The deliveries are gone, and the table of the feed is held by somebody else for too long. */
async function killedWhileDeleting(pool: Pool): Promise<void> {
  const held = await lockTable(cells.source.pool, "feed");
  const source = { pool, secretsKey: SECRETS_KEY };
  const deleting = expect(deleteMoved(source, accountId)).rejects.toThrow("terminating");
  const [pid] = await untilSomebodyWaits(cells.source.pool);
  await cells.source.pool.query("select pg_terminate_backend($1)", [pid]);
  await deleting;
  await held.rollback();
}

describe("a reader of the feed", () => {
  it("goes on at the target with a cursor of the source: nothing is missed, nothing comes twice", async () => {
    const published = [
      await publishOne(cells.source),
      await publishOne(cells.source),
      await publishOne(cells.source),
    ];
    await sequence("source");
    const first = await read("source", 0);
    await moveAccount(cells.move(accountId));
    published.push(await publishOne(cells.target));
    await sequence("target");
    const second = await read("target", first.next);
    const third = await read("target", second.next);
    expect([...first.ids, ...second.ids, ...third.ids]).toEqual(published);
  });

  it("misses nothing although it reads the source for long after the move", async () => {
    await moveAccount(cells.move(accountId));
    const published = await publishOne(cells.target);
    await sequence("target");
    // Other accounts go on there, and so do its positions.
    const other = await createTestAccount(cells.source);
    await publish(cells.source.pool, other.accountId, '{"id":"other","status":"succeeded"}');
    while ((await sequence("source")).sequenced === 0);
    const { next } = await read("source", null);
    expect((await read("target", next)).ids).toEqual([published]);
  });

  it.each(["while", "after"] as const)(
    "misses nothing at a source asked %s its rows are deleted",
    async (when) => {
      const published = [
        await publishOne(cells.source),
        await publishOne(cells.source),
        await publishOne(cells.source),
      ];
      // The move before has led it for a moment.
      while ((await sequence("source")).sequenced === 0);
      const first = await read("source", 0);
      const move = cells.move(accountId);
      await moveAccount(move);
      // Deliveries go before the places that name them.
      if (when === "after") await deleteMoved(move.source, accountId);
      else await killedWhileDeleting(move.source.pool);
      const second = await read("source", first.next);
      expect(second.ids).toEqual([]);
      const third = await read("target", second.next);
      expect([...first.ids, ...third.ids]).toEqual(published);
    },
  );

  it("misses nothing where the source's clock is an hour ahead", async () => {
    await cells.source.pool.query(
      `insert into sealpost.feed_steps (step, holder, lease_until, position, serial, gaps, caught_up_at)
       select step + 1, holder, now(), position + 3600000000, serial, gaps, caught_up_at
       from sealpost.feed_steps order by step desc limit 1`,
    );
    const { next } = await read("source", null);
    await moveAccount(cells.move(accountId));
    const published = await publishOne(cells.target);
    await sequence("target");
    expect((await read("target", next)).ids).toEqual([published]);
  });
});
