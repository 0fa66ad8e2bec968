import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findApiKey } from "../../../src/accounts/api-keys-sql.ts";
import { findEndpoint } from "../../../src/delivery/endpoint-sql.ts";
import { findSigningSecrets } from "../../../src/delivery/signing-secrets-sql.ts";
import { digestSecret } from "../../../src/http/api-keys.ts";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { countRows, rowOf } from "../../support/installation.ts";
import { runProcess } from "../../support/sealpost-process.ts";

const nobody = "00000000-0000-7000-8000-000000000000";
const key = Buffer.alloc(32, 9);

let database: TestDatabase;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ account_id: accountId } = await resultOf("account", "create", "--name", "Acme"));
});
afterAll(() => database.drop());

function run(args: readonly string[], env: Record<string, string> = {}, how = runSealpost) {
  const base = { DATABASE_URL: database.url, SECRETS_KEY: key.toString("base64") };
  return how(args, { env: { ...base, ...env } });
}

async function resultOf(...args: string[]) {
  const { code, stdout, stderr } = await run(args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}

async function usageErrorOf(args: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { code, stdout, stderr } = await run(args, env);
  expect({ code, stdout }, stderr).toEqual({ code: 2, stdout: "" });
  expect(stderr).toMatch(/^[A-Z][^\n]+[.?)]\n$/);
  return stderr;
}

describe("account create", () => {
  test("gives the account and its signing secret", async () => {
    const made = await resultOf("account", "create", "--name", " Ünï ");
    expect(Object.keys(made)).toEqual(["account_id", "signing_secret"]);
    const secrets = await findSigningSecrets(database.pool, made.account_id, key);
    expect(secrets).toMatchObject([{ secret: made.signing_secret }]);
    expect(await rowOf(database.pool, "accounts", { id: made.account_id })).toMatchObject({ name: "Ünï" });
  });

  test.each(["", " ", "a\nb", "x".repeat(201)])("refuses the name %j", async (name) => {
    expect(await usageErrorOf(["account", "create", "--name", name])).toContain("1 to 200 characters");
  });
});

test("account list shows the accounts, the newest first", async () => {
  const made = await resultOf("account", "create", "--name", "Newest");
  const [first, ...others] = await resultOf("account", "list");
  expect(first).toEqual({
    account_id: made.account_id,
    name: "Newest",
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    cell: null,
    moved_to: null,
    erased_at: null,
  });
  expect(others).toContainEqual(expect.objectContaining({ account_id: accountId, name: "Acme" }));
  expect(await usageErrorOf(["secret", "rotate", "--account", nobody])).toContain("sealpost account list");
});

test("another SECRETS_KEY than that of the secrets there are is refused before anything is sealed", async () => {
  const env = { SECRETS_KEY: randomBytes(32).toString("base64") };
  const count = () => countRows(database.pool, "signing_secrets");
  const before = await count();
  for (const args of [
    ["account", "create", "--name", "B"],
    ["secret", "rotate", "--account", accountId],
    ["migrate"],
  ]) {
    expect(await usageErrorOf(args, env)).toContain("SECRETS_KEY is not the key");
  }
  expect(await count()).toBe(before);
});

test("a state folder that this user cannot use is named", async () => {
  const file = fileURLToPath(import.meta.url);
  const message = await usageErrorOf(["key", "list"], { DATABASE_URL: "", STATE_DIR: join(file, "state") });
  expect(message).toBe(`This user cannot use the folder ${join(file, "state")} (STATE_DIR): ENOTDIR.\n`);
});

describe("key", () => {
  test("create gives a key of this environment that can be found by its digest", async () => {
    const args = ["key", "create", "--account", accountId, "--scopes", "webhooks:read, analyses:publish"];
    const made = await resultOf(...args, "--name", "CI", "--expires-in", "90d");
    expect(made.api_key).toMatch(/^svc_test_[A-Za-z0-9_-]{43}$/);
    const found = await findApiKey(database.pool, digestSecret(made.api_key));
    expect(found).toMatchObject({ id: made.key_id, accountId });
    const row = await rowOf(database.pool, "api_keys", { id: made.key_id });
    expect(row).toMatchObject({ class: "test", name: "CI" });
    expect([...(found?.scopes ?? [])]).toEqual(["analyses:publish", "webhooks:read"]);
    expect(Number(found?.expiresAt) - row.created_at.getTime()).toBe(90 * 86_400_000);
  });

  test("create in production gives a live one of the configured brand", async () => {
    const args = ["key", "create", "--staff", "--scopes", "webhooks:replay"];
    const { stdout } = await run(args, { ENVIRONMENT: "production", API_KEY_BRAND: "acme" });
    expect(JSON.parse(stdout).api_key).toMatch(/^acme_live_/);
  });

  test.each([
    ["neither an account nor --staff", ["--scopes", "webhooks:read"]],
    ["both", ["--scopes", "webhooks:read", "--staff", "--account", nobody]],
    ["an unknown account", ["--scopes", "webhooks:read", "--account", nobody]],
    ["an id that is not a UUID", ["--scopes", "webhooks:read", "--account", "acme"]],
    ["an unknown scope", ["--scopes", "webhooks:*", "--staff"]],
    ["no scope", ["--scopes", "", "--staff"]],
    ["a time without unit", ["--scopes", "webhooks:read", "--staff", "--expires-in", "90"]],
  ])("create refuses %s", async (_, args) => {
    await usageErrorOf(["key", "create", ...args]);
  });

  test("revoke makes it useless, and list shows that", async () => {
    const made = await resultOf("key", "create", "--account", accountId, "--scopes", "webhooks:read");
    const revoked = await resultOf("key", "revoke", made.key_id);
    expect(revoked).toEqual({ key_id: made.key_id, revoked_at: expect.any(String) });
    const listed = await run(["key", "list", "--account", accountId]);
    expect(JSON.parse(listed.stdout)[0]).toEqual({
      key_id: made.key_id,
      account_id: accountId,
      user_id: null,
      name: null,
      class: "test",
      scopes: ["webhooks:read"],
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      expires_at: null,
      revoked_at: revoked.revoked_at,
      last_used_at: null,
      sha256: digestSecret(made.api_key).toString("hex"),
      cell: null,
      moved_to: null,
    });
    expect(listed.stdout).not.toContain(made.api_key);
  });

  test("revoke of an unknown key is a usage error, and of a key in place of its id does not show it", async () => {
    await usageErrorOf(["key", "revoke", nobody]);
    const secret = `svc_test_${"x".repeat(43)}`;
    expect(await usageErrorOf(["key", "revoke", secret])).not.toContain(secret);
  });
});

describe("endpoint set", () => {
  test("stores the URL in its normal form", async () => {
    const set = await resultOf("endpoint", "set", "--account", accountId, "--url", "HTTPS://Example.com");
    expect(set).toMatchObject({ url: "https://example.com/" });
    expect(await findEndpoint(database.pool, accountId)).toMatchObject({ url: "https://example.com/" });
  });

  test("refuses a URL that webhooks may not go to, unless it is allowed unsafely", async () => {
    const args = ["endpoint", "set", "--account", accountId, "--url", "https://localhost:8443/"];
    expect(await usageErrorOf(args)).toMatch(/"localhost".* For tests on this machine, see /);
    expect(await usageErrorOf(args, { ENVIRONMENT: "production" })).not.toContain("For tests");
    expect((await run(args, { UNSAFE_ALLOWED_TARGETS: "localhost:8443" })).code).toBe(0);
  });

  test("refuses an unknown account", async () => {
    await usageErrorOf(["endpoint", "set", "--account", nobody, "--url", "https://example.com/"]);
  });
});

describe("endpoint pause and resume", () => {
  test("hold and let go, and show which it is", async () => {
    const { account_id } = await resultOf("account", "create", "--name", "P");
    await resultOf("endpoint", "set", "--account", account_id, "--url", "https://example.com/");
    const paused = await resultOf("endpoint", "pause", "--account", account_id);
    expect(paused).toMatchObject({ url: "https://example.com/", paused_at: expect.any(String), held: 0 });
    expect((await findEndpoint(database.pool, account_id))?.paused_at).toBe(paused.paused_at);
    expect(await resultOf("endpoint", "pause", "--account", account_id)).toEqual(paused);
    const resumed = await resultOf("endpoint", "resume", "--account", account_id);
    expect(resumed).toMatchObject({ paused_at: null, held: 0 });
    expect(await findEndpoint(database.pool, account_id)).toMatchObject({ paused_at: null });
    const told = await resultOf("audit", "list", "--account", account_id, "--limit", "2");
    expect(told.map(({ operation }: { operation: string }) => operation)).toEqual([
      "webhooks.endpoint.resume",
      "webhooks.endpoint.pause",
    ]);
  });

  test("refuse an unknown account, and one without an endpoint", async () => {
    const { account_id } = await resultOf("account", "create", "--name", "none");
    for (const command of ["pause", "resume"]) {
      await usageErrorOf(["endpoint", command, "--account", nobody]);
      expect(await usageErrorOf(["endpoint", command, "--account", account_id])).toContain("endpoint set");
    }
    expect(await resultOf("audit", "list", "--account", account_id)).toHaveLength(1);
  });
});

describe("secret rotate", () => {
  test("creates a new secret, and the old one signs too for 24 hours", async () => {
    const account = await resultOf("account", "create", "--name", "R");
    const rotated = await resultOf("secret", "rotate", "--account", account.account_id);
    const secrets = await findSigningSecrets(database.pool, account.account_id, key);
    expect(secrets.map((secret) => secret.secret)).toEqual([rotated.signing_secret, account.signing_secret]);
    expect(secrets[1]?.expiresAt?.toISOString()).toBe(rotated.previous_expires_at);
    expect(Number(secrets[1]?.expiresAt) - Number(secrets[0]?.createdAt)).toBe(86_400_000);
  });

  test("refuses to while an earlier overlap lasts, unless that is to end", async () => {
    const { account_id } = await resultOf("account", "create", "--name", "R");
    const first = await resultOf("secret", "rotate", "--account", account_id);
    expect(await usageErrorOf(["secret", "rotate", "--account", account_id])).toContain("--end-previous");
    const second = await resultOf("secret", "rotate", "--account", account_id, "--end-previous");
    const secrets = await findSigningSecrets(database.pool, account_id, key);
    expect(secrets.map(({ secret }) => secret)).toEqual([second.signing_secret, first.signing_secret]);
  });

  test("refuses an unknown account and an overlap of more than 7 days", async () => {
    await usageErrorOf(["secret", "rotate", "--account", nobody]);
    await usageErrorOf(["secret", "rotate", "--account", accountId, "--overlap", "8d"]);
  });
});

describe("migrate", () => {
  test("has no effect the second time, and stores the configured limits", async () => {
    const env = { ANALYSIS_BYTES_MAX: "2048", UNSAFE_ALLOWED_TARGETS: "localhost:8443" };
    const { code, stdout } = await run(["migrate"], env, runProcess);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '{"applied":[]}\n' });
    const written = { analysis_bytes_max: 2_048, unsafe_allowed_targets: ["localhost:8443"] };
    expect(await rowOf(database.pool, "settings")).toMatchObject(written);
  });

  test("is suggested for an empty database, and then fills it", async () => {
    const name = `empty_${randomBytes(6).toString("hex")}`;
    await database.pool.query(`create database ${name}`);
    const url = new URL(database.url);
    url.pathname = `/${name}`;
    const env = { DATABASE_URL: url.href };
    expect(await usageErrorOf(["key", "list"], env)).toContain("sealpost migrate");
    const { stdout } = await run(["migrate"], env);
    expect(JSON.parse(stdout).applied).toContain("0001_foundation.sql");
    expect(await run(["key", "list"], env)).toMatchObject({ code: 0, stdout: "[]\n" });
    await database.pool.query(`drop database ${name} with (force)`);
  });
});

describe("the database", () => {
  test("that is away is one sentence, ends with 1 and does not show the password", async () => {
    const env = { DATABASE_URL: "postgres://ada:hunter2@127.0.0.1:1/sealpost" };
    const { code, stderr } = await run(["key", "list"], env, runProcess);
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: "Cannot reach the database that DATABASE_URL names (ECONNREFUSED).\n",
    });
  });

  test("that does not exist is one sentence and ends with 1", async () => {
    const url = new URL(database.url);
    url.pathname = "/nowhere";
    const { code, stderr } = await run(["key", "list"], { DATABASE_URL: url.href });
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: 'Database error: database "nowhere" does not exist.\n',
    });
  });

  test("whose role lacks a grant says where the grants are", async () => {
    const role = `bare_${randomBytes(6).toString("hex")}`;
    await database.pool.query(`create role ${role} login password 'bare'`);
    const url = new URL(database.url);
    url.username = role;
    url.password = "bare";
    const { code, stderr } = await run(["key", "list"], { DATABASE_URL: url.href });
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: "Database error: permission denied for schema sealpost. docs/operating.md has the grants.\n",
    });
    await database.pool.query(`drop role ${role}`);
  });

  test("whose host is unknown names it", async () => {
    const { stderr } = await run(["key", "list"], {
      DATABASE_URL: "postgres://ada@nowhere.invalid/sealpost",
    });
    expect(stderr).toMatch(/\((?:ENOTFOUND|EAI_AGAIN): nowhere\.invalid\)/);
  });

  test("that is not configured is an error", async () => {
    const stateDir = mkdtempSync(join(tmpdir(), "sealpost-state-"));
    const env = { DATABASE_URL: "", STATE_DIR: stateDir };
    expect(await usageErrorOf(["key", "list"], env)).toContain("DATABASE_URL is unset");
    rmSync(stateDir, { recursive: true });
  });
});

test("in development the key for secrets is made once, for this user only", async () => {
  const stateDir = mkdtempSync(join(tmpdir(), "sealpost-state-"));
  const unused = await createTestDatabase();
  const env = { SECRETS_KEY: "", STATE_DIR: stateDir, DATABASE_URL: unused.url };
  const make = () => run(["account", "create", "--name", "A"], env);
  const [one, other] = await Promise.all([make(), make()]);
  expect([one?.code, other?.code]).toEqual([0, 0]);
  const path = join(stateDir, "secrets-key");
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const rotate = ["secret", "rotate", "--account", JSON.parse(one?.stdout ?? "").account_id];
  expect((await run(rotate, env)).code).toBe(0);
  // Where the key is lost, as docs/operating.md says.
  rmSync(path);
  expect((await run(rotate, env)).code).toBe(2);
  const operating = readFileSync(new URL("../../../docs/operating.md", import.meta.url), "utf8");
  const [forgetting = ""] = /delete from sealpost\.signing_secrets;[^`]*/.exec(operating) ?? [];
  await unused.pool.query(forgetting);
  expect((await run(rotate, env)).code).toBe(0);
  rmSync(stateDir, { recursive: true });
  await unused.drop();
});
