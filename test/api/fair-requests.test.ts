// Accounts' requests that take long must not take all that `serve` can do at a time.
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { expectItsTurn, flood, GREEDY_COUNTS } from "../support/fair-shares.ts";
import { begin, countRows, insertEndpoint, untilSomebodyWaits } from "../support/installation.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

/** Several times as many as there are connections to the database, of each account. */
const REQUESTS = 40;
/** Of all accounts: twice as many as there are places. */
const FLOOD = 24;
const body = { url: "https://hooks.example.com/new" };

let database: TestDatabase;
let api: TestApi;
let quiet: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  [api, quiet] = await Promise.all([startTestApi(database), startTestApi(database)]);
});
afterAll(async () => {
  await Promise.all([api.close(), quiet.close()]);
  await database.drop();
});

async function greedyOnes(count: number): Promise<TestAccount[]> {
  const accounts: TestAccount[] = [];
  for (let n = 0; n < count; n++) {
    const account = await api.newAccount();
    await insertEndpoint(database.pool, account.accountId, "https://hooks.example.com/");
    accounts.push(account);
  }
  return accounts;
}

/** Publishes, reads and writes, in turn. */
async function tryAll(one: TestApi, { ownKey: key }: TestAccount, n: number): Promise<number[]> {
  const analysis = { id: `n-${n}`, status: "succeeded" };
  const asked = [
    await one.ask("PUT", "/v1/webhooks/endpoint", { key, body }),
    await one.ask("POST", "/v1/analyses", { key, body: { analysis } }),
    await one.ask("GET", "/v1/webhooks/deliveries", { key }),
    await one.ask("GET", "/v1/webhooks/signing-secret", { key }),
  ];
  return asked.map(({ status }) => Math.floor(status / 100));
}

test.each([1, 2])(
  "%i accounts whose requests all wait for a row keep no other one's waiting",
  async (count) => {
    const greedy = await greedyOnes(count);
    const ids = greedy.map(({ accountId }) => accountId);
    const other = await api.newAccount();
    const held = await begin(database.pool);
    onTestFinished(held.rollback);
    await held.client.query("select from sealpost.endpoints where account_id = any ($1) for update", [ids]);
    const hanging = greedy.flatMap(({ ownKey: key }) =>
      Array.from({ length: REQUESTS }, () => api.ask("PUT", "/v1/webhooks/endpoint", { key, body })),
    );
    await untilSomebodyWaits(database.pool);
    for (let n = 0; n < 5; n++) expect(await tryAll(api, other, n)).toEqual([2, 2, 2, 2]);
    for (const account_id of ids)
      expect(await countRows(database.pool, "idempotency_keys", { account_id }), "they still wait").toBe(0);
    await held.rollback();
    const statuses = new Set((await Promise.all(hanging)).map(({ status }) => status));
    for (const status of statuses) expect([200, 503]).toContain(status);
  },
);

test("a user whose requests all wait for a row keeps nobody else's of the account waiting", async () => {
  const account = await api.newAccount();
  const { accountId, key, ownKey } = account;
  const others = [await api.newUser(accountId), { key: ownKey }];
  const { body: space } = await api.ask("POST", "/v1/spaces", { key, body: { name: "Locked" } });
  const held = await begin(database.pool);
  onTestFinished(held.rollback);
  await held.client.query("select from workspace.spaces where id = $1 for update", [space.id]);
  const hanging = Array.from({ length: REQUESTS }, () =>
    api.ask("PATCH", `/v1/spaces/${space.id}`, { key, body: { name: "Renamed" } }),
  );
  await untilSomebodyWaits(database.pool);
  for (let n = 0; n < 20; n++) {
    const read = others.map(({ key }) => api.ask("GET", "/v1/webhooks/deliveries", { key }));
    const asked = [...read, api.ask("POST", "/v1/spaces", { key: others[0]!.key, body: { name: `${n}` } })];
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([200, 200, 201]);
  }
  await held.rollback();
  const statuses = new Set((await Promise.all(hanging)).map(({ status }) => status));
  for (const status of statuses) expect([200, 503]).toContain(status);
});

test.each(GREEDY_COUNTS)(
  "%i accounts that write all the time leave another one its turn",
  { tags: ["slow"] },
  async (count) => {
    const greedy = await greedyOnes(count);
    const [other, alone] = [await api.newAccount(), await api.newAccount()];
    await using _ = flood(FLOOD, (n) =>
      api.ask("PUT", "/v1/webhooks/endpoint", { key: greedy[n % count]!.ownKey, body }),
    );
    const tryIt = (one: TestApi, account: TestAccount) => (n: number) => tryAll(one, account, n);
    await expectItsTurn([2, 2, 2, 2], tryIt(api, other), tryIt(quiet, alone));
  },
);
