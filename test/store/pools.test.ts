import { afterAll, beforeAll, expect, it } from "vitest";
import { createDispatchPool, isRefusedData } from "../../src/store/pools.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { createTestAccount, startTestDispatcher } from "../support/dispatching.ts";
import { publish } from "../support/publishing.ts";
import { startReceiver } from "../support/receiver.ts";

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

it("lets no role that can connect stop a dispatcher's wake-ups", async () => {
  await using receiver = await startReceiver();
  const dispatcher = startTestDispatcher(database, [receiver]);
  const { accountId } = await createTestAccount(database, receiver.url("/").href);
  await publish(database.pool, accountId, '{"id":"n-1","status":"succeeded"}');
  await receiver.waitForRequests(1);

  await database.pool.query(`select pg_notify('worker:migrate', '{"migrationNumber":99,"breaking":true}')`);
  await publish(database.pool, accountId, '{"id":"n-2","status":"succeeded"}');
  await receiver.waitForRequests(2);
  await dispatcher.stop();
  expect(process.exitCode).toBeUndefined();
});

it("keeps no connection for days, and the statements of all those days with it", async () => {
  const pool = createDispatchPool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test pools",
    onError: () => undefined,
  });
  expect(pool.options.maxLifetimeSeconds).toBe(3_600);
  await pool.end();
});

it.each([
  ["22P05", true],
  ["23514", true],
  ["54000", true],
  ["58030", true],
  ["XX001", true],
  ["40P01", false],
  ["42P01", false],
  ["53100", false],
  ["57014", false],
  ["57P01", false],
])("takes SQLSTATE %s for the data's fault: %s", async (code, isData) => {
  const raising = database.pool.query(`do $$ begin raise exception using errcode = '${code}'; end $$`);
  expect(await raising.then(() => null, isRefusedData)).toBe(isData);
});
