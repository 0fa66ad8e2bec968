import { randomUUID } from "node:crypto";
import type { ClientBase } from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  claimIdempotencyKey,
  claimIdempotencyKeys,
  claimIdempotentCall,
  releaseIdempotentCall,
  renewIdempotentCall,
  storeCallResponse,
  storingResponse,
} from "../../../src/base/database/idempotency.ts";
import { deleteOldRows } from "../../../src/base/database/old-rows.ts";
import { inTransaction } from "../../../src/base/database/transaction.ts";
import type { IdempotencyClaim, StoredResponse } from "../../../src/base/model/idempotency.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { changeRows, countRows, insertAccount, SECRETS_KEY } from "../../support/installation.ts";

let database: TestDatabase;
let claim: IdempotencyClaim;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());
beforeEach(() => {
  claim = claimOf("key");
});

function claimOf(idempotencyKey: string, accountId: string = randomUUID()): IdempotencyClaim {
  const keyId = randomUUID();
  return { accountId, keyId, idempotencyKey, operationKey: "boxes.create", fingerprint: Buffer.from("f") };
}

const plain: StoredResponse = {
  status: 201,
  headers: { location: "/v1/boxes/1" },
  body: Buffer.from('{"id":"1"}'),
  holdsSecret: false,
};
/** As the answers of the account's own key are. */
const COUNTED = { userId: null, isRefused: true, auditBytes: 0 };
const secret: StoredResponse = { ...plain, body: Buffer.from('{"secret":"whsec_1"}'), holdsSecret: true };

const inTx = <T>(work: (client: ClientBase) => Promise<T>) => inTransaction(database.pool, work);
const claimAlone = (one = claim) => inTx((client) => claimIdempotencyKey(client, one, SECRETS_KEY));
const store = async (...responses: (readonly [IdempotencyClaim, StoredResponse])[]) => {
  for (const [claim, response] of responses)
    await database.pool.query(storingResponse({ claim, response, counted: COUNTED }, SECRETS_KEY));
};
const completed = (response: StoredResponse) => ({
  state: "completed",
  fingerprint: claim.fingerprint,
  response,
});

describe("a response", () => {
  test.each([
    ["of bytes", plain],
    ["without a body", { ...plain, status: 204, headers: {}, body: null }],
    ["that holds a secret", secret],
  ])("%s is answered as it was stored, to whoever claims its key", async (_, response) => {
    expect(await claimAlone()).toEqual({ state: "claimed" });
    await store([claim, response]);
    expect(await claimAlone()).toEqual(completed(response));
  });

  test("that would hold a secret, but has no body, has nothing to seal", async () => {
    await store([claim, { ...secret, body: null }]);
    expect(await claimAlone()).toEqual(completed({ ...secret, body: null, holdsSecret: false }));
  });

  test("with a secret is sealed, for its own key alone", async () => {
    const other = claimOf("other", claim.accountId);
    await store([claim, secret], [other, secret]);
    const where = { account_id: claim.accountId, idempotency_key: "key" };
    const { rows } = await database.pool.query(
      "select * from sealpost.idempotency_keys where account_id = $1",
      [claim.accountId],
    );
    for (const { body } of rows) expect(body.toString("latin1")).not.toContain("whsec_");
    const moved = rows.find((row) => row.idempotency_key === "other").body;
    await changeRows(database.pool, "idempotency_keys", where, { body: moved });
    await expect(claimAlone()).rejects.toThrow();
  });

  test("is stored in place of a claim's", async () => {
    const lease = { token: randomUUID(), leaseMs: 60_000 };
    await inTx((client) => claimIdempotentCall(client, claim, lease, COUNTED, SECRETS_KEY));
    await store([claim, plain]);
    expect(await claimAlone()).toEqual(completed(plain));
  });
});

describe("claims", () => {
  test("of several keys are told of in their order, with the response of each", async () => {
    const [first, second, third] = ["c", "b", "a"].map((key) => claimOf(key));
    await store([first!, plain], [third!, secret]);
    const states = await inTx((client) =>
      claimIdempotencyKeys(client, [third!, second!, first!], SECRETS_KEY),
    );
    expect(states).toEqual([completed(secret), { state: "claimed" }, completed(plain)]);
  });

  test("are in progress for others while their transaction is open, and free after it is rolled back", async () => {
    const failed = inTx(async (client) => {
      expect(await claimIdempotencyKey(client, claim, SECRETS_KEY)).toEqual({ state: "claimed" });
      expect(await claimAlone()).toEqual({ state: "in_progress" });
      expect(await claimAlone({ ...claim, keyId: randomUUID() }), "another's").toEqual({ state: "claimed" });
      throw new Error("rolled back");
    });
    await expect(failed).rejects.toThrow("rolled back");
    expect(await claimAlone()).toEqual({ state: "claimed" });
  });

  test("of an account that has moved say where to, and answer nothing again", async () => {
    const accountId = await insertAccount(database.pool);
    claim = claimOf("key", accountId);
    await store([claim, plain]);
    await changeRows(database.pool, "accounts", { id: accountId }, { moved_to: "c2" });
    expect(await claimAlone()).toEqual({ state: "moved", cell: "c2" });
    expect(await claimAlone(claimOf("new", accountId))).toEqual({ state: "moved", cell: "c2" });
  });
});

describe("a call's claim", () => {
  const lease = { token: randomUUID(), leaseMs: 60_000 };
  const other = { token: randomUUID(), leaseMs: 60_000 };
  const claimCall = (by = lease) =>
    inTx((client) => claimIdempotentCall(client, claim, by, COUNTED, SECRETS_KEY));
  const complete = (token: string, response = plain) =>
    inTx((client) => storeCallResponse(client, claim, token, response, COUNTED, SECRETS_KEY));
  /** As after so long. */
  const letPass = (ms: number) =>
    database.pool.query(
      `update sealpost.idempotency_keys set claim_until = claim_until - $2 * interval '1 millisecond'
       where account_id = $1`,
      [claim.accountId, ms],
    );

  test("outlasts its transaction, for as long as its lease and not much longer", async () => {
    expect(await claimCall()).toEqual({ state: "claimed" });
    expect(await claimCall(other)).toEqual({ state: "in_progress" });
    await letPass(lease.leaseMs - 30_000);
    expect(await claimCall(other)).toEqual({ state: "in_progress" });
    await letPass(30_000);
    expect(await claimCall(other)).toEqual({ state: "claimed" });
  });

  test("is completed by whoever holds it, once", async () => {
    await claimCall();
    await letPass(lease.leaseMs);
    await claimCall(other);
    expect(await complete(lease.token), "it ran out").toBe(false);
    expect(await claimAlone()).toEqual({ state: "in_progress" });
    expect(await complete(other.token, secret)).toBe(true);
    expect(await complete(other.token, plain)).toBe(false);
    expect(await claimCall()).toEqual(completed(secret));
  });

  test("is held for longer by whoever holds it", async () => {
    await claimCall();
    await letPass(lease.leaseMs);
    const renew = (by: typeof lease) => inTx((client) => renewIdempotentCall(client, claim, by));
    await renew(other);
    expect(await claimAlone()).toEqual({ state: "claimed" });
    await renew(lease);
    expect(await claimAlone()).toEqual({ state: "in_progress" });
    await letPass(lease.leaseMs);
    expect(await claimAlone()).toEqual({ state: "claimed" });
  });

  test("is given up by whoever holds it", async () => {
    await claimCall();
    await inTx((client) => releaseIdempotentCall(client, claim, other.token));
    expect(await claimAlone()).toEqual({ state: "in_progress" });
    await inTx((client) => releaseIdempotentCall(client, claim, lease.token));
    expect(await claimAlone()).toEqual({ state: "claimed" });
    expect(await countRows(database.pool, "idempotency_keys", { account_id: claim.accountId })).toBe(0);
  });
});

test("keys older than the retention are forgotten, so many at a time", async () => {
  const accountId = randomUUID();
  const DAY_MS = 86_400_000;
  const claims = ["1", "2", "3", "new"].map((key) => claimOf(key, accountId));
  await store(...claims.map((one) => [one, plain] as const));
  const old = new Date(Date.now() - DAY_MS - 60_000);
  for (const idempotency_key of ["1", "2", "3"])
    await changeRows(
      database.pool,
      "idempotency_keys",
      { account_id: accountId, idempotency_key },
      { created_at: old },
    );
  expect(await deleteOldRows(database.pool, "idempotency_keys", DAY_MS, 2)).toBe(2);
  expect(await deleteOldRows(database.pool, "idempotency_keys", DAY_MS, 2)).toBe(1);
  expect(await deleteOldRows(database.pool, "idempotency_keys", DAY_MS, 2)).toBe(0);
  expect(await claimAlone(claims[3]!)).toEqual(completed(plain));
});
