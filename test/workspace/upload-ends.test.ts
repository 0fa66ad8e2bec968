import { join } from "node:path";
import { expect, test } from "vitest";
import { openRaw, rawHead } from "../support/raw-http.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { api, database, documents, space, useDocuments } from "./document-world.ts";
import { BYTES, digestOf, documentsOf } from "./support/documents.ts";
import { keysInStore } from "./support/moving.ts";
import { openFileStore } from "./support/object-listing.ts";

useDocuments();

async function newEditor(): Promise<{ userId: string; key: string }> {
  const editor = await api.newUser(api.account.accountId);
  const path = `/v1/spaces/${space.id}/members/${editor.userId}`;
  expect((await api.ask("PUT", path, { body: { role: "EDITOR" } })).status).toBe(200);
  return editor;
}

async function looseOf(id: unknown) {
  const { rows } = await database.pool.query<{ is_reserved: boolean; is_late: boolean }>(
    `select is_reserved, remove_at > now() + interval '1 hour' as is_late
     from workspace.loose_objects where position($1 in storage_key) > 0`,
    [id],
  );
  return rows;
}

test("of uploads at once to several processes, what the losers have stored is soon removed", async () => {
  const others = await Promise.all([1, 2].map(() => startTestApi(database, { STATE_DIR: api.stateDir })));
  const putBy = (one: TestApi) => documentsOf(one.ask).put(id, BYTES, { key: api.account.key });
  const objects = await openFileStore(join(api.stateDir, "objects"));
  const { id } = await documents.created({ space_id: space.id, file_name: "losers" });
  const client = await database.pool.connect();
  await client.query("begin");
  await client.query("select from workspace.spaces where id = $1 for update", [space.id]);
  const uploads = [api, ...others].map(putBy);
  const stored = async () => (await keysInStore(objects)).filter((key) => key.includes(String(id))).length;
  await expect.poll(stored).toBe(3);
  await client.query("commit");
  client.release();
  expect((await Promise.all(uploads)).map(({ status }) => status).sort()).toEqual([200, 409, 409]);
  expect(await looseOf(id)).toEqual(Array(2).fill({ is_reserved: false, is_late: false }));
  await Promise.all(others.map((one) => one.close()));
});

test("one document has one upload at a time, so that an account's many need many documents", async () => {
  const { id } = await documents.created({ space_id: space.id, file_name: "one at a time" });
  const headers = {
    authorization: `Bearer ${api.account.key}`,
    connection: "close",
    "content-type": "text/plain",
    "content-length": BYTES.length,
    "content-digest": digestOf(BYTES),
  };
  const { socket, ended } = await openRaw(Number(new URL(api.url).port));
  socket.write(rawHead(`PUT /v1/documents/${id}/content`, { ...headers, "idempotency-key": "first" }));
  socket.write(BYTES.subarray(0, 1));
  await expect.poll(async () => (await looseOf(id)).length).toBe(1);
  const { status, body } = await documents.put(id);
  expect([status, body.code]).toEqual([409, "document_being_uploaded"]);
  socket.write(BYTES.subarray(1));
  expect(await ended).toMatch(/^HTTP\/1\.1 200 /);
  expect((await documents.put(id)).body.code).toBe("document_already_uploaded");
});

test.each([
  ["revoked", "revoked_at = now()"],
  ["expired", "expires_at = now()"],
])("an upload whose key is %s while it comes does not count", async (name, change) => {
  const { id } = await documents.created({ space_id: space.id, file_name: name });
  const { userId, key } = await newEditor();
  const { socket, ended } = await openRaw(Number(new URL(api.url).port));
  socket.write(
    rawHead(`PUT /v1/documents/${id}/content`, {
      authorization: `Bearer ${key}`,
      connection: "close",
      "idempotency-key": name,
      "content-type": "text/plain",
      "content-length": BYTES.length,
      "content-digest": digestOf(BYTES),
    }),
  );
  socket.write(BYTES.subarray(0, 1));
  await expect.poll(async () => (await looseOf(id)).length).toBe(1);
  await database.pool.query(`update sealpost.api_keys set ${change} where user_id = $1`, [userId]);
  socket.write(BYTES.subarray(1));
  expect(await ended).toMatch(/^HTTP\/1\.1 401 /);
  expect((await documents.get(id)).body.status).toBe("PENDING_UPLOAD");
  expect(await looseOf(id)).toEqual([{ is_reserved: false, is_late: false }]);
});

test("uploaded_by is who has uploaded it", async () => {
  const made = await documents.created({ space_id: space.id, file_name: "whose" });
  expect(made.uploaded_by).toMatchObject({ id: api.account.userId });
  const { userId, key } = await newEditor();
  expect((await documents.put(made.id, BYTES, { key })).body.uploaded_by).toMatchObject({ id: userId });
});
