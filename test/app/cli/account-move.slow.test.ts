import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAccount } from "../../../src/accounts/accounts-sql.ts";
import { migrate } from "../../../src/base/database/migrate.ts";
import { TARGET_KEY } from "../../support/cells.ts";
import { runSealpost } from "../../support/command.ts";
import { createEmptyDatabase, createTestDatabase, type TestDatabase } from "../../support/database.ts";
import {
  begin,
  changeRows,
  countRows,
  createTestAccount,
  createTestKey,
  publish,
  publishMany,
  rowOf,
  SECRETS_KEY,
} from "../../support/installation.ts";
import { SealpostProcess } from "../../support/sealpost-process.ts";
import { startTestServer } from "../../support/test-server.ts";
import { patience } from "../../support/time-limits.ts";

let source: TestDatabase;
let server: Awaited<ReturnType<typeof startTestServer>>;
/** On a server of its own. */
let target: { url: string; pool: pg.Pool };
let folder: string;

/** The path of a file that holds this secret. */
function fileOf(text: string): string {
  const path = join(folder, randomUUID());
  writeFileSync(path, `${text}\n`, { mode: 0o600 });
  return path;
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "sealpost-move-"));
  source = await createTestDatabase();
  server = await startTestServer();
  const url = server.url("postgres");
  await migrate({ databaseUrl: url });
  target = { url, pool: new pg.Pool({ connectionString: url, max: 3 }) };
  // The server may stop before a connection has ended.
  target.pool.on("error", () => undefined);
}, patience(120_000));
afterAll(async () => {
  await source?.drop();
  await target?.pool.end();
  await server?.stop();
  rmSync(folder, { recursive: true });
});

const envOf = (more: Record<string, string> = {}) => ({
  DATABASE_URL: source.url,
  SECRETS_KEY: SECRETS_KEY.toString("base64"),
  ...more,
});

const run = (args: readonly string[], env: Record<string, string> = {}, isTerminal = false) =>
  runSealpost(["account", ...args], { env: envOf(env), isTerminal });

const keyed = (key = TARGET_KEY) => ["--target-secrets-key-file", fileOf(key.toString("base64"))];
const there = (url = target.url) => ["--to-file", fileOf(url), ...keyed()];

const move = (accountId: string, ...more: string[]) => [
  "move",
  "--account",
  accountId,
  "--cell",
  "c2",
  ...there(),
  ...more,
];

async function newAccount(): Promise<string> {
  const { accountId } = await createTestAccount(source, "https://hooks.example.com/");
  await publish(source.pool, accountId, '{"id":"1","status":"succeeded"}');
  return accountId;
}

/** Of one test: accounts move up to five times. */
const timeout = patience(240_000);

describe("account move", { timeout }, () => {
  test("moves an account to another server, and delete-moved deletes what is left", async () => {
    const accountId = await newAccount();
    const { keyId } = await createTestKey(source.pool, accountId);
    const moved = await run(move(accountId));
    expect(moved).toMatchObject({ code: 0, stderr: expect.stringContaining("copying: deliveries\n") });
    expect(JSON.parse(moved.stdout)).toEqual({
      account_id: accountId,
      moved_to: "c2",
      move_id: expect.any(String),
    });
    expect(await countRows(target.pool, "open_deliveries", { account_id: accountId })).toBe(1);
    const listed = JSON.parse((await run(["list"])).stdout) as { account_id: string }[];
    expect(listed.find(({ account_id }) => account_id === accountId)).toMatchObject({ moved_to: "c2" });

    const again = await run(move(accountId));
    expect(again).toMatchObject({ code: 0, stdout: moved.stdout });

    const create = ["key", "create", "--account", accountId, "--scopes", "webhooks:read"];
    expect(await runSealpost(create, { env: envOf() })).toMatchObject({
      code: 2,
      stderr: `Account ${accountId} has moved to the cell "c2": change it there.\n`,
    });
    // A key that leaked is revoked in both.
    expect(await runSealpost(["key", "revoke", keyId], { env: envOf() })).toMatchObject({
      code: 0,
      stderr: 'Its account is in the cell "c2", or on its way there: revoke the key there, too.\n',
    });

    expect(await run(["delete-moved", "--account", accountId])).toMatchObject({ code: 0, stderr: "" });
    expect(await countRows(source.pool, "deliveries", { account_id: accountId })).toBe(0);
    expect(await countRows(source.pool, "parked_deliveries", { account_id: accountId })).toBe(0);
    expect((await run(move(accountId))).stderr).toContain('is already in the cell "c2"');
  });

  test("killed in the middle, it goes on", async () => {
    const { accountId } = await createTestAccount(source, "https://hooks.example.com/");
    const ids = Array.from({ length: 1_000 }, (_, n) => `{"id":"${n}","status":"succeeded"}`);
    await publishMany(
      source.pool,
      ids.map(() => accountId),
      ids,
      ids.map(() => null),
    );
    for (const place of ["closing", "parking", "copying: deliveries", "copying: feed"]) {
      const moving = new SealpostProcess(["account", ...move(accountId)], envOf());
      await moving.waitForLine(({ msg }) => String(msg).startsWith(place));
      await moving.kill();
      expect((await moving.ended).code, place).toBe(null);
    }
    expect(await run(move(accountId))).toMatchObject({ code: 0 });
    expect(await countRows(target.pool, "deliveries", { account_id: accountId })).toBe(1_000);
    expect(await countRows(target.pool, "open_deliveries", { account_id: accountId })).toBe(1_000);
  });

  test("that waits too long says for whom, and is called off", async () => {
    const accountId = await newAccount();
    const other = await begin(source.pool, "select from sealpost.accounts");
    const waited = await run(move(accountId, "--wait", "1s"));
    expect(waited).toMatchObject({ code: 2 });
    expect(waited.stderr).toMatch(
      /closed, but not idle after 1 s .*pid \d+, role .* Run the same command again/,
    );
    await expect(publish(source.pool, accountId, '{"id":"2","status":"failed"}')).rejects.toThrow("moved");
    await other.rollback();

    const calledOff = await run(move(accountId, "--cancel"));
    expect(calledOff).toMatchObject({ code: 0, stdout: expect.stringContaining('"moved_to":null') });
    await publish(source.pool, accountId, '{"id":"2","status":"failed"}');
    expect(await countRows(source.pool, "open_deliveries", { account_id: accountId })).toBe(2);
    expect((await run(move(accountId, "--cancel"))).stderr).toContain("has no move in progress");
    expect(await run(move(accountId))).toMatchObject({ code: 0 });
    expect((await run(move(accountId, "--cancel"))).stderr).toContain("has no move in progress");
  });
});

test(
  "account move --cancel --target-is-lost asks the source alone",
  async () => {
    const accountId = await newAccount();
    const other = await begin(source.pool, "select from sealpost.accounts");
    expect((await run(move(accountId, "--wait", "1s"))).code).toBe(2);
    await other.rollback();
    const cancel = ["move", "--account", accountId, "--cell", "c2", "--cancel"];
    expect((await run([...cancel, ...there("postgres://127.0.0.1:1/sealpost")])).code).toBe(2);
    expect((await run(["move", "--account", accountId, "--target-is-lost"])).stderr).toContain(
      "with --cancel",
    );
    const lost = ["move", "--account", accountId, "--cancel", "--target-is-lost"];
    for (const named of [
      ["--to", target.url],
      ["--to-file", fileOf(target.url)],
    ]) {
      expect((await run([...lost, ...named])).stderr).toContain("which does not contact it");
    }
    expect(await run(lost)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('"moved_to":null'),
      stderr: "",
    });
    await publish(source.pool, accountId, '{"id":"2","status":"failed"}');
    expect((await run(lost)).stderr).toContain("has no move in progress");
    // It was not lost.
    expect((await run(move(accountId))).stderr).toContain("--cancel");
    // The account does not say any more that it is here, where it may have been erased since.
    const erase = ["erase", "--account", accountId, "--confirm", "test"];
    expect(JSON.parse((await run(erase, { STATE_DIR: folder })).stdout)).toMatchObject({ came_from: ["c2"] });
    const cleared = await run(move(accountId, "--cancel"), {}, true);
    expect(cleared).toMatchObject({ code: 0, stdout: expect.stringContaining("to the target is deleted") });
  },
  timeout,
);

describe("account move refuses", { timeout }, () => {
  async function refusalOf(...args: readonly string[]): Promise<string> {
    const accountId = await newAccount();
    const { code, stdout, stderr } = await run(["move", "--account", accountId, ...args]);
    expect({ code, stdout }, stderr).toEqual({ code: 2, stdout: "" });
    expect(await rowOf(source.pool, "accounts", { id: accountId })).toMatchObject({ moved_to: null });
    return stderr;
  }
  const named = ["--cell", "c2"];

  test("its own database", async () => {
    expect(await refusalOf(...named, ...keyed(), "--to", source.url)).toBe(
      "The target is the same database as the source.\n",
    );
  });

  test("a database without our tables, one of another version, and one that does not answer", async () => {
    const empty = await createEmptyDatabase();
    expect(await refusalOf(...named, ...there(empty.url))).toContain("target has no Sealpost tables yet");
    await empty.drop();
    const older = await createTestDatabase();
    await changeRows(older.pool, "migrations", { name: "0001_foundation.sql" }, { digest: "other" });
    expect(await refusalOf(...named, ...there(older.url))).toContain("not on this version");
    await older.drop();
    const away = "postgres://ada:hunter2@127.0.0.1:1/sealpost";
    expect(await refusalOf(...named, ...there(away))).toBe(
      "Cannot reach the target's database (ECONNREFUSED).\n",
    );
  });

  test("no target, two of them, and files that are none", async () => {
    expect(await refusalOf(...named, ...keyed())).toContain("--to-file PATH");
    expect(await refusalOf(...named, ...there(), "--to", target.url)).toContain("--to, or --to-file");
    expect(await refusalOf(...named, ...keyed(), "--to-file", "/nobody/has/this")).toBe(
      "Cannot read --to-file: ENOENT.\n",
    );
    const stderr = await refusalOf(...named, ...there("hunter2"));
    expect(stderr).toContain("does not hold a PostgreSQL URL");
    expect(stderr).not.toContain("hunter2");
  });

  test("no name, a name that is none, no key and a wrong key", async () => {
    expect(await refusalOf(...there())).toContain("--cell NAME");
    expect(await refusalOf(...there(), "--cell", "db.internal:5432")).toContain("lowercase letters");
    expect(await refusalOf(...named, "--to", target.url)).toContain("--target-secrets-key-file PATH");
    await createAccount(target.pool, "there", TARGET_KEY);
    const wrong = Buffer.alloc(32, 3);
    const stderr = await refusalOf(...named, "--to", target.url, ...keyed(wrong));
    expect(stderr).toContain("encrypted with a different key");
    expect(stderr).not.toContain(wrong.toString("base64"));
  });

  test("an account that is there already, and one that is nowhere", async () => {
    const accountId = await newAccount();
    await target.pool.query("insert into sealpost.accounts (id, name) values ($1, 'x')", [accountId]);
    expect((await run(move(accountId))).stderr).toContain("has an account");
    expect((await run(move(randomUUID()))).stderr).toContain("There is no account");
    expect((await run(["delete-moved", "--account", accountId])).stderr).toContain("has not been moved away");
  });
});
