import { afterEach, beforeEach, expect, test } from "vitest";
import { insertApiKey } from "../../src/accounts/api-keys-sql.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { callOffMove, deleteMoved } from "../../src/cells/calling-off.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { insertSpace } from "../../src/workspace/store/spaces.ts";
import { createTestCells, type TestCells } from "../support/cells.ts";
import { createTestAccount, createTestUser, rowOf, rowsOf } from "../support/installation.ts";

let cells: TestCells;
let accountId: string;
let userId: string;
beforeEach(async () => {
  cells = await createTestCells();
  ({ accountId } = await createTestAccount(cells.source));
  ({ id: userId } = await createTestUser(cells.source.pool, accountId));
});
afterEach(() => cells.drop());

const makeSpace = () => inTransaction(cells.source.pool, (tx) => insertSpace(tx, { accountId, userId }, "x"));
const isClosed = async () =>
  (await rowOf(cells.source.pool, "accounts", { id: accountId })).moved_to !== null;

test("an account that has a space is not moved, and stays open", async () => {
  await makeSpace();
  await expect(moveAccount(cells.move(accountId))).rejects.toThrow(
    `Account ${accountId} has spaces, and stored documents cannot be moved to another cell yet.`,
  );
  expect(await isClosed()).toBe(false);
});

test("a space that comes while the account is being closed stops the move, which can be called off", async () => {
  const inserted = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  // Begun before the account was closed, and committed after.
  const made = inTransaction(cells.source.pool, async (tx) => {
    await insertSpace(tx, { accountId, userId }, "x");
    inserted.resolve();
    await closed.promise;
    expect(await isClosed()).toBe(true);
  });
  await inserted.promise;
  const onProgress = (part: string) => {
    if (part === "wait_for_transactions") closed.resolve();
  };
  const move = cells.move(accountId, { onProgress });
  await expect(moveAccount(move)).rejects.toThrow("call the move off with --cancel");
  await made;
  expect(await rowsOf(cells.target.pool, "accounts", { id: accountId })).toEqual([]);
  await callOffMove(move);
  expect(await isClosed()).toBe(false);
});

test("users move, and keys act for them there; what is left names nobody", async () => {
  const key = { accountId, userId, digest: Buffer.alloc(32, 1), class: "test", name: null } as const;
  const made = await insertApiKey(cells.source.pool, { ...key, scopes: [], expiresInSeconds: null });
  const [user] = await rowsOf(cells.source.pool, "users", { id: userId });
  const move = cells.move(accountId);
  await moveAccount(move);
  expect(await rowsOf(cells.target.pool, "users", { id: userId })).toEqual([user]);
  expect(await rowOf(cells.target.pool, "api_keys", { id: made!.id })).toMatchObject({ user_id: userId });
  await deleteMoved(move.source, accountId);
  expect(await rowsOf(cells.source.pool, "users", { id: userId })).toEqual([]);
  expect(await rowOf(cells.source.pool, "api_keys", { id: made!.id })).toMatchObject({ user_id: null });
});
