import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { digestSecret } from "../../../src/http/api-keys.ts";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { createTestAccount, rowOf, rowsOf } from "../../support/installation.ts";

let database: TestDatabase;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createTestAccount(database));
});
afterAll(() => database.drop());

const run = (...args: string[]) => runSealpost(args, { env: { DATABASE_URL: database.url } });
const create = (idpUserId: string, more: Record<string, string> = {}) => {
  const options = {
    account: accountId,
    "idp-user-id": idpUserId,
    email: "ada@Example.com",
    name: "Ada",
    ...more,
  };
  return run("user", "create", ...Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]));
};

describe("user", () => {
  test("create adds one that keys can act for, and list shows it", async () => {
    const { code, stdout } = await create("auth|1", { "image-url": "https://img.example.com/a.png" });
    expect(code).toBe(0);
    const user = JSON.parse(stdout);
    expect(user).toEqual({
      user_id: expect.any(String),
      account_id: accountId,
      idp_user_id: "auth|1",
      email: "ada@example.com",
      name: "Ada",
      image_url: "https://img.example.com/a.png",
      created_at: expect.any(String),
      disabled_at: null,
    });
    expect(JSON.parse((await run("user", "list", "--account", accountId)).stdout)).toEqual([user]);
    // The audit log is kept longer than people stay: it has no address.
    const entry = { operation_key: "users.create", actor: "command_line" };
    expect(await rowsOf(database.pool, "audit_log", entry)).toMatchObject([
      { account_id: accountId, details: { user_id: user.user_id, idp_user_id: "auth|1" } },
    ]);

    const made = await run("key", "create", "--user", user.user_id, "--scopes", "spaces:read");
    const { api_key, key_id } = JSON.parse(made.stdout);
    const digest = digestSecret(api_key);
    expect(await rowOf(database.pool, "api_keys", { digest })).toMatchObject({
      id: key_id,
      account_id: accountId,
      user_id: user.user_id,
    });
  });

  test("disable revokes the keys of one, and no more are made until create enables it again", async () => {
    const { user_id } = JSON.parse((await create("auth|6")).stdout);
    const makeKey = () => run("key", "create", "--user", user_id, "--scopes", "spaces:read");
    const { key_id } = JSON.parse((await makeKey()).stdout);
    const disabled = await run("user", "disable", user_id);
    expect(JSON.parse(disabled.stdout)).toMatchObject({ user_id, disabled_at: expect.any(String) });
    expect((await rowOf(database.pool, "api_keys", { id: key_id })).revoked_at).not.toBeNull();
    expect(await makeKey()).toMatchObject({ code: 2, stderr: expect.stringContaining("is disabled") });
    expect(JSON.parse((await create("auth|6")).stdout)).toMatchObject({ user_id, disabled_at: null });
    expect(await makeKey()).toMatchObject({ code: 0 });
  });

  test.each([
    ["an id that the account has already", () => create("auth|2").then(() => create("auth|2")), "already"],
    ["an unknown account", () => create("auth|3", { account: randomUUID() }), "sealpost account list"],
    ["no address", () => create("auth|3", { email: "ada" }), "name@example.com"],
    ["a picture that is not https", () => create("auth|3", { "image-url": "http://x/" }), "https URL"],
    ["to disable an unknown one", () => run("user", "disable", randomUUID()), "sealpost user list"],
    [
      "a key for an unknown user",
      () => run("key", "create", "--user", randomUUID(), "--scopes", "spaces:read"),
      "sealpost user list",
    ],
    [
      "a key of a user with a scope for what is the account's",
      async () => {
        const { stdout } = await create("auth|5");
        const { user_id } = JSON.parse(stdout);
        return await run("key", "create", "--user", user_id, "--scopes", "spaces:read,webhooks:write");
      },
      "The scope webhooks:write is for the whole account",
    ],
    [
      "a key for a user and staff",
      () => run("key", "create", "--user", randomUUID(), "--staff", "--scopes", "spaces:read"),
      "--user ID",
    ],
  ])("refuses %s", async (_, asked, told) => {
    expect(await asked()).toMatchObject({ code: 2, stdout: "", stderr: expect.stringContaining(told) });
  });
});

test("a key acts for nobody of another account", async () => {
  const other = await createTestAccount(database);
  const { stdout } = await create("auth|4");
  const crossed = { account_id: other.accountId, user_id: JSON.parse(stdout).user_id };
  const inserting = database.pool.query(
    `insert into sealpost.api_keys (account_id, user_id, digest, class, scopes)
     values ($1, $2, sha256('x'), 'test', '{}')`,
    Object.values(crossed),
  );
  await expect(inserting).rejects.toThrow("api_keys_user");
});
