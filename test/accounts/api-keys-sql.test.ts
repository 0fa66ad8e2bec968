import { createHash, randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAccount } from "../../src/accounts/accounts-sql.ts";
import {
  findApiKey,
  insertApiKey,
  listApiKeys,
  noteApiKeyUse,
  revokeApiKey,
} from "../../src/accounts/api-keys-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { changeRows } from "../support/installation.ts";

const nobody = "00000000-0000-7000-8000-000000000000";

let database: TestDatabase;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createAccount(database.pool, "A", randomBytes(32)));
});
afterAll(() => database.drop());

function newDigest(): Buffer {
  return createHash("sha256").update(randomBytes(32)).digest();
}

async function insert(digest: Buffer, other: Partial<Parameters<typeof insertApiKey>[1]> = {}) {
  const key = {
    accountId,
    digest,
    class: "test",
    name: "CI",
    scopes: ["webhooks:read"],
    expiresInSeconds: null,
  };
  const made = await insertApiKey(database.pool, {
    ...key,
    ...other,
  } as Parameters<typeof insertApiKey>[1]);
  return made?.id ?? null;
}

describe("a key", () => {
  test("is found by its digest", async () => {
    const digest = newDigest();
    const id = await insert(digest, { scopes: ["a:read", "b:write"] });
    expect(await findApiKey(database.pool, digest)).toEqual({
      id,
      accountId,
      userId: null,
      scopes: new Set(["a:read", "b:write"]),
      expiresAt: null,
      revokedAt: null,
      lastUsedAt: null,
    });
    expect((await listApiKeys(database.pool, accountId))[0]).toEqual({
      id,
      account_id: accountId,
      user_id: null,
      class: "test",
      name: "CI",
      scopes: ["a:read", "b:write"],
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      expires_at: null,
      revoked_at: null,
      last_used_at: null,
      sha256: digest.toString("hex"),
      moved_to: null,
    });
    expect(await findApiKey(database.pool, newDigest())).toBeNull();
  });

  test("of an unknown account is not made; a staff key needs none", async () => {
    expect(await insert(newDigest(), { accountId: nobody })).toBeNull();
    const digest = newDigest();
    await insert(digest, { accountId: null });
    expect(await findApiKey(database.pool, digest)).toMatchObject({ accountId: null });
  });

  test("expires so many seconds after it was made", async () => {
    const digest = newDigest();
    await insert(digest, { expiresInSeconds: 90 });
    const key = await findApiKey(database.pool, digest);
    const [{ created_at } = { created_at: "" }] = await listApiKeys(database.pool, accountId);
    expect(Number(key?.expiresAt) - Date.parse(created_at)).toBe(90_000);
  });

  test("that was revoked is still found, and the first time stays", async () => {
    const digest = newDigest();
    const id = (await insert(digest)) ?? "";
    const revoked = await revokeApiKey(database.pool, id);
    expect(revoked).toEqual({ accountId, revokedAt: expect.any(Date) });
    expect(await revokeApiKey(database.pool, id)).toEqual(revoked);
    expect(await findApiKey(database.pool, digest)).toMatchObject({ revokedAt: revoked?.revokedAt });
    expect(await revokeApiKey(database.pool, nobody)).toBeNull();
  });

  test("notes its use at most once a minute", async () => {
    const digest = newDigest();
    const id = (await insert(digest)) ?? "";
    await noteApiKeyUse(database.pool, id);
    const first = (await findApiKey(database.pool, digest))?.lastUsedAt;
    expect(first).toBeInstanceOf(Date);
    await noteApiKeyUse(database.pool, id);
    expect((await findApiKey(database.pool, digest))?.lastUsedAt).toEqual(first);
    await changeRows(database.pool, "api_keys", { id }, { last_used_at: new Date(Number(first) - 61_000) });
    await noteApiKeyUse(database.pool, id);
    expect(Number((await findApiKey(database.pool, digest))?.lastUsedAt)).toBeGreaterThanOrEqual(
      Number(first),
    );
  });
});

test("the list is of one account or of all, the newest first", async () => {
  const mine = await insert(newDigest());
  const staff = await insert(newDigest(), { accountId: null });
  const all = await listApiKeys(database.pool, null);
  expect(all.slice(0, 2).map((key) => key.id)).toEqual([staff, mine]);
  const ofAccount = await listApiKeys(database.pool, accountId);
  expect(ofAccount[0]?.id).toBe(mine);
  expect(ofAccount.every((key) => key.account_id === accountId)).toBe(true);
});
