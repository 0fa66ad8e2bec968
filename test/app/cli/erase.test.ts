import { randomUUID } from "node:crypto";
import { mkdtempDisposable, readdir, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import {
  begin,
  changeRows,
  countRows,
  createTestAccount,
  createTestKey,
  insertRow,
  publish,
  rowOf,
  SECRETS_KEY,
  tablesWith,
  untilSomebodyWaits,
} from "../../support/installation.ts";
import { startTestApi, type TestApi } from "../../support/sealpost-api.ts";

let database: TestDatabase;
let api: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const run = (
  args: readonly string[],
  options: { input?: string; isTerminal?: boolean } = {},
  url = database.url,
) =>
  runSealpost(args, {
    ...options,
    env: { DATABASE_URL: url, SECRETS_KEY: SECRETS_KEY.toString("base64"), STATE_DIR: api.stateDir },
  });
const erase = (accountId: string, name = "test") => [
  "account",
  "erase",
  "--account",
  accountId,
  "--confirm",
  name,
];

test("account erase wants the account's name, and an account", async () => {
  const { accountId } = await createTestAccount(database);
  const other = await run(erase(accountId, "tset"));
  expect(other).toMatchObject({ code: 2, stdout: "", stderr: expect.stringContaining("nothing was done") });
  expect(await run(erase(randomUUID()))).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("no account"),
  });
  expect((await rowOf(database.pool, "accounts", { id: accountId })).erased_at).toBe(null);
  await changeRows(database.pool, "accounts", { id: accountId }, { moved_to: "c2" });
  expect((await run(erase(accountId))).stderr).toContain("has moved to another cell: erase it there");
  const move = { account_id: accountId, id: randomUUID(), direction: "out", other_cell: "c2" };
  await insertRow(database.pool, "moves", move);
  expect((await run(erase(accountId))).stderr).toContain("move --cancel");
  await changeRows(database.pool, "moves", {}, { step: "done", ended_at: new Date() });
  expect((await run(erase(accountId))).stderr).toContain("delete-moved");
});

test("account erase ends an account for everybody who asks, and says the same when it is run again", async () => {
  const account = await api.newAccount();
  const { accountId, ownKey } = account;
  const staffKey = await api.newKey(null);
  const asStaff = { key: staffKey, headers: { "x-account-id": accountId } };
  expect((await api.ask("GET", "/v1/analyses/none", { key: ownKey })).status).toBe(404);
  const erased = await run(erase(accountId));
  expect(erased).toMatchObject({ code: 0, stderr: expect.stringContaining("deleting: api_keys\n") });
  const told = { account_id: accountId, erased_at: expect.any(String), objects_left: 0, came_from: [] };
  expect(JSON.parse(erased.stdout)).toEqual(told);
  expect(await run(erase(accountId, "whatever"))).toMatchObject({ code: 0, stdout: erased.stdout });
  expect((await run(erase(accountId), { isTerminal: true })).stdout).toBe(
    `Account ${accountId} is erased.\n`,
  );

  for (const key of [ownKey, account.key])
    expect((await api.ask("GET", "/v1/analyses/none", { key })).status).toBe(401);
  const body = { id: "a", status: "succeeded" };
  expect((await api.ask("POST", "/v1/analyses", { key: ownKey, body })).status).toBe(401);
  const staffs = await api.ask("GET", "/v1/webhooks/deliveries", asStaff);
  expect(staffs.status).toBe(404);
  for (const args of [
    ["key", "create", "--account", accountId, "--scopes", "webhooks:read"],
    [
      "user",
      "create",
      "--account",
      accountId,
      "--idp-user-id",
      "x",
      "--email",
      "a@example.com",
      "--name",
      "x",
    ],
    ["account", "move", "--account", accountId, "--to", database.url],
  ]) {
    expect((await run(args)).code, args.join(" ")).toBe(2);
  }
  const listed = JSON.parse((await run(["account", "list"])).stdout) as { account_id: string }[];
  const { erased_at } = JSON.parse(erased.stdout);
  expect(listed.find(({ account_id }) => account_id === accountId)).toMatchObject({
    name: "erased",
    erased_at,
  });
  expect((await run(["account", "list"], { isTerminal: true })).stdout).toContain(
    `erased  (erased ${erased_at})`,
  );
});

test("account erase says what to do about an account that is on its way here", async () => {
  const accountId = randomUUID();
  const move = { account_id: accountId, id: randomUUID(), direction: "in", other_cell: "c1" };
  await insertRow(database.pool, "moves", move);
  const refused = await run(erase(accountId));
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining("`sealpost erasures reapply`") });
  const input = JSON.stringify({ account_id: accountId, analysis_id: null, erased_at: new Date() });
  const done = await run(["erasures", "reapply", "--file", "-"], { input });
  expect(JSON.parse(done.stdout)).toMatchObject({ accounts_erased: 1, unknown: 0 });
  expect((await run(erase(accountId), { isTerminal: true })).stdout).toContain(
    'Other cells may have something of it: "c1"',
  );
});

test("erasures list says what was erased, and reapply erases it again after a restore", async () => {
  const { accountId } = await createTestAccount(database);
  await run(erase(accountId));
  const list = await run(["erasures", "list"]);
  expect(list.code).toBe(0);
  const lines = list.stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(lines).toContainEqual({ account_id: accountId, analysis_id: null, erased_at: expect.any(String) });
  expect((await run(["erasures", "list", "--since", "2099-01-01T00:00Z"])).stdout).toBe("");
  expect((await run(["erasures", "list", "--since", "2020-01-01T00:00Z"])).stdout).toBe(list.stdout);

  await using resources = new AsyncDisposableStack();
  const restored = await createTestDatabase();
  resources.defer(() => restored.drop());
  await insertRow(restored.pool, "accounts", { id: accountId, name: "Back again" });
  await createTestKey(restored.pool, accountId);
  await publish(restored.pool, accountId, '{"id":"a","status":"succeeded"}');
  const unknown = { account_id: randomUUID(), analysis_id: null, erased_at: new Date() };
  const analysis = { ...unknown, analysis_id: "unknown" };
  const more = [analysis, unknown].map((one) => `${JSON.stringify(one)}\n`).join("");
  const input = `${more}${JSON.stringify(lines.find(({ account_id }) => account_id === accountId))}\n`;
  const reapply = (text: string) =>
    run(["erasures", "reapply", "--file", "-"], { input: text }, restored.url);

  const bad = await reapply(`${input}{"account_id":"x"}\n`);
  expect(bad).toMatchObject({ code: 2, stdout: "", stderr: expect.stringContaining("Line 4 of the list") });
  expect(await countRows(restored.pool, "deliveries", { account_id: accountId })).toBe(1);
  const counts = { accounts_erased: 1, analyses_erased: 0, unknown: 2 };
  for (const _ of ["once", "again"]) {
    const { code, stdout } = await reapply(input);
    expect([code, JSON.parse(stdout)]).toEqual([0, counts]);
  }
  expect(await rowOf(restored.pool, "accounts", { id: accountId })).toMatchObject({ name: "erased" });
  for (const table of ["deliveries", "api_keys"]) {
    expect(await countRows(restored.pool, table, { account_id: accountId })).toBe(0);
  }
});

test("erasures reapply tells which accounts it cannot erase, and erases the others", async () => {
  const [gone, moved, { accountId }] = await Promise.all([
    createTestAccount(database),
    createTestAccount(database),
    createTestAccount(database),
  ]);
  for (const { accountId: id } of [gone, moved])
    await changeRows(database.pool, "accounts", { id }, { moved_to: "c2" });
  const left = { account_id: moved.accountId, id: randomUUID(), direction: "out", other_cell: "c2" };
  await insertRow(database.pool, "moves", { ...left, step: "done", ended_at: new Date() });
  const lineOf = (account_id: string) =>
    JSON.stringify({ account_id, analysis_id: null, erased_at: new Date() });
  const input = [gone.accountId, moved.accountId, accountId].map(lineOf).join("\n");
  const done = await run(["erasures", "reapply", "--file", "-"], { input });
  expect(done).toMatchObject({ code: 2, stderr: expect.stringContaining(`${moved.accountId} has moved`) });
  expect(done.stderr).not.toContain(gone.accountId);
  expect(JSON.parse(done.stdout)).toMatchObject({ accounts_erased: 1, unknown: 1 });
  expect(await run(["erasures", "reapply", "--file", "/nobody/has/this"])).toMatchObject({
    code: 2,
    stderr: "The file that --file names cannot be read (ENOENT).\n",
  });
});

test("erasures list keeps a file that loses nothing to an outage, or to a restored database", async () => {
  await using resources = new AsyncDisposableStack();
  const { path: folder } = resources.use(await mkdtempDisposable(join(tmpdir(), "sealpost-erasures-")));
  const file = join(folder, "erasures.jsonl");
  const list = (url?: string) => run(["erasures", "list", "--file", file], {}, url);
  const { accountId } = await createTestAccount(database);
  await run(erase(accountId));
  expect(await list()).toMatchObject({ code: 0, stdout: "", stderr: "" });
  const kept = await readFile(file, "utf8");
  expect(kept).toContain(accountId);
  expect(kept).toBe((await run(["erasures", "list"])).stdout);

  expect((await list("postgres://localhost:1/none")).code).not.toBe(0);
  expect(await readFile(file, "utf8")).toBe(kept);
  const restored = await createTestDatabase();
  resources.defer(() => restored.drop());
  const later = await createTestAccount(restored);
  await run(erase(later.accountId), {}, restored.url);
  const added = (await run(["erasures", "list"], {}, restored.url)).stdout;
  for (const _ of ["once", "again"]) {
    expect((await list(restored.url)).code).toBe(0);
    expect(await readFile(file, "utf8")).toBe(kept + added);
  }

  await writeFile(file, `${kept}{"account_id":`);
  expect(await list()).toMatchObject({ code: 2, stderr: expect.stringContaining("of the list is not one") });
  expect(await readFile(file, "utf8")).toBe(`${kept}{"account_id":`);
  const nowhere = await run(["erasures", "list", "--file", join(folder, "none", "list")]);
  expect(nowhere).toMatchObject({ code: 2, stderr: expect.stringContaining("cannot be written (ENOENT)") });
  expect(await readdir(folder)).toEqual(["erasures.jsonl"]);
});

test("erasures list has each once, however many were erased at one moment", async () => {
  await using resources = new AsyncDisposableStack();
  const many = await createTestDatabase();
  resources.defer(() => many.drop());
  const { accountId } = await createTestAccount(many);
  await many.pool.query(
    `insert into sealpost.erasures (account_id, analysis_id)
     select $1, 'a' || n from generate_series(1, 20001) as n`,
    [accountId],
  );
  const { code, stdout } = await run(["erasures", "list"], {}, many.url);
  const lines = stdout.split("\n");
  expect([code, lines.pop(), lines.length, new Set(lines).size]).toEqual([0, "", 20_001, 20_001]);
});

test("erasures reapply erases what somebody publishes meanwhile, and holds nothing of others", async () => {
  const { accountId } = await createTestAccount(database);
  await publish(database.pool, accountId, '{"id":"first","status":"succeeded","text":"canary-first"}');
  const publishing = await begin(database.pool);
  await publish(publishing.client, accountId, '{"id":"late","status":"succeeded","text":"canary-late"}');
  const lines = ["first", "late"].map((analysis_id) =>
    JSON.stringify({ account_id: accountId, analysis_id, erased_at: new Date() }),
  );
  const reapplied = run(["erasures", "reapply", "--file", "-"], { input: lines.join("\n") });
  await untilSomebodyWaits(database.pool);
  expect(await tablesWith(database.pool, "canary-first"), "the line before is done").toEqual([]);
  const row = await rowOf(database.pool, "deliveries", { analysis_id: "first" });
  const other = await begin(database.pool);
  await other.client.query("select from sealpost.deliveries where id = $1 for update nowait", [row.id]);
  await other.commit();
  await publishing.commit();
  const { code, stdout } = await reapplied;
  expect([code, JSON.parse(stdout)]).toEqual([0, { accounts_erased: 0, analyses_erased: 2, unknown: 0 }]);
  expect(await tablesWith(database.pool, "canary-late")).toEqual([]);
});

test("erasures reapply takes no empty list for one that was kept", async () => {
  for (const input of ["", "\n"]) {
    const done = await run(["erasures", "reapply", "--file", "-"], { input });
    expect(done).toMatchObject({ code: 2, stdout: "", stderr: expect.stringContaining("The list is empty") });
  }
});
