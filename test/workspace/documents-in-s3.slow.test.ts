import { expect, test } from "vitest";
import { openRaw, type RawConnection, rawHead } from "../support/raw-http.ts";
import { binOf, deleteAllGone } from "./support/bin.ts";
import { digestOf, documentsOf } from "./support/documents.ts";
import { endKeeping, keysInRows, keysInStore, moveOnce, removeAll } from "./support/moving.ts";
import { openS3Site } from "./support/s3-site.ts";

const CONTENT = Buffer.alloc(9_000_000, "What a document of two parts has. ");

test(`documents are uploaded to S3, moved there and downloaded`, async () => {
  await using resources = new AsyncDisposableStack();
  const { database, api, objects } = await openS3Site(resources);
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

  // Of one user, so many are in memory at a time; others are told so before they send anything.
  const connections: RawConnection[] = [];
  for (let n = 0; n < 5; n++) {
    const made = await documents.created({ space_id, file_name: `slow ${n}`, file_size: CONTENT.length });
    const connection = await openRaw(Number(new URL(api.url).port));
    resources.defer(() => void connection.socket.destroy());
    connections.push(connection);
    connection.socket.write(
      rawHead(`PUT /v1/documents/${made.id}/content`, {
        authorization: `Bearer ${api.account.key}`,
        expect: "100-continue",
        connection: "close",
        "idempotency-key": `slow-${n}`,
        "content-type": "text/plain",
        "content-length": CONTENT.length,
        "content-digest": digestOf(CONTENT),
      }),
    );
    if (n < 4) await expect.poll(connection.received).toMatch(/^HTTP\/1\.1 100 /);
  }
  expect(await connections[4]!.ended).toMatch(/^HTTP\/1\.1 429 .*retry-after: 5\r\n.*"rate_limited"/s);
  for (const { socket } of connections) socket.destroy();
  // The memory is free again.
  await documents.uploaded({ space_id, file_name: "after" }, CONTENT);

  await endKeeping(database.pool, false);
  await removeAll(database.pool, objects);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
  expect((await documents.download(id)).bytes.equals(CONTENT)).toBe(true);

  const bin = binOf(api.ask);
  expect((await bin.removeForGood({ path: `/v1/documents/${id}` })).status).toBe(200);
  await deleteAllGone(database.pool);
  await endKeeping(database.pool, false);
  await removeAll(database.pool, objects);
  const keys = await keysInStore(objects);
  expect([keys.length, keys.filter((key) => key.includes(String(id)))]).toEqual([1, []]);
});
