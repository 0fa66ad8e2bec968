import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { unsafeAllowed } from "../support/dispatching.ts";
import { countRows } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { type RunningProcess, startProcess } from "../support/sealpost-processes.ts";
import { patience } from "../support/time-limits.ts";

const DELIVERIES = 80;

let database: TestDatabase;
let receiver: Receiver;
let api: TestApi;
let folder: string;
beforeAll(async () => {
  [database, receiver] = await Promise.all([createTestDatabase(), startReceiver()]);
  const lifted = unsafeAllowed([receiver]).join(",");
  api = await startTestApi(database, { UNSAFE_ALLOWED_TARGETS: lifted });
  folder = mkdtempSync(join(tmpdir(), "sealpost-replay-"));
  writeFileSync(join(folder, "ca.pem"), receiver.caPem);
});
afterAll(async () => {
  await api.close();
  await receiver.close();
  await database.drop();
  rmSync(folder, { recursive: true });
});

function dispatch(): Promise<RunningProcess> {
  return startProcess("dispatch", database, {
    TARGET_CA_FILE: join(folder, "ca.pem"),
    UNSAFE_ALLOWED_TARGETS: unsafeAllowed([receiver]).join(","),
    ATTEMPT_DEADLINE_MS: String(patience(2_000)),
    CONNECT_TIMEOUT_MS: String(patience(1_000)),
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
    const body = { filter, rate_per_second: 20 };
    return (await api.ask("POST", "/v1/webhooks/replays", { body })).body;
  };
  // Both want all of them: whichever comes first to a delivery has it.
  const replays = [await create({}), await create({ status: "abandoned" })];
  expect(replays).toMatchObject([{ matched: DELIVERIES }, { matched: DELIVERIES }]);

  const first = await dispatch();
  await receiver.waitForRequests(10, 30_000);
  await first.end("SIGKILL");
  const progress = await Promise.all(replays.map(({ id }) => api.ask("GET", `/v1/webhooks/replays/${id}`)));
  expect(progress.some(({ body }) => body.status === "running")).toBe(true);

  const second = await dispatch();
  const ended = await Promise.all(
    replays.map(async ({ id }) => {
      for (;;) {
        const { body } = await api.ask("GET", `/v1/webhooks/replays/${id}`);
        if (body.status !== "running" && body.replayed === body.succeeded) return body;
      }
    }),
  );
  expect(ended).toMatchObject([{ status: "done" }, { status: "done" }]);
  const sum = (name: string) => ended.reduce((total, replay) => total + Number(replay[name]), 0);
  expect([sum("replayed"), sum("skipped"), sum("failed")]).toEqual([DELIVERIES, DELIVERIES, 0]);
  const replayed = { id: deliveries, run: 2, status: "succeeded" };
  expect(await countRows(database.pool, "deliveries", replayed)).toBe(DELIVERIES);
  expect(await second.end("SIGTERM")).toBe(0);
});
