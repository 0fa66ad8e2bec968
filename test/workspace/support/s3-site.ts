// The API with its documents in a real S3 server.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ObjectStore } from "../../../src/workspace/objects/object-store.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { startTestApi, type TestApi } from "../../support/sealpost-api.ts";
import { openS3Store } from "./object-listing.ts";
import { startS3Server } from "./s3-server.ts";

export type S3Site = {
  readonly database: TestDatabase;
  readonly api: TestApi;
  /** The same bucket, for whoever moves and reads its objects. */
  readonly objects: ObjectStore;
};

export async function openS3Site(resources: AsyncDisposableStack): Promise<S3Site> {
  const folder = await mkdtemp(join(tmpdir(), "sealpost-s3-"));
  resources.defer(() => rm(folder, { recursive: true }));
  const server = await startS3Server(folder);
  resources.defer(() => server.close());
  const { bucket, endpoint, accessKeyId, secretAccessKey } = server.options;
  const objects = openS3Store(server.options);
  resources.defer(() => objects.close());
  const database = await createTestDatabase();
  resources.defer(() => database.drop());
  const api = await startTestApi(database, {
    OBJECT_STORE_URL: `s3://${bucket}?endpoint=${endpoint}&path_style=true`,
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
  });
  resources.defer(() => api.close());
  return { database, api, objects };
}
