import { afterAll, beforeAll, expect, test } from "vitest";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { countRows, insertRow, refusingRows } from "../../support/installation.ts";

const nobody = "00000000-0000-7000-8000-000000000000";
const URL_SET = "https://hooks.example.com/";

let database: TestDatabase;
let env: Record<string, string>;
beforeAll(async () => {
  database = await createTestDatabase();
  env = { DATABASE_URL: database.url, SECRETS_KEY: Buffer.alloc(32, 9).toString("base64") };
});
afterAll(() => database.drop());

const run = (...args: string[]) => runSealpost(args, { env });
const entries = () => countRows(database.pool, "audit_log");

async function resultOf(...args: string[]) {
  const { code, stdout, stderr } = await run(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}

test("what is changed from the command line is in the audit log, and no secret with it", async () => {
  const { account_id, signing_secret } = await resultOf("account", "create", "--name", "Acme");
  const scopes = ["--scopes", "webhooks:read"];
  const key = await resultOf("key", "create", "--account", account_id, ...scopes, "--name", "CI");
  const staff = await resultOf("key", "create", "--staff", ...scopes, "--expires-in", "1d");
  await resultOf("endpoint", "set", "--account", account_id, "--url", "https://Hooks.example.com");
  const rotated = await resultOf("secret", "rotate", "--account", account_id, "--overlap", "1h");
  await resultOf("key", "revoke", key.key_id);

  const all = await resultOf("audit", "list");
  const made = {
    key_id: key.key_id,
    user_id: null,
    name: "CI",
    scopes: ["webhooks:read"],
    expires_at: null,
  };
  const madeStaff = {
    key_id: staff.key_id,
    user_id: null,
    name: null,
    scopes: ["webhooks:read"],
    expires_at: expect.any(String),
  };
  expect(
    all.map((entry: Record<string, unknown>) => [entry.operation, entry.account_id, entry.details]),
  ).toEqual([
    ["api_keys.revoke", account_id, { key_id: key.key_id }],
    ["webhooks.signing_secret.rotate", account_id, { overlap_seconds: 3_600 }],
    ["webhooks.endpoint.set", account_id, { url: URL_SET }],
    ["api_keys.create", null, madeStaff],
    ["api_keys.create", account_id, made],
    ["accounts.create", account_id, { name: "Acme" }],
  ]);
  expect(all[0]).toEqual({
    account_id,
    id: expect.any(String),
    at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    operation: "api_keys.revoke",
    actor: { kind: "command_line", key_id: null, name: null, user: null, viewer: null },
    request_id: null,
    details: { key_id: key.key_id },
  });
  for (const secret of [signing_secret, key.api_key, staff.api_key, rotated.signing_secret]) {
    expect(JSON.stringify(all)).not.toContain(secret);
  }

  const operations = async (...args: string[]) =>
    (await resultOf("audit", "list", ...args)).map(({ operation }: { operation: string }) => operation);
  expect(await operations("--account", account_id, "--operation", "api_keys.create")).toEqual([
    "api_keys.create",
  ]);
  expect(await operations("--actor", "key")).toEqual([]);
  expect(await operations("--actor", "command_line", "--limit", "2")).toEqual(
    all.slice(0, 2).map(({ operation }: { operation: string }) => operation),
  );
  expect(await operations("--after", all[0].at)).toContain("api_keys.revoke");
  expect(await operations("--after", "2100-01-01T00:00Z")).toEqual([]);
  expect(await operations("--before", all[5].at)).toEqual([]);
  const { stdout } = await runSealpost(["audit", "list", "--limit", "1"], { env, isTerminal: true });
  expect(stdout).toMatch(
    /^\S+Z {2}account \S+ {2}api_keys\.revoke {2}command_line {2}\{"key_id":"[^"]+"\}\n$/,
  );
});

test("names the user that a key acts for, wherever it is read", async () => {
  const { account_id: account } = await resultOf("account", "create", "--name", "Users");
  const person = ["--idp-user-id", "auth|1", "--email", "ada@example.com", "--name", "Ada"];
  const { user_id } = await resultOf("user", "create", "--account", account, ...person);
  const made = await resultOf("key", "create", "--user", user_id, "--scopes", "keys:write", "--name", "CI");
  await insertRow(database.pool, "audit_log", {
    account_id: account,
    actor: "key",
    actor_name: "CI",
    key_id: made.key_id,
    operation_key: "api_keys.revoke",
    details: "{}",
  });
  const newest = ["audit", "list", "--account", account, "--limit", "1"];
  const user = { id: user_id, name: "Ada" };
  expect(await resultOf(...newest)).toMatchObject([{ actor: { key_id: made.key_id, user } }]);
  const { stdout } = await runSealpost(newest, { env, isTerminal: true });
  expect(stdout).toContain(`  key CI ${made.key_id} of Ada ${user_id}  {}`);
});

test("what is refused leaves nothing there; what cannot be written down does not happen", async () => {
  const before = await entries();
  const scopes = ["--scopes", "webhooks:read"];
  for (const args of [
    ["key", "create", "--account", nobody, ...scopes],
    ["key", "revoke", nobody],
    ["endpoint", "set", "--account", nobody, "--url", URL_SET],
    ["secret", "rotate", "--account", nobody],
  ]) {
    expect((await run(...args)).code, args.join(" ")).toBe(2);
  }
  expect(await entries()).toBe(before);
  const { account_id } = await resultOf("account", "create", "--name", "Undone");
  const keys = await countRows(database.pool, "api_keys");
  await refusingRows(database.pool, "audit_log", async () => {
    expect((await run("key", "create", "--account", account_id, ...scopes)).code).toBe(1);
  });
  expect(await countRows(database.pool, "api_keys")).toBe(keys);
});

test.each([
  ["a time without its zone", ["--after", "2026-11-22T10:00"]],
  ["a day", ["--before", "2026-11-22"]],
  ["an actor that there is not", ["--actor", "somebody"]],
  ["no limit", ["--limit", "0"]],
])("the list refuses %s", async (_, args) => {
  const { code, stderr } = await run("audit", "list", ...args);
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(/^Option '--/) });
});
