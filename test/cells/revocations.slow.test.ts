import { afterAll, beforeAll, expect, it } from "vitest";
import { revokeApiKey } from "../../src/accounts/api-keys-sql.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { createTestCells, killedAt, type TestCells } from "../support/cells.ts";
import {
  createTestAccount,
  createTestKey,
  lockTable,
  rowsOf,
  untilSomebodyWaits,
} from "../support/installation.ts";

let cells: TestCells;
beforeAll(async () => {
  cells = await createTestCells();
});
afterAll(() => cells.drop());

it("a key that is revoked while the account is opened is revoked in both cells", async () => {
  const { accountId } = await createTestAccount(cells.source, "https://hooks.example.com/");
  const [before, early, late, kept] = await Promise.all(
    [1, 2, 3, 4].map(async () => (await createTestKey(cells.source.pool, accountId)).keyId),
  );
  await revokeApiKey(cells.source.pool, before!);
  // Its keys have been read by then.
  const held = await lockTable(cells.target.pool, "signing_secrets");
  const opening = expect(moveAccount(cells.move(accountId, killedAt("finish")))).rejects.toThrow("killed");
  await untilSomebodyWaits(cells.target.pool);
  // Nobody knows it at the target yet.
  expect(await revokeApiKey(cells.target.pool, early!)).toBe(null);
  const revoked = await revokeApiKey(cells.source.pool, early!);
  await held.rollback();
  await opening;
  await revokeApiKey(cells.target.pool, late!);

  await moveAccount(cells.move(accountId));
  for (const { pool } of [cells.source, cells.target]) {
    const keys = await rowsOf(pool, "api_keys", { account_id: accountId });
    const valid = keys.filter(({ revoked_at }) => revoked_at === null).map(({ id }) => id);
    expect(valid).toEqual([kept]);
    expect(keys.find(({ id }) => id === early)!.revoked_at).toEqual(revoked!.revokedAt);
  }
});
