import { afterAll, beforeAll, expect, it } from "vitest";
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
