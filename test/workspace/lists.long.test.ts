// Lists and counts of a space with a million documents: as fast as of one with few.
import type { Pool } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createApiPool } from "../../src/base/database/pools.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { findDocument, listDocuments } from "../../src/workspace/store/documents.ts";
import { findSpace, insertSpace, listSpaces } from "../../src/workspace/store/spaces.ts";
import type { SpaceUser } from "../../src/workspace/store/statements.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { createTestAccount, createTestUser } from "../support/installation.ts";
import { patience } from "../support/time-limits.ts";

const DOCUMENTS = 1_000_000;
const LIMIT = 100;
/** Pages that a statement may touch: of a page of rows with who uploaded each, and of 10,001 that are counted. */
const BLOCKS_MAX = 2_000;

let database: TestDatabase;
let pool: Pool;
let user: SpaceUser;
let spaceId: string;
let folderId: string;
let ids: readonly string[];

beforeAll(async () => {
  database = await createTestDatabase();
  pool = createApiPool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test lists",
    onError: () => undefined,
  });
  const { accountId } = await createTestAccount(database);
  user = { accountId, userId: (await createTestUser(pool, accountId)).id };
  spaceId = (await inTransaction(database.pool, (tx) => insertSpace(tx, user, "Much")))!;
  const folder = await pool.query(
    `insert into workspace.folders (account_id, space_id, name, created_by) values ($1, $2, 'half', $3) returning id`,
    [accountId, spaceId, user.userId],
  );
  folderId = folder.rows[0].id;
  await database.pool.query(
    `insert into workspace.documents (account_id, space_id, folder_id, file_name, content_type, file_size,
       storage_key, live_content_type, uploaded_by)
     select $1, $2, case when n % 2 = 0 then $3::uuid end, 'document ' || n, 'text/plain', n, 'spaces/much/' || n,
       'NONE', $4
     from generate_series(1, $5::integer) as n`,
    [accountId, spaceId, folderId, user.userId, DOCUMENTS],
  );
  await database.pool.query("vacuum (analyze) workspace.documents");
  const middle = await pool.query<{ id: string }>(
    `select id from workspace.documents where account_id = $1 and space_id = $2 order by id
     offset $3::integer limit 1`,
    [accountId, spaceId, DOCUMENTS / 2],
  );
  ids = middle.rows.map(({ id }) => id);
}, patience(300_000));
afterAll(async () => {
  await pool.end();
  await database.drop();
});

type Plan = {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly Plans?: readonly Plan[];
};
type Explained = { readonly Plan: Plan & Record<string, number>; readonly "Execution Time": number };

const nodesOf = (plan: Plan): Plan[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];

/** What the statement that `ask` sends costs, once everything is in memory. */
async function explain(ask: (pool: Pool) => Promise<unknown>): Promise<Explained> {
  let explained: Explained | null = null;
  const explaining = {
    query: async (asked: string | { text: string; values: unknown[] }, values?: unknown[]) => {
      const { text, values: given } = typeof asked === "string" ? { text: asked, values } : asked;
      const { rows } = await pool.query(`explain (analyze, buffers, format json) ${text}`, given);
      explained = rows[0]["QUERY PLAN"][0];
      return await pool.query(text, given);
    },
  };
  for (let n = 0; n < 3; n++) await ask(explaining as unknown as Pool);
  return explained!;
}

const inSpace = (): [string, null] => [spaceId, null];
const inFolder = (): [string, string] => [spaceId, folderId];
test.each<[string, (database: Pool) => Promise<unknown>]>([
  ["the first documents", (pool) => listDocuments(pool, user, inSpace(), null, LIMIT)],
  ["documents from the middle", (pool) => listDocuments(pool, user, inSpace(), ids[0]!, LIMIT)],
  ["the first of a folder", (pool) => listDocuments(pool, user, inFolder(), null, LIMIT)],
  ["some of a folder, from the middle", (pool) => listDocuments(pool, user, inFolder(), ids[0]!, LIMIT)],
  ["one document", (pool) => findDocument(pool, user, ids[0]!)],
  ["the spaces", (pool) => listSpaces(pool, user, [false], null, LIMIT)],
  ["the space", (pool) => findSpace(pool, user, spaceId)],
])("%s are found by index", async (name, ask) => {
  const { Plan: plan, "Execution Time": ms } = await explain(ask);
  const blocks = (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0);
  console.log(`${name}: ${ms.toFixed(1)} ms, ${blocks} pages of 8 KiB`);
  const scanned = nodesOf(plan).filter((node) => node["Node Type"].includes("Seq Scan"));
  expect(scanned.map((node) => node["Relation Name"]).filter((table) => table === "documents")).toEqual([]);
  expect(blocks).toBeLessThan(BLOCKS_MAX);
});

test("the counts are true, or said to be a lower bound", async () => {
  expect(await findSpace(pool, user, spaceId)).toMatchObject({ document_count: DOCUMENTS });
  const { total, isTotalCapped } = (await listDocuments(pool, user, inSpace(), null, 1))!;
  expect([total, isTotalCapped]).toEqual([10_000, true]);
});
