// What a user does not see is not read on the way to the 404 either: the time that it takes tells nothing of it.
import { expect, test } from "vitest";
import { findDelivery } from "../../src/log/deliveries-sql.ts";
import { listFolders } from "../../src/workspace/store/documents.ts";
import { flushStatistics } from "../support/installation.ts";
import { newUser, runIn, setRole, type User } from "./membership-world.ts";
import { api, database, documents, useRuns } from "./run-world.ts";

useRuns();

/** Blocks of tables, and of their indexes, of such names that are read. */
async function blocksOf(tables: string, work: () => Promise<unknown>): Promise<number> {
  const count = async () => {
    await flushStatistics(database.pool);
    const { rows } = await database.pool.query<{ blocks: number }>(
      `select sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::float8 as blocks
       from pg_statio_user_tables where relname ~ $1`,
      [tables],
    );
    return rows[0]!.blocks;
  };
  const before = await count();
  await work();
  return (await count()) - before;
}

/** Planning reads a page of an index or two. */
async function expectPlansAlone(
  tables: string,
  seen: () => Promise<unknown>,
  unseen: () => Promise<unknown>,
): Promise<void> {
  expect(await blocksOf(tables, seen)).toBeGreaterThan(4);
  expect(await blocksOf(tables, unseen)).toBeLessThanOrEqual(2);
}

async function spaceOfOne() {
  const spaceId = String((await documents.newSpace()).id);
  const member = await newUser();
  await setRole(spaceId, member, "VIEWER");
  return { spaceId, member, stranger: await newUser() };
}

test("a list of a space", async () => {
  const { spaceId, member, stranger } = await spaceOfOne();
  await database.pool.query(
    `insert into workspace.folders (account_id, space_id, name, created_by)
     select $1, $2, n::text, $3 from generate_series(1, 1000) as n`,
    [api.account.accountId, spaceId, member.userId],
  );
  const list = ({ userId }: User) =>
    listFolders(database.pool, { accountId: api.account.accountId, userId }, [spaceId, null], null, 50);
  await expectPlansAlone(
    "^folders$",
    () => list(member),
    () => list(stranger),
  );
});

test("a delivery, its attempts and its body", async () => {
  const { spaceId } = await spaceOfOne();
  const { deliveryId } = await runIn(spaceId, "hidden.txt");
  const find = (spaceIds: string) =>
    findDelivery(database.pool, { accountId: api.account.accountId, spaceIds }, deliveryId);
  const tables = "^(bodies|attempts)_|^signing_secrets$";
  await expectPlansAlone(
    tables,
    () => find(`{${spaceId}}`),
    () => find("{}"),
  );
});
