import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openS3Store } from "../../src/workspace/objects/s3-store.ts";
import { createTestDatabase } from "../support/database.ts";
import { startTestApi } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";
import { endKeeping, keysInRows, keysInStore, moveOnce, removeAll } from "./support/moving.ts";
import { findS3Server, S3_SERVER_WANTED, startS3Server } from "./support/s3-server.ts";

const program = findS3Server();
const CONTENT = Buffer.alloc(9_000_000, "What a document of two parts has. ");

test.skipIf(program === null)(
  `documents are uploaded to S3, moved there and downloaded (${S3_SERVER_WANTED})`,
  async () => {
    await using resources = new AsyncDisposableStack();
    const folder = await mkdtemp(join(tmpdir(), "sealpost-s3-"));
    resources.defer(() => rm(folder, { recursive: true }));
    const server = await startS3Server(program ?? "", folder);
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
    const documents = documentsOf(api.ask);

    const { id: space_id } = await documents.newSpace("in the cloud");
    const { id } = await documents.uploaded({ space_id, file_name: "Größe + 1.bin" }, CONTENT);
    await documents.rename(id, "Ünother = name.bin");
    await documents.renameSpace(space_id, "elsewhere");
    while (await moveOnce(database.pool, objects));
    const got = await documents.download(id);
    expect([got.status, got.bytes.equals(CONTENT)]).toEqual([200, true]);
    const part = await documents.download(id, { headers: { range: "bytes=8388600-8388620" } });
    expect([part.status, part.bytes]).toEqual([206, CONTENT.subarray(8_388_600, 8_388_621)]);

    await endKeeping(database.pool, false);
    await removeAll(database.pool, objects);
    expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
    expect((await documents.download(id)).bytes.equals(CONTENT)).toBe(true);
  },
);
