import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { countRows } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { killRepeatedly, type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const DELIVERIES = 80;

let database: TestDatabase;
let receiver: Receiver;
let api: TestApi;
beforeAll(async () => {
  [database, receiver] = await Promise.all([createTestDatabase(), startReceiver()]);
  api = await startTestApi(database, targetsEnv([receiver]));
});
afterAll(async () => {
  await api.close();
  await receiver.close();
  await database.drop();
});

function dispatch(): Promise<SealpostProcess> {
  return startProcess("dispatch", {
    DATABASE_URL: database.url,
    ...targetsEnv([receiver]),
    ATTEMPT_DEADLINE_MS: String(patience(2_000)),
  });
}

test("replays go on after kill -9 of their dispatcher, several at once, and take nothing twice", {
  timeout: patience(120_000),
}, async () => {
  const { accountId } = api.account;
  const names = Array.from({ length: DELIVERIES }, (_, n) => `k-${n}`);
  const deliveries = await publishAt(database.pool, accountId, new Date(), names);
  await api.ask("PUT", "/v1/webhooks/endpoint", { body: { url: receiver.url("/").href } });
  const create = async (filter: object): Promise<Json> => {
    const body = { filter, rate_per_second: 10 };
    return (await api.ask("POST", "/v1/webhooks/replays", { body })).body;
  };
  // Both want all of them: whichever comes first to a delivery has it.
  const replays = [await create({}), await create({ status: "abandoned" })];
  expect(replays).toMatchObject([{ matched: DELIVERIES }, { matched: DELIVERIES }]);

  await killRepeatedly({
    count: 1,
    start: async () => [await dispatch()],
    until: () => receiver.waitForRequests(10, 30_000),
  });
  const progress = await Promise.all(replays.map(({ id }) => api.ask("GET", `/v1/webhooks/replays/${id}`)));
  expect(progress.some(({ body }) => body.status === "running")).toBe(true);

  const second = await dispatch();
  const ended = await Promise.all(
    replays.map(async ({ id }) => {
      for (;;) {
        const { body } = await api.ask("GET", `/v1/webhooks/replays/${id}`);
        if (body.status === "done" && body.replayed === body.succeeded) return body;
      }
    }),
  );
  expect(ended).toMatchObject([{ status: "done" }, { status: "done" }]);
  const sum = (name: string) => ended.reduce((total, replay) => total + Number(replay[name]), 0);
  expect([sum("replayed"), sum("skipped"), sum("failed")]).toEqual([DELIVERIES, DELIVERIES, 0]);
  const replayed = { id: deliveries, run: 2, status: "succeeded" };
  expect(await countRows(database.pool, "deliveries", replayed)).toBe(DELIVERIES);
  expect(await second.stop()).toBe(0);
});
