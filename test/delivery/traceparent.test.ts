import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readTraceparent } from "../../src/http/request-context.ts";
import { publish } from "../../src/publish/publish-analyses.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestDispatcher, type TestDispatcher } from "../support/dispatching.ts";
import {
  begin,
  createTestAccount,
  insertEndpoint,
  publish as publishBySql,
  rowOf,
} from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";

const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/** Each differs from the right one in one thing. */
const MALFORMED = [
  "",
  "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
  "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
  "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01",
  `${TRACE}-more`,
  `${TRACE}\r\nx-injected: 1`,
  `x${TRACE}`,
];

describe("a trace", () => {
  let database: TestDatabase;
  let receiver: Receiver;
  let dispatcher: TestDispatcher;
  let api: TestApi;
  let analyses = 0;

  const analysis = () => JSON.stringify({ id: `a-${++analyses}`, status: "succeeded" });
  const lastTrace = async () => {
    const requests = await receiver.waitForRequests(analyses);
    return requests.at(-1)?.headers.traceparent;
  };

  beforeAll(async () => {
    database = await createTestDatabase();
    receiver = await startReceiver();
    dispatcher = startTestDispatcher(database, [receiver]);
    api = await startTestApi(database);
    await insertEndpoint(database.pool, api.account.accountId, receiver.url("/").href);
  });
  afterAll(async () => {
    await api.close();
    await dispatcher.stop();
    await receiver.close();
    await database.drop();
  });

  const ask = (headers: Record<string, string>) =>
    api.ask("POST", "/v1/analyses", { body: `{"analysis":${analysis()}}`, headers });

  test("of an API caller goes out with the webhook, and stands in both logs", async () => {
    expect((await ask({ traceparent: TRACE })).status).toBe(202);
    expect(await lastTrace()).toBe(TRACE);
    expect(api.log.at(-1)).toMatchObject({ operation: "analyses.publish", traceparent: TRACE });
    const [{ delivery }] = (await dispatcher.waitForAttempts(analyses)).slice(-1) as [never];
    expect(delivery).toMatchObject({ traceparent: TRACE });
  });

  test("that the caller does not send, or sends malformed, is none", async () => {
    expect((await ask({})).status).toBe(202);
    expect(await lastTrace()).toBeUndefined();
    expect((await ask({ traceparent: "00-x-y-01" })).status).toBe(202);
    expect(await lastTrace()).toBeUndefined();
  });

  test("is set by a pipeline in SQL for its transaction, and not beyond", async () => {
    const { client, commit } = await begin(database.pool, `set local sealpost.traceparent = '${TRACE}'`);
    await publishBySql(client, api.account.accountId, analysis());
    await client.query("commit and chain");
    expect(await lastTrace()).toBe(TRACE);
    await publishBySql(client, api.account.accountId, analysis());
    await commit();
    expect(await lastTrace()).toBeUndefined();
  });

  test("is an option of the TypeScript client, which leaves the transaction's own alone", async () => {
    const { accountId } = api.account;
    await publish(database.pool, [{ accountId, analysis: analysis() }], { traceparent: TRACE });
    expect(await lastTrace()).toBe(TRACE);
    const { client, commit } = await begin(database.pool, `set local sealpost.traceparent = '${TRACE}'`);
    await publish(client, [{ accountId, analysis: analysis() }]);
    await commit();
    expect(await lastTrace()).toBe(TRACE);
  });

  test.each(MALFORMED)("%j is kept nowhere: it would go into a header", async (traceparent) => {
    expect(readTraceparent(traceparent)).toBeNull();
    const { accountId } = await createTestAccount(database);
    const { rows } = await database.pool.query(
      `select sealpost.publish_analysis($1, $2) as id from set_config('sealpost.traceparent', $3, true)`,
      [accountId, '{"id":"x","status":"failed"}', traceparent],
    );
    expect(await rowOf(database.pool, "bodies", { delivery_id: rows[0].id })).toMatchObject({
      traceparent: null,
    });
  });
});
