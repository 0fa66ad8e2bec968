import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAccount, hasAccounts } from "../../src/store/accounts.ts";
import { readEndpoint, removeEndpoint, setEndpoint } from "../../src/store/endpoints.ts";
import { writeSettings } from "../../src/store/settings.ts";
import { readSigningSecrets, rotateSigningSecret } from "../../src/store/signing-secrets.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

const nobody = "00000000-0000-7000-8000-000000000000";
const secretsKey = randomBytes(32);

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

function rotate(accountId: string, overlapSeconds: number) {
  return inTransaction(database.pool, (client) =>
    rotateSigningSecret(client, { accountId, overlapSeconds, secretsKey }),
  );
}

describe("an account", () => {
  test("is there once it was made", async () => {
    expect(await hasAccounts(database.pool)).toBe(false);
    await createAccount(database.pool, { name: "First", secretsKey });
    expect(await hasAccounts(database.pool)).toBe(true);
  });

  test("has a signing secret of 32 random bytes", async () => {
    const one = await createAccount(database.pool, { name: "One", secretsKey });
    const other = await createAccount(database.pool, { name: "Other", secretsKey });
    expect(one.signingSecret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(one.signingSecret).not.toBe(other.signingSecret);
    const read = await readSigningSecrets(database.pool, one.accountId, secretsKey);
    expect(read).toMatchObject({ current: one.signingSecret, previous: null });
  });

  test("is not made by half", async () => {
    const before = await database.pool.query("select from sealpost.accounts");
    await expect(createAccount(database.pool, { name: "", secretsKey })).rejects.toThrow(/check constraint/);
    const after = await database.pool.query("select from sealpost.accounts");
    expect(after.rowCount).toBe(before.rowCount);
  });
});

describe("a signing secret", () => {
  test("does not lie in the database as it is", async () => {
    const { accountId, signingSecret } = await createAccount(database.pool, { name: "A", secretsKey });
    const { rows } = await database.pool.query(
      "select sealed from sealpost.signing_secrets where account_id = $1",
      [accountId],
    );
    const bytes = Buffer.from(signingSecret.slice("whsec_".length), "base64");
    expect(rows[0].sealed.includes(signingSecret)).toBe(false);
    expect(rows[0].sealed.includes(bytes)).toBe(false);
  });

  test("does not open with another key, nor for another account", async () => {
    const mine = await createAccount(database.pool, { name: "Mine", secretsKey });
    const theirs = await createAccount(database.pool, { name: "Theirs", secretsKey });
    await expect(readSigningSecrets(database.pool, mine.accountId, randomBytes(32))).rejects.toThrow(
      /does not open/,
    );
    const copy = `
      update sealpost.signing_secrets set sealed = (
        select sealed from sealpost.signing_secrets where account_id = $2
      ) where account_id = $1`;
    await database.pool.query(copy, [mine.accountId, theirs.accountId]);
    await expect(readSigningSecrets(database.pool, mine.accountId, secretsKey)).rejects.toThrow(
      /does not open/,
    );
  });

  test("of an unknown account is null", async () => {
    expect(await readSigningSecrets(database.pool, nobody, secretsKey)).toBeNull();
    expect(await rotate(nobody, 60)).toBeNull();
  });

  test("that was rotated is still there, second, until its overlap ends", async () => {
    const { accountId, signingSecret } = await createAccount(database.pool, { name: "A", secretsKey });
    const rotated = await rotate(accountId, 3_600);
    const read = await readSigningSecrets(database.pool, accountId, secretsKey);
    expect(read?.current).toBe(rotated?.signingSecret);
    expect(read?.current).not.toBe(signingSecret);
    expect(read?.previous).toEqual({ secret: signingSecret, expiresAt: rotated?.previousExpiresAt });
    const overlapMs = Number(rotated?.previousExpiresAt) - Number(rotated?.createdAt);
    expect(overlapMs).toBe(3_600_000);
  });

  test("is gone at once without an overlap", async () => {
    const { accountId } = await createAccount(database.pool, { name: "A", secretsKey });
    const rotated = await rotate(accountId, 0);
    const read = await readSigningSecrets(database.pool, accountId, secretsKey);
    expect(read).toMatchObject({ current: rotated?.signingSecret, previous: null });
  });

  test("from before the last rotation does not sign a third time", async () => {
    const { accountId } = await createAccount(database.pool, { name: "A", secretsKey });
    const first = await rotate(accountId, 3_600);
    const second = await rotate(accountId, 0);
    const read = await readSigningSecrets(database.pool, accountId, secretsKey);
    expect(read).toMatchObject({ current: second?.signingSecret, previous: null });
    const third = await rotate(accountId, 3_600);
    expect(await readSigningSecrets(database.pool, accountId, secretsKey)).toMatchObject({
      current: third?.signingSecret,
      previous: { secret: second?.signingSecret },
    });
    expect(first?.signingSecret).not.toBe(third?.signingSecret);
  });

  test("rotated ten times at once has one current and one previous", async () => {
    const { accountId } = await createAccount(database.pool, { name: "A", secretsKey });
    await Promise.all(Array.from({ length: 10 }, () => rotate(accountId, 3_600)));
    const valid =
      "select from sealpost.signing_secrets where account_id = $1 and coalesce(expires_at > now(), true)";
    expect((await database.pool.query(valid, [accountId])).rowCount).toBe(2);
  });
});

describe("an endpoint", () => {
  test("can be set, replaced, read and removed", async () => {
    const { accountId } = await createAccount(database.pool, { name: "A", secretsKey });
    expect(await readEndpoint(database.pool, accountId)).toBeNull();
    const first = await setEndpoint(database.pool, accountId, "https://one.example.com/");
    expect(await readEndpoint(database.pool, accountId)).toEqual(first);
    const second = await setEndpoint(database.pool, accountId, "https://two.example.com/");
    expect(second).toMatchObject({ url: "https://two.example.com/", createdAt: first?.createdAt });
    expect(Number(second?.updatedAt)).toBeGreaterThan(Number(first?.updatedAt));
    expect(await removeEndpoint(database.pool, accountId)).toBe(true);
    expect(await removeEndpoint(database.pool, accountId)).toBe(false);
  });

  test("of an unknown account cannot be set", async () => {
    expect(await setEndpoint(database.pool, nobody, "https://one.example.com/")).toBeNull();
  });
});

test("the settings are what was written last, in one row", async () => {
  await writeSettings(database.pool, { analysisBytesMax: 2_048, unsafeAllowedTargets: ["localhost:8443"] });
  await writeSettings(database.pool, { analysisBytesMax: 4_096, unsafeAllowedTargets: [] });
  const { rows } = await database.pool.query("select * from sealpost.settings");
  expect(rows).toEqual([{ only_row: true, analysis_bytes_max: 4_096, unsafe_allowed_targets: [] }]);
});
