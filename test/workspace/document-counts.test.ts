// A space's document_count is kept as documents come and go, whoever makes them.
import { expect, test } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { insertSpace } from "../../src/workspace/store/spaces.ts";
import type { SpaceUser } from "../../src/workspace/store/statements.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { createTestAccount, createTestUser } from "../support/installation.ts";
import { startTestApi } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";

async function countOf({ pool }: TestDatabase, spaceId: unknown): Promise<number> {
  const { rows } = await pool.query("select document_count from workspace.spaces where id = $1", [spaceId]);
  return rows[0].document_count;
}

/** As a process of any version does. */
async function insert(
  { pool }: TestDatabase,
  user: SpaceUser,
  spaceId: string,
  count: number,
): Promise<void> {
  await pool.query(
    `insert into workspace.documents (account_id, space_id, file_name, content_type, file_size, storage_key,
       live_content_type, uploaded_by)
     select $1, $2, gen_random_uuid(), 'text/plain', 1, gen_random_uuid(), 'NONE', $3
     from generate_series(1, $4::integer)`,
    [user.accountId, spaceId, user.userId, count],
  );
}

test("documents are counted, whoever makes them", async () => {
  await using resources = new AsyncDisposableStack();
  const database = await createTestDatabase();
  resources.defer(() => database.drop());
  const { accountId } = await createTestAccount(database);
  const user = { accountId, userId: (await createTestUser(database.pool, accountId)).id };
  const [space, empty] = [
    (await inTransaction(database.pool, (tx) => insertSpace(tx, user, "Some")))!,
    (await inTransaction(database.pool, (tx) => insertSpace(tx, user, "Empty")))!,
  ];
  await insert(database, user, space, 7);
  expect([await countOf(database, space), await countOf(database, empty)]).toEqual([7, 0]);
  await insert(database, user, space, 1);
  expect(await countOf(database, space)).toBe(8);
});

test("those of 20 who make some at once, and some in vain, are all counted", async () => {
  await using resources = new AsyncDisposableStack();
  const database = await createTestDatabase();
  resources.defer(() => database.drop());
  const api = await startTestApi(database);
  resources.defer(() => api.close());
  const documents = documentsOf(api.ask);
  const { id: space_id } = await documents.newSpace();
  const names = Array.from({ length: 20 }, (_, n) => `${n % 15}`);
  const made = await Promise.all(names.map((file_name) => documents.create({ space_id, file_name })));
  expect(made.filter(({ status }) => status === 201)).toHaveLength(15);
  expect((await api.ask("GET", `/v1/spaces/${space_id}`)).body.document_count).toBe(15);
  await database.pool.query("delete from workspace.documents where file_name in ('1', '2')");
  expect(await countOf(database, space_id)).toBe(13);
});
