// Accounts that rename much leave another one's renames their turn, and what these leave behind.
import { afterAll, beforeAll, expect, test } from "vitest";
import { startMover } from "../../src/workspace/moving/mover.ts";
import { GREEDY_COUNTS } from "../support/fair-shares.ts";
import { rowsOf } from "../support/installation.ts";
import type { TestAccount } from "../support/sealpost-api.ts";
import { type StillApi, startStillApi } from "./support/moving.ts";

const OF_EACH = 200;

let still: StillApi;
beforeAll(async () => {
  still = await startStillApi();
});
afterAll(() => still.close());

/** Of this many documents, each of which was renamed, or of one space. */
async function rename(account: TestAccount, count: number): Promise<void> {
  const { api, database, documents } = still;
  const { key, accountId, userId } = account;
  const { id } = await documents.newSpace("renamed", { key });
  await database.pool.query(
    `with renamed as (
       insert into workspace.documents
         (account_id, space_id, file_name, content_type, file_size, storage_key, live_content_type, uploaded_by)
       select $1, $2::uuid, n || '.txt', 'text/plain', 0, $2::text || '/' || n, 'NONE', $3
       from generate_series(1, $4) as n
       returning id
     )
     insert into workspace.moves (account_id, space_id, document_id) select $1, $2, id from renamed`,
    [accountId, id, userId, count],
  );
  await api.ask("PATCH", `/v1/spaces/${id}`, { key, body: { name: "renamed again" } });
}

test.each(GREEDY_COUNTS)("beside %i greedy accounts a rename is next after one of each", async (count) => {
  const { api, database } = still;
  await database.pool.query("delete from workspace.moves");
  for (let n = 0; n < count; n++) await rename(await api.newAccount(), OF_EACH);
  const victim = await api.newAccount();
  await rename(victim, 2);
  const order = await claimedInOrder("claim_move", 3 * (count + 1));
  const turns = order.flatMap((accountId, n) => (accountId === victim.accountId ? [n] : []));
  expect(turns).toHaveLength(3);
  // One of each account comes before the next of any.
  for (let round = 0; round < 3; round++) {
    const those = order.slice(round * (count + 1), (round + 1) * (count + 1));
    expect(new Set(those).size).toBe(count + 1);
  }
  expect(await rowsOf(database.pool, "workspace.moves", { account_id: victim.accountId })).toEqual([]);
});

test.each(GREEDY_COUNTS)("beside %i greedy accounts what another leaves is removed soon", async (count) => {
  const { api, database } = still;
  await database.pool.query("delete from workspace.loose_objects");
  const leave = (account: TestAccount, leftCount: number) =>
    database.pool.query(
      `insert into workspace.loose_objects (account_id, storage_key, is_reserved, remove_at)
       select $1::uuid, $1 || '/' || n, false, now() - interval '1 hour' from generate_series(1, $2) as n`,
      [account.accountId, leftCount],
    );
  for (let n = 0; n < count; n++) {
    const greedy = await api.newAccount();
    await rename(greedy, 0);
    await leave(greedy, OF_EACH);
  }
  const victim = await api.newAccount();
  await rename(victim, 0);
  await leave(victim, 1);
  // 25 at a time: one step of each account comes before the second of any.
  const order = await claimedInOrder("claim_loose", 25 * count + 1);
  expect(order).toContain(victim.accountId);
});

/** The accounts whose moves, or leftovers, a mover takes, one after the other. */
async function claimedInOrder(
  statement: "claim_move" | "claim_loose",
  count: number,
): Promise<readonly string[]> {
  const { objects } = still;
  const { pool } = still.database;
  const order: string[] = [];
  const query = pool.query.bind(pool) as (...asked: unknown[]) => Promise<{ rows: { accountId: string }[] }>;
  const watched = new Proxy(pool, {
    get: (target, name) => {
      if (name !== "query") return Reflect.get(target, name, target);
      return async (...asked: unknown[]) => {
        const result = await query(...asked);
        const [first] = asked as [{ name?: string } | string];
        if (typeof first === "object" && first.name === statement)
          order.push(...result.rows.map(({ accountId }) => accountId));
        return result;
      };
    },
  });
  const stop = startMover({
    ...{ pool: watched, objects, keptMs: 0, now: Date.now, lookEveryMs: 10 },
    onLost: () => undefined,
    onError: (_, error) => {
      throw error;
    },
  });
  // Whoever takes the next has done with the last of these.
  await expect.poll(() => order.length, { timeout: 30_000 }).toBeGreaterThan(count);
  await stop();
  return order.slice(0, count);
}
