// A large account is erased beside another one whose deliveries go on.
import { setInterval } from "node:timers/promises";
import { expect, test } from "vitest";
import { createTestDatabase } from "../support/database.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import {
  countRows,
  createTestAccount,
  forgetOpen,
  publish,
  publishAny,
  rowsOf,
} from "../support/installation.ts";
import { startReceiver } from "../support/receiver.ts";
import { startTestApi } from "../support/sealpost-api.ts";
import { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { documentsOf } from "./support/documents.ts";

const DELIVERIES = 100_000;
const DOCUMENTS = 1_000;
const EVERY_MS = 20;
const BESIDE_NOBODY_MS = 30_000;

test("the erasure of 100,000 deliveries and 1,000 documents hardly delays another account's", {
  timeout: patience(1_800_000),
}, async () => {
  await using resources = new AsyncDisposableStack();
  const database = await createTestDatabase();
  resources.defer(() => database.drop());
  const { pool } = database;
  const api = await startTestApi(database);
  resources.defer(() => api.close());
  const receiver = await startReceiver();
  resources.defer(() => receiver.close());

  const { accountId } = api.account;
  const documents = documentsOf(api.ask);
  const { id: space_id } = await documents.newSpace();
  for (let n = 0; n < DOCUMENTS; n++) await documents.uploaded({ space_id, file_name: `${n}` });
  await api.ask("PUT", "/v1/webhooks/endpoint", { body: { url: "https://hooks.example.com/x" } });
  await publishAny(pool, accountId, DELIVERIES);
  await pool.query(
    `insert into sealpost.attempts
       (delivery_id, account_id, run, number, started_at, ended_at, outcome, error_code, status_code, target_url)
     select id, account_id, 1, 1, now(), now(), 'rejected', 'status_500', 500, 'https://hooks.example.com/x'
     from sealpost.deliveries where account_id = $1`,
    [accountId],
  );
  await forgetOpen(pool);
  await pool.query("vacuum analyze");

  const other = await createTestAccount(database, receiver.url("/").href);
  const dispatcher = startTestDispatcher(database, [receiver]);
  resources.defer(() => dispatcher.stop());
  const publishedAtMs = new Map<string, number>();

  /** The delays of what is published until then, in ms, in order. */
  async function delaysUntil(isOver: () => boolean): Promise<readonly number[]> {
    const first = publishedAtMs.size;
    for await (const _ of setInterval(EVERY_MS)) {
      const id = String(publishedAtMs.size);
      publishedAtMs.set(id, Date.now());
      await publish(pool, other.accountId, `{"id":"${id}","status":"succeeded"}`);
      if (isOver()) break;
    }
    const requests = (await receiver.waitForRequests(publishedAtMs.size)).slice(first);
    return requests
      .map(({ body, receivedAtMs }) => receivedAtMs - publishedAtMs.get(JSON.parse(String(body)).data.id)!)
      .sort((a, b) => a - b);
  }
  const p99 = (delays: readonly number[]) => delays[Math.floor(delays.length * 0.99)]!;

  const startedAtMs = Date.now();
  await delaysUntil(() => Date.now() - startedAtMs > BESIDE_NOBODY_MS / 10);
  const aloneFromMs = Date.now();
  const alone = p99(await delaysUntil(() => Date.now() - aloneFromMs > BESIDE_NOBODY_MS));
  const command = ["account", "erase", "--account", accountId, "--confirm", "test"];
  const env = { DATABASE_URL: database.url, STATE_DIR: api.stateDir };
  const erase = new SealpostProcess(command, env);
  const erasingFromMs = Date.now();
  let isErased = false;
  void erase.finished.then(() => {
    isErased = true;
  });
  const beside = p99(await delaysUntil(() => isErased));
  const seconds = Math.round((Date.now() - erasingFromMs) / 1_000);
  console.log(`erased in ${seconds} s; p99 of another account: ${alone} ms without, ${beside} ms beside it`);
  expect(await erase.finished).toMatchObject({ code: 0 });
  for (const table of ["deliveries", "attempts", "bodies", "workspace.documents"])
    expect(await countRows(pool, table, { account_id: accountId }), table).toBe(0);
  expect((await rowsOf(pool, "accounts", { id: accountId }))[0]).toMatchObject({ name: "erased" });
  // On one machine with everything else, some milliseconds more are no matter.
  expect(beside).toBeLessThanOrEqual(Math.max(1.5 * alone, alone + 10));
});
