import { beforeEach, expect, test } from "vitest";
import { seal } from "../../../src/base/database/sealing.ts";
import { findSigningSecrets } from "../../../src/delivery/signing-secrets-sql.ts";
import { runSealpost } from "../../support/command.ts";
import { begin, changeRows, rowOf, untilSomebodyWaits } from "../../support/installation.ts";
import { openDatabase } from "../../support/open.ts";

const OLD = Buffer.alloc(32, 1);
const NEW = Buffer.alloc(32, 2);
const textOf = (key: Buffer) => key.toString("base64");
const BEFORE = { SECRETS_KEY: textOf(OLD) };
const ONE = { SECRETS_KEY: textOf(OLD), SECRETS_KEY_PREVIOUS: textOf(NEW) };
const TWO = { SECRETS_KEY: textOf(NEW), SECRETS_KEY_PREVIOUS: textOf(OLD) };

const database = await openDatabase();
beforeEach(async () => {
  await database.pool.query("truncate sealpost.signing_secrets");
  await database.pool.query("update sealpost.settings set secrets_canary = null, secrets_canary_next = null");
});

const run = (args: readonly string[], env: Record<string, string>, isTerminal = false) =>
  runSealpost(args, { env: { DATABASE_URL: database.url, ...env }, isTerminal });

async function createAccount(env: Record<string, string>) {
  const { code, stdout, stderr } = await run(["account", "create", "--name", "One"], env);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout) as { account_id: string; signing_secret: string };
}

test("secrets reseal says how many it resealed, is audited, and leaves nothing for the old key", async () => {
  const accounts = [await createAccount(BEFORE), await createAccount(ONE), await createAccount(TWO)];
  expect(await run(["secrets", "reseal"], TWO)).toMatchObject({
    code: 0,
    stderr: "",
    stdout: '{"resealed":2}\n',
  });
  for (const { account_id, signing_secret } of accounts)
    expect(await findSigningSecrets(database.pool, account_id, NEW)).toMatchObject([
      { secret: signing_secret },
    ]);
  const { stdout } = await run(["audit", "list", "--operation", "secrets.reseal"], TWO);
  expect(JSON.parse(stdout)).toMatchObject([{ account_id: null, details: { resealed: 2 } }]);
  const again = await run(["secrets", "reseal"], { SECRETS_KEY: textOf(NEW) }, true);
  expect(again).toMatchObject({ code: 0, stdout: expect.stringMatching(/^secrets resealed +0\n$/) });
  // What one of step 1 seals nobody else could read any more.
  for (const env of [BEFORE, ONE]) {
    const stale = await run(["account", "create", "--name", "Two"], env);
    expect([stale.code, stale.stderr]).toEqual([2, expect.stringContaining("SECRETS_KEY is not the key")]);
  }
});

test("secrets reseal finds what a process of the first step has stored meanwhile", async () => {
  for (const env of [BEFORE, ONE]) await createAccount(env);
  const { account_id } = await createAccount(TWO);
  const { id } = await rowOf(database.pool, "signing_secrets", { account_id });
  const settings = await begin(database.pool, "select from sealpost.settings for update");
  const resealing = run(["secrets", "reseal"], TWO);
  await untilSomebodyWaits(database.pool);
  const sealed = seal("late", OLD, { accountId: account_id, id });
  await changeRows(database.pool, "signing_secrets", { account_id }, { sealed });
  await settings.commit();
  expect(await resealing).toMatchObject({ code: 0, stdout: '{"resealed":3}\n' });
  expect(await findSigningSecrets(database.pool, account_id, NEW)).toMatchObject([{ secret: "late" }]);
});

test("secrets reseal refuses what neither key opens, and names it without its content", async () => {
  await createAccount(BEFORE);
  const { account_id } = await createAccount(ONE);
  const sealed = Buffer.alloc(60, 1);
  await changeRows(database.pool, "signing_secrets", { account_id }, { sealed });
  const { id } = await rowOf(database.pool, "signing_secrets", { account_id });
  const { code, stdout, stderr } = await run(["secrets", "reseal"], TWO);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toMatch(/^The secret [^\n]+\.\n$/);
  expect(stderr).toContain(`${id} in sealpost.signing_secrets`);
  // With the old key everything still starts.
  await createAccount(BEFORE);
});

test("secrets reseal changes nothing with a key that is neither", async () => {
  await createAccount(BEFORE);
  const { code, stderr } = await run(["secrets", "reseal"], { SECRETS_KEY: textOf(NEW) });
  expect([code, stderr]).toEqual([2, expect.stringContaining("SECRETS_KEY is not the key")]);
});

test("secrets reseal with one of the two keys alone asks for the other one, and equal keys are refused", async () => {
  for (const env of [BEFORE, ONE, TWO]) await createAccount(env);
  const alone = await run(["secrets", "reseal"], BEFORE);
  expect([alone.code, alone.stderr]).toEqual([2, expect.stringContaining("give both keys")]);
  const twice = await run(["account", "list"], { ...BEFORE, SECRETS_KEY_PREVIOUS: textOf(OLD) });
  expect([twice.code, twice.stderr]).toEqual([2, expect.stringContaining("is the same key as SECRETS_KEY")]);
});
