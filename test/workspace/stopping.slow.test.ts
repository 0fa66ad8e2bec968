import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createTestDatabase } from "../support/database.ts";
import { attemptRows, deliveryRow } from "../support/delivery-rows.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { createTestAccount, publish } from "../support/installation.ts";
import { startReceiver } from "../support/receiver.ts";
import { startTestApi } from "../support/sealpost-api.ts";
import { startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { documentsOf } from "./support/documents.ts";
import { startHangingCopies } from "./support/hanging-copies.ts";
import { startS3Server } from "./support/s3-server.ts";

const ANALYSIS = '{"id":"a","status":"succeeded"}';

test(`a dispatcher that ends gives up a copy that hangs, claims no more, and finishes its webhooks`, {
  timeout: patience(60_000),
}, async () => {
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), "sealpost-stopping-"));
  resources.defer(() => rm(folder, { recursive: true }));
  const server = await startS3Server(folder);
  resources.defer(() => server.close());
  const { bucket, endpoint, accessKeyId, secretAccessKey } = server.options;
  const copies = await startHangingCopies(endpoint ?? "");
  resources.defer(() => copies.close());
  const storeAt = (address: string | null) => ({
    OBJECT_STORE_URL: `s3://${bucket}?endpoint=${address}&path_style=true`,
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
  });
  const database = await createTestDatabase();
  resources.defer(() => database.drop());
  const api = await startTestApi(database, storeAt(endpoint));
  resources.defer(() => api.close());
  const documents = documentsOf(api.ask);
  const { id: space_id } = await documents.newSpace();
  const { id, storage_key } = await documents.uploaded({ space_id });
  await documents.rename(id, "Renamed.txt");
  const answer = Promise.withResolvers<object>();
  const receiver = await startReceiver({ handler: () => answer.promise });
  resources.defer(() => receiver.close());
  const { accountId } = await createTestAccount(database, receiver.url("/").href);
  const posted = await publish(database.pool, accountId, ANALYSIS);

  const env = { DATABASE_URL: database.url, ...storeAt(copies.endpoint), ...targetsEnv([receiver]) };
  const dispatch = await startProcess("dispatch", env);
  resources.defer(() => dispatch.kill());
  await Promise.all([copies.begun, receiver.waitForRequests(1)]);
  const ended = dispatch.stop();
  await copies.givenUp;
  const late = await publish(database.pool, accountId, ANALYSIS.replace("a", "b"));
  answer.resolve({});
  expect(await ended).toBe(0);

  expect(await attemptRows(database.pool, posted)).toMatchObject([{ outcome: "succeeded" }]);
  expect(await deliveryRow(database.pool, late)).toMatchObject({ status: "pending", attempts_count: 0 });
  expect(receiver.requests).toHaveLength(1);
  expect((await documents.get(id)).body.storage_key).toBe(storage_key);
});
