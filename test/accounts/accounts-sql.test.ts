import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createAccount, findFirstAccount } from "../../src/accounts/accounts-sql.ts";
import { findEndpoint, removeEndpoint, setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { findSigningSecrets, rotateSigningSecret } from "../../src/delivery/signing-secrets-sql.ts";
import { writeSettings } from "../../src/publish/publish-call-sql.ts";
import { changeRows, countRows, rowOf, rowsOf } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const nobody = "00000000-0000-7000-8000-000000000000";
const secretsKey = randomBytes(32);

const database = await openDatabase();

async function rotate(accountId: string, overlapSeconds: number) {
  const rotation = { overlapSeconds, endsPrevious: true };
  const rotated = await rotateSigningSecret(database.pool, accountId, rotation, secretsKey);
  if (rotated === "rotation_in_progress") throw new Error(rotated);
  return rotated;
}

function secretsOf(accountId: string) {
  return findSigningSecrets(database.pool, accountId, secretsKey);
}

describe("an account", () => {
  test("is there once it was made", async () => {
    expect(await findFirstAccount(database.pool)).toBeNull();
    await createAccount(database.pool, "First", secretsKey);
    expect(await findFirstAccount(database.pool)).not.toBeNull();
  });

  test("has a signing secret of 32 random bytes", async () => {
    const one = await createAccount(database.pool, "One", secretsKey);
    const other = await createAccount(database.pool, "Other", secretsKey);
    expect(one.signingSecret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(one.signingSecret).not.toBe(other.signingSecret);
    expect(await secretsOf(one.accountId)).toMatchObject([{ secret: one.signingSecret, expiresAt: null }]);
  });

  test("is not made by half", async () => {
    const before = await countRows(database.pool, "accounts");
    await expect(createAccount(database.pool, "", secretsKey)).rejects.toThrow(/check constraint/);
    expect(await countRows(database.pool, "accounts")).toBe(before);
  });
});

describe("a signing secret", () => {
  test("does not lie in the database as it is", async () => {
    const { accountId, signingSecret } = await createAccount(database.pool, "A", secretsKey);
    const { sealed } = await rowOf(database.pool, "signing_secrets", { account_id: accountId });
    const bytes = Buffer.from(signingSecret.slice("whsec_".length), "base64");
    expect(sealed.includes(signingSecret)).toBe(false);
    expect(sealed.includes(bytes)).toBe(false);
  });

  test("does not open with another key, nor for another account", async () => {
    const mine = await createAccount(database.pool, "Mine", secretsKey);
    const theirs = await createAccount(database.pool, "Theirs", secretsKey);
    await expect(findSigningSecrets(database.pool, mine.accountId, randomBytes(32))).rejects.toThrow(
      /cannot be decrypted/,
    );
    const { sealed } = await rowOf(database.pool, "signing_secrets", { account_id: theirs.accountId });
    await changeRows(database.pool, "signing_secrets", { account_id: mine.accountId }, { sealed });
    await expect(secretsOf(mine.accountId)).rejects.toThrow(/cannot be decrypted/);
  });

  test("of an unknown account is not there and cannot be made", async () => {
    expect(await secretsOf(nobody)).toEqual([]);
    await expect(rotate(nobody, 60)).rejects.toThrow(/foreign key/);
  });

  test("that was rotated is still there, second, until its overlap ends", async () => {
    const { accountId, signingSecret } = await createAccount(database.pool, "A", secretsKey);
    const made = await rotate(accountId, 3_600);
    expect(made.secret).not.toBe(signingSecret);
    const expiresAt = new Date(made.createdAt.getTime() + 3_600_000);
    expect(await secretsOf(accountId)).toMatchObject([
      { secret: made.secret, expiresAt: null },
      { secret: signingSecret, expiresAt },
    ]);
  });

  test("is gone at once without an overlap", async () => {
    const { accountId } = await createAccount(database.pool, "A", secretsKey);
    const made = await rotate(accountId, 0);
    expect(await secretsOf(accountId)).toMatchObject([{ secret: made.secret, expiresAt: null }]);
  });

  test("from before the last rotation does not come back", async () => {
    const { accountId } = await createAccount(database.pool, "A", secretsKey);
    await rotate(accountId, 3_600);
    const second = await rotate(accountId, 0);
    expect(await secretsOf(accountId)).toMatchObject([{ secret: second.secret }]);
    const third = await rotate(accountId, 3_600);
    expect(await secretsOf(accountId)).toMatchObject([{ secret: third.secret }, { secret: second.secret }]);
  });

  test("is not rotated while an overlap runs, unless that is to end; once it is over, it is", async () => {
    const { accountId } = await createAccount(database.pool, "A", secretsKey);
    const guarded = () =>
      rotateSigningSecret(database.pool, accountId, { overlapSeconds: 60, endsPrevious: false }, secretsKey);
    expect(await guarded()).toMatchObject({ expiresAt: null });
    const before = await secretsOf(accountId);
    expect(await guarded()).toBe("rotation_in_progress");
    expect(await secretsOf(accountId)).toEqual(before);
    await changeRows(
      database.pool,
      "signing_secrets",
      { account_id: accountId, id: before[1]!.id },
      { expires_at: new Date(Date.now() - 1) },
    );
    expect(await guarded()).toMatchObject({ expiresAt: null });
  });

  test("rotated ten times at once has one current and one previous", async () => {
    const { accountId } = await createAccount(database.pool, "A", secretsKey);
    await Promise.all(Array.from({ length: 10 }, () => rotate(accountId, 3_600)));
    const secrets = await rowsOf(database.pool, "signing_secrets", { account_id: accountId });
    const isValid = ({ expires_at: end }: { expires_at?: Date | null }) => !end || end.getTime() > Date.now();
    expect(secrets.filter(isValid)).toHaveLength(2);
  });
});

describe("an endpoint", () => {
  test("can be set, replaced, read and removed", async () => {
    const { accountId } = await createAccount(database.pool, "A", secretsKey);
    expect(await findEndpoint(database.pool, accountId)).toBeNull();
    const first = (await setEndpoint(database.pool, accountId, "https://one.example.com/"))!;
    expect(await findEndpoint(database.pool, accountId)).toEqual(first);
    // Both may be of one millisecond.
    const before = new Date(Date.parse(first.updated_at) - 1);
    await changeRows(database.pool, "endpoints", { account_id: accountId }, { updated_at: before });
    const second = (await setEndpoint(database.pool, accountId, "https://two.example.com/"))!;
    expect(second).toMatchObject({ url: "https://two.example.com/", created_at: first.created_at });
    expect(Date.parse(second.updated_at)).toBeGreaterThan(Number(before));
    expect(await removeEndpoint(database.pool, accountId)).toBe(true);
    expect(await removeEndpoint(database.pool, accountId)).toBe(false);
  });

  test("of an unknown account cannot be set", async () => {
    await expect(setEndpoint(database.pool, nobody, "https://one.example.com/")).rejects.toThrow(
      /foreign key/,
    );
  });
});

test("the settings are what was written last, in one row", async () => {
  await writeSettings(database.pool, { analysisBytesMax: 2_048, unsafeAllowedTargets: ["localhost:8443"] });
  await writeSettings(database.pool, { analysisBytesMax: 4_096, unsafeAllowedTargets: [] });
  expect(await rowsOf(database.pool, "settings")).toMatchObject([
    { only_row: true, analysis_bytes_max: 4_096, unsafe_allowed_targets: [], cell: null },
  ]);
});
