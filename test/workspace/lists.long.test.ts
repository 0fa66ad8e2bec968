// Lists and counts of a space with a million documents, as many deletions and runs: as fast as of one with few.
import type { Pool } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { idFloor } from "../../src/base/database/partitions.ts";
import { createApiPool } from "../../src/base/database/pools.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { DAY_MS } from "../../src/base/model/time.ts";
import { FIRST_DEFINITION } from "../../src/workspace/model/definition.ts";
import { RUN_STATUSES, type RunStatus } from "../../src/workspace/model/workflows.ts";
import { listBin } from "../../src/workspace/store/bin.ts";
import { findDocument, listDocuments } from "../../src/workspace/store/documents.ts";
import { listRuns, listWorkflowRuns } from "../../src/workspace/store/runs.ts";
import { findSpace, insertSpace, listSpaces } from "../../src/workspace/store/spaces.ts";
import type { SpaceUser } from "../../src/workspace/store/statements.ts";
import {
  insertVersion,
  insertWorkflow,
  listVersions,
  listWorkflows,
} from "../../src/workspace/store/workflows.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { createTestAccount, createTestUser } from "../support/installation.ts";
import { patience } from "../support/time-limits.ts";

const DOCUMENTS = 1_000_000;
const DELETIONS = 1_000_000;
/** Half of them in one space, the others in all others. */
const RUNS = 1_000_000;
/** As many as a user can own, and be a member of. */
const SPACES = 2_000;
const LIMIT = 100;
/** Pages that a statement may touch: of a page of rows with who uploaded each, and of 10,001 that are counted. */
const BLOCKS_MAX = 2_000;
const ASKED = 100;

let database: TestDatabase;
let pool: Pool;
let user: SpaceUser;
let spaceId: string;
let folderId: string;
let ids: readonly string[];
/** Of nearly all runs of the space, and of ten. */
let workflows: readonly [much: string, few: string];

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
  await makeDeletions();
  await makeRuns();
}, patience(900_000));
afterAll(async () => {
  await pool.end();
  await database.drop();
});

async function makeDeletions(): Promise<void> {
  await database.pool.query(
    `insert into workspace.bin (account_id, space_id, kind, item_id, name, deleted_by, gone_at, next_at)
     select $1, $2, 'document', gen_random_uuid(), 'document ' || n, $3, gone.at, gone.at
     from generate_series(1, $4::integer) as n, (select now() + interval '1 day' as at) as gone`,
    [user.accountId, spaceId, user.userId, DELETIONS],
  );
  await database.pool.query("vacuum (analyze) workspace.bin");
}

/** As they have come in a year: nearly all have succeeded, the ten that were cancelled are the oldest. */
async function makeRuns(): Promise<void> {
  const { accountId, userId } = user;
  await database.pool.query(
    `with made as (
       insert into workspace.spaces (account_id, id, owner_id, name, storage_prefix)
       select $1, sealpost.uuid_v7(), $2, 'one of many', 'many/' || n from generate_series(2, $3::integer) as n
       returning id
     )
     insert into workspace.space_members (account_id, user_id, space_id, role) select $1, $2, id, 'ADMIN' from made`,
    [accountId, userId, SPACES],
  );
  const newWorkflow = (id: string) =>
    inTransaction(database.pool, async (tx) => {
      const made = (await insertWorkflow(tx, user, id, "Work", FIRST_DEFINITION))!;
      await insertVersion(tx, user, made.id, null);
      return made.id;
    });
  workflows = [await newWorkflow(spaceId), await newWorkflow(spaceId)];
  await database.pool.query(
    `with made as (
       insert into workspace.workflows (account_id, space_id, name, draft, created_by)
       select $1, space_id, 'Work', $3, $2 from workspace.space_members
       where account_id = $1 and user_id = $2 and space_id <> $4 returning id
     )
     insert into workspace.workflow_versions (account_id, workflow_id, version, definition, created_by)
     select $1, id, 1, $3, $2 from made`,
    [accountId, userId, FIRST_DEFINITION, spaceId],
  );
  await database.pool.query(
    `with others as materialized (
       select row_number() over () - 1 as n, id, space_id from workspace.workflows
       where account_id = $1 and id <> all ($3)
     ), made as (
       select n, now() - (n || ' seconds')::interval * 30 as at, n % 2 = 0 as is_much,
         case when n < 1000 then ($5::text[])[1 + n % 3] when n > $4 - 10 then 'CANCELLED' when n % 33 = 0 then 'FAILED'
           else 'SUCCEEDED' end as status
       from generate_series(0, $4::integer - 1) as n
     )
     insert into workspace.runs (account_id, requested_by, requested_key_id, id, space_id, workflow_id, version, input,
       status, created_at, started_at, completed_at)
     select $1, $2, gen_random_uuid(), sealpost.uuid_v7(at), coalesce(others.space_id, $6),
       coalesce(others.id, ($3::uuid[])[case when made.n % 100000 = 0 then 2 else 1 end]), 1, '{}', status, at, at,
       case when made.n >= 1000 then at end
     from made left join others on not made.is_much and others.n = made.n / 2 % $7`,
    [accountId, userId, workflows, RUNS, RUN_STATUSES.slice(0, 3), spaceId, SPACES - 1],
  );
  await database.pool.query("vacuum (analyze) workspace.runs");
  await database.pool.query("analyze");
}

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

type Filter = Parameters<typeof listRuns>[2];
const NOTHING: Filter = [null, null, null, null];
const only = (...statuses: RunStatus[]): Filter => [statuses, null, null, null];
const here = ([statuses, after, before]: Filter): Filter => [statuses, after, before, spaceId];
/** A day's, half a year ago. */
const ofDay: Filter = [null, ...[181, 180].map((days) => idFloor(Date.now() - days * DAY_MS)), null] as never;
const inMuch = (filter: Filter) => (pool: Pool) =>
  listWorkflowRuns(pool, user, [...filter, workflows[0]], null, LIMIT);
const inFew = (filter: Filter) => (pool: Pool) =>
  listWorkflowRuns(pool, user, [...filter, workflows[1]], null, LIMIT);
type Ask = (database: Pool) => Promise<{ readonly items: readonly unknown[] } | null>;

/** 95 times of 100. */
const within = (mostMs: number) => async (name: string, ask: Ask) => {
  const { Plan: plan } = await explain(ask);
  const tookMs: number[] = [];
  for (let n = 0; n < ASKED; n++) {
    const startedAtMs = performance.now();
    expect((await ask(pool))!.items.length).toBeGreaterThan(0);
    tookMs.push(performance.now() - startedAtMs);
  }
  tookMs.sort((one, other) => one - other);
  const [p50, p95] = [tookMs[ASKED / 2]!, tookMs[Math.ceil(0.95 * ASKED) - 1]!];
  const blocks = (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0);
  const [most, half] = [p95.toFixed(1), p50.toFixed(1)];
  console.log(`${name}: p95 ${most} ms, p50 ${half} ms, ${blocks} pages of 8 KiB`);
  expect(p95).toBeLessThan(patience(mostMs));
};

test.each<[string, Ask]>([
  ["the bin", (pool) => listBin(pool, user, [spaceId], null, LIMIT)],
  ["runs of a workflow", inMuch(NOTHING)],
  ["its failed ones", inMuch(only("FAILED"))],
  ["its cancelled ones, which are old", inMuch(only("CANCELLED"))],
  ["its waiting ones", inMuch(only("WAITING"))],
  ["its failed and cancelled ones of a day", inMuch([["FAILED", "CANCELLED"], ...ofDay.slice(1)] as never)],
  ["those of a workflow with ten", inFew(NOTHING)],
  ["its succeeded ones", inFew(only("SUCCEEDED"))],
  ["runs of a space", (pool) => listRuns(pool, user, here(NOTHING), null, LIMIT)],
  ["its cancelled ones", (pool) => listRuns(pool, user, here(only("CANCELLED")), null, LIMIT)],
  ["its runs of a day", (pool) => listRuns(pool, user, here(ofDay), null, LIMIT)],
  [
    "its runs behind half a million",
    (pool) => listRuns(pool, user, here(NOTHING), middleOf(RUNS / 2), LIMIT),
  ],
  ["workflows with their last runs", (pool) => listWorkflows(pool, user, [spaceId, "ACTIVE"], null, LIMIT)],
  ["versions of a workflow", (pool) => listVersions(pool, user, [workflows[0]], null, LIMIT)],
])("%s are there within 50 ms", within(50));

// A look-up for each space, or for each of its statuses, and two on later pages.
test.each<[string, Ask]>([
  ["runs of 2,000 spaces", (pool) => listRuns(pool, user, NOTHING, null, LIMIT)],
  ["their failed ones", (pool) => listRuns(pool, user, only("FAILED"), null, LIMIT)],
  ["their cancelled ones", (pool) => listRuns(pool, user, only("CANCELLED"), null, LIMIT)],
  ["their waiting ones", (pool) => listRuns(pool, user, only("WAITING"), null, LIMIT)],
  ["their runs of a day", (pool) => listRuns(pool, user, ofDay, null, LIMIT)],
  ["their runs behind half a million", (pool) => listRuns(pool, user, NOTHING, middleOf(RUNS / 2), LIMIT)],
])("%s are there, too", within(50));

/** The newest id of so many runs' age. */
function middleOf(n: number): string {
  return idFloor(Date.now() - n * 30_000);
}

test("the counts are true, or said to be a lower bound", async () => {
  expect(await findSpace(pool, user, spaceId)).toMatchObject({ document_count: DOCUMENTS });
  const { total, isTotalCapped } = (await listDocuments(pool, user, inSpace(), null, 1))!;
  expect([total, isTotalCapped]).toEqual([10_000, true]);
});
