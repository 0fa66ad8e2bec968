import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createAccount } from "../../../src/accounts/accounts-sql.ts";
import { isSecretsKey, keepSecretsKey, resealCanary } from "../../../src/base/database/sealing.ts";
import { rotateSigningSecret } from "../../../src/delivery/signing-secrets-sql.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { begin, countRows, untilSomebodyWaits } from "../../support/installation.ts";

const RIGHT = Buffer.alloc(32, 1);
const WRONG = Buffer.alloc(32, 2);

let database: TestDatabase;
beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(() => database.drop());

const make = (key: Uint8Array) => createAccount(database.pool, "One", key);
/** As whoever starts with these keys does. */
const keep = (...keys: [Uint8Array, ...Uint8Array[]]) =>
  keepSecretsKey(database.pool, keys, { isStoring: false });
const isRight = (key: Uint8Array) => isSecretsKey(database.pool, key);
const canary = async (): Promise<string | null> =>
  (await database.pool.query("select secrets_canary from sealpost.settings")).rows[0].secrets_canary;
/** As version 1.0 leaves a database. */
const forgetCanary = () => database.pool.query("update sealpost.settings set secrets_canary = null");

describe("the key of a database's secrets", () => {
  test("is any while nothing is sealed, and that of the first secret from then on", async () => {
    for (const key of [RIGHT, WRONG]) {
      expect(await keepSecretsKey(database.pool, key, { isStoring: false })).toBe(true);
      expect(await isRight(key)).toBe(true);
    }
    expect(await canary()).toBeNull();
    await make(RIGHT);
    expect(await canary()).not.toBeNull();
    expect([await isRight(RIGHT), await isRight(WRONG)]).toEqual([true, false]);
  });

  test("is the only one that seals, from the first secret on", async () => {
    const { accountId } = await make(RIGHT);
    const kept = await canary();
    await expect(make(WRONG)).rejects.toThrow("SECRETS_KEY is not the key");
    const rotation = { overlapSeconds: 60, endsPrevious: true };
    await expect(rotateSigningSecret(database.pool, accountId, rotation, WRONG)).rejects.toThrow(
      "SECRETS_KEY",
    );
    expect(await countRows(database.pool, "signing_secrets")).toBe(1);
    expect(await countRows(database.pool, "accounts")).toBe(1);
    expect(await canary()).toBe(kept);
    await rotateSigningSecret(database.pool, accountId, rotation, RIGHT);
    expect(await canary()).toBe(kept);
  });

  test("is one of two that are first at the same moment", async () => {
    const first = await begin(database.pool);
    expect(await keepSecretsKey(first.client, RIGHT, { isStoring: true })).toBe(true);
    const second = make(WRONG);
    await Promise.race([second.catch(() => undefined), untilSomebodyWaits(database.pool)]);
    await first.commit();
    await expect(second).rejects.toThrow("SECRETS_KEY is not the key");
    expect(await countRows(database.pool, "accounts")).toBe(0);
    await make(RIGHT);
  });

  test("is known by the newest secret where there is no canary, and seals one then", async () => {
    await make(RIGHT);
    await forgetCanary();
    expect([await isRight(RIGHT), await isRight(WRONG)]).toEqual([true, false]);
    expect(await keepSecretsKey(database.pool, WRONG, { isStoring: true })).toBe(false);
    expect(await canary()).toBeNull();
    expect(await keepSecretsKey(database.pool, RIGHT, { isStoring: false })).toBe(true);
    expect(await canary()).not.toBeNull();
  });

  test("has to be one of the same two in every process, while it is rotated", async () => {
    const [old, next, mistyped] = [RIGHT, Buffer.alloc(32, 3), WRONG];
    const { accountId } = await make(old);
    expect(await keep(old, next)).toBe(true);
    // A process that still has the old one alone stores a secret.
    await make(old);
    for (const keys of [
      [mistyped, old],
      [old, mistyped],
    ] as const) {
      expect(await keep(...keys)).toBe(false);
      const rotation = { overlapSeconds: 60, endsPrevious: true };
      await expect(rotateSigningSecret(database.pool, accountId, rotation, keys)).rejects.toThrow(
        "SECRETS_KEY",
      );
    }
    for (const keys of [[old, next], [next, old], [old]] as const) {
      expect(await isSecretsKey(database.pool, keys)).toBe(true);
    }
    await resealCanary(database.pool, [next, old]);
    expect(await keep(next, old)).toBe(true);
    expect([await keep(next, mistyped), await keep(old)]).toEqual([false, false]);
    expect(await keep(old, next), "it can be taken back").toBe(true);
    expect([await keep(next), await keep(old, next)], "and is not over").toEqual([false, true]);
    await resealCanary(database.pool, [next, old]);
    expect(await keep(next, old), "a process that is restarted in vain").toBe(true);
    expect(await keep(next), "the rotation is over").toBe(true);
    // Nobody else could read what such a process seals.
    for (const keys of [
      [old, next],
      [mistyped, next],
    ] as const)
      expect(await keep(...keys)).toBe(false);
    expect(await keep(next, old), "as a process that has not been restarted yet").toBe(true);
    expect(await keep(next)).toBe(true);
    expect(await keep(next, Buffer.alloc(32, 4)), "and another may begin").toBe(true);
  });

  test("is still one of the two, though somebody starts with the old one alone before all is resealed", async () => {
    await make(RIGHT);
    const third = Buffer.alloc(32, 3);
    for (const [old, next] of [
      [RIGHT, third],
      [third, Buffer.alloc(32, 4)],
    ] as const) {
      for (const both of [
        [old, next],
        [next, old],
      ] as const) {
        expect(await keep(...both)).toBe(true);
        expect(await keep(old), "one that was forgotten").toBe(true);
      }
      expect(await keep(next, old)).toBe(true);
      await resealCanary(database.pool, [next, old]);
      expect(await keep(next)).toBe(true);
      expect([await keep(old, next), await keep(old)]).toEqual([false, false]);
    }
  });

  test("is still one of the two where a rotation was undone, and begins again", async () => {
    const [old, next] = [RIGHT, Buffer.alloc(32, 3)];
    await make(old);
    expect(await keep(old, next)).toBe(true);
    await resealCanary(database.pool, [next, old]);
    // A process of before, as far as is known.
    await make(next);
    expect([await keep(old, next), await keep(next)], "the third step is undone").toEqual([true, false]);
    expect(await keep(old, next)).toBe(true);
    await resealCanary(database.pool, [old, next]);
    expect([await keep(next, old), await keep(old)], "and the second begins again").toEqual([true, false]);
    expect(await keep(next, old)).toBe(true);
  });

  test("is not the new one alone while a process may still encrypt with the old one", async () => {
    const [old, next] = [RIGHT, Buffer.alloc(32, 3)];
    await make(old);
    expect([await keep(old, next), await keep(next, old)]).toEqual([true, true]);
    await resealCanary(database.pool, [next, old]);
    const forgotten = [old, next] as const;
    await createAccount(database.pool, "Two", forgotten);
    expect([await keep(next), await isRight(next), await keep(next, old)]).toEqual([false, false, true]);
    await expect(make(next)).rejects.toThrow("Run `sealpost secrets reseal` again: with both");
    const isKept = await keepSecretsKey(database.pool, next, { isStoring: false, isResealing: true });
    expect(isKept, "who has lost the old one may still reseal").toBe(true);
    await resealCanary(database.pool, [next, old]);
    expect([await keep(next), await keep(...forgotten)]).toEqual([true, false]);
    await expect(createAccount(database.pool, "Three", forgotten)).rejects.toThrow("SECRETS_KEY");
  });

  test("can end again, though its last step was undone after everything had been resealed with it alone", async () => {
    const [old, next] = [RIGHT, Buffer.alloc(32, 3)];
    await make(old);
    expect([await keep(old, next), await keep(next, old)]).toEqual([true, true]);
    await resealCanary(database.pool, [next, old]);
    expect(await keep(next)).toBe(true);
    await resealCanary(database.pool, next);
    expect([await keep(next, old), await keep(next), await keep(old, next)]).toEqual([true, true, false]);
    expect(await keep(next, Buffer.alloc(32, 4))).toBe(true);
  });

  test("can be replaced where it was mistyped, by resealing with the old one alone", async () => {
    await make(RIGHT);
    expect(await keep(RIGHT, WRONG)).toBe(true);
    expect(await keep(RIGHT, Buffer.alloc(32, 3))).toBe(false);
    await resealCanary(database.pool, RIGHT);
    expect(await keep(RIGHT, Buffer.alloc(32, 3))).toBe(true);
  });

  test("can be looked for before the canary's migration is applied", async () => {
    await make(RIGHT);
    await database.pool.query("alter table sealpost.settings drop column secrets_canary");
    expect([await isRight(RIGHT), await isRight(WRONG)]).toEqual([true, false]);
  });
});
