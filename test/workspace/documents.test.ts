import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { api, database, documents, space, useDocuments } from "./document-world.ts";
import { BYTES } from "./support/documents.ts";

useDocuments();

test("a document is made, uploaded and downloaded", async () => {
  const made = await documents.created({ space_id: space.id, file_name: "First.txt" });
  const [{ id: workspace_id }] = (
    await database.pool.query("select id from workspace.workspaces where account_id = $1", [
      api.account.accountId,
    ])
  ).rows;
  expect(made).toEqual({
    id: expect.any(String),
    tenant_id: api.account.accountId,
    workspace_id,
    space_id: space.id,
    folder_id: null,
    uploaded_by: { id: api.account.userId, name: expect.any(String) },
    file_name: "First.txt",
    content_type: "text/plain",
    file_size: BYTES.length,
    storage_key: expect.stringMatching(
      new RegExp(`^${space.storage_prefix}${made.id}-[0-9a-f]{12}/First\\.txt$`),
    ),
    status: "PENDING_UPLOAD",
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    doc_origin: "UPLOADED",
    live_content_type: "NONE",
    has_active_collab_session: false,
    has_content: false,
  });
  expect((await documents.get(made.id)).body).toEqual(made);
  const early = await documents.download(made.id);
  expect([early.status, early.body.code]).toEqual([409, "document_not_uploaded"]);

  const { status, body } = await documents.put(made.id);
  expect(status).toBe(200);
  expect(body).toEqual({
    ...made,
    status: "UPLOADED",
    has_content: true,
    storage_key: expect.stringMatching(`^${space.storage_prefix}${made.id}-[0-9a-f]{12}/First\\.txt$`),
  });
  expect((await documents.get(made.id)).body).toEqual(body);

  const got = await documents.download(made.id);
  expect(got.status).toBe(200);
  expect(got.bytes).toEqual(BYTES);
  expect(Object.fromEntries(got.headers)).toMatchObject({
    "content-type": "text/plain",
    "content-disposition": "attachment; filename=First.txt",
    etag: `"${made.id}"`,
  });
  const part = await documents.download(made.id, { headers: { range: "bytes=5-7" } });
  expect([part.status, part.bytes.toString()]).toEqual([206, BYTES.toString().slice(5, 8)]);
});

test("nothing is uploaded twice, but the same request gets its answer again", async () => {
  const { id } = await documents.created({ space_id: space.id, file_name: "Twice.txt" });
  const idempotencyKey = randomUUID();
  const first = await documents.put(id, BYTES, { idempotencyKey });
  const again = await documents.put(id, BYTES, { idempotencyKey });
  expect([again.status, again.body]).toEqual([200, first.body]);
  const other = await documents.put(id);
  expect([other.status, other.body.code]).toEqual([409, "document_already_uploaded"]);
});

test("of two uploads at once one counts, and its bytes are what is there", async () => {
  for (let round = 0; round < 10; round++) {
    const { id } = await documents.created({ space_id: space.id, file_name: `race ${round}`, file_size: 4 });
    const contents = ["one.", "two.", "3rd."].map((text) => Buffer.from(text));
    const answers = await Promise.all(contents.map((content) => documents.put(id, content)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409]);
    const winner = answers.findIndex(({ status }) => status === 200);
    expect((await documents.download(id)).bytes).toEqual(contents[winner]);
  }
});

describe("an upload that is not the document's", () => {
  test.each([
    ["a byte short", BYTES.subarray(1), "text/plain", "header.content-length"],
    ["a byte long", Buffer.concat([BYTES, BYTES.subarray(0, 1)]), "text/plain", "header.content-length"],
    ["of another type", BYTES, "text/html", "header.content-type"],
  ])("is refused before any byte: %s", async (name, content, type, path) => {
    const { id } = await documents.created({ space_id: space.id, file_name: name });
    const { status, body } = await documents.put(id, content, { headers: { "content-type": type } });
    expect([status, body.code, body.errors]).toEqual([
      400,
      "invalid_request",
      [{ path, message: expect.any(String) }],
    ]);
    expect((await documents.put(id)).status).toBe(200);
  });

  test("is refused for its digest, and leaves nothing but what is removed", async () => {
    const { id } = await documents.created({ space_id: space.id, file_name: "digest" });
    const headers = { "content-digest": `sha-256=:${Buffer.alloc(32).toString("base64")}:` };
    expect((await documents.put(id, BYTES, { headers })).body.code).toBe("invalid_request");
    const { rows } = await database.pool.query(
      "select is_reserved from workspace.loose_objects where storage_key like $1",
      [`%${id}%`],
    );
    expect(rows).toEqual([{ is_reserved: false }]);
    expect((await documents.put(id)).status).toBe(200);
  });
});

test.each([
  ["text/markdown", "text/markdown", "MARKDOWN"],
  ["Text/Markdown; Charset=UTF-8", "text/markdown;charset=UTF-8", "MARKDOWN"],
  ["text/markdownish", "text/markdownish", "NONE"],
  ["application/pdf", "application/pdf", "NONE"],
])("a document of type %s can be edited together or not", async (content_type, stored, kind) => {
  const { id, ...made } = await documents.uploaded({
    space_id: space.id,
    file_name: randomUUID(),
    content_type,
  });
  expect(made).toMatchObject({ content_type: stored, live_content_type: kind });
  expect((await documents.download(id)).headers.get("content-type")).toBe(stored);
});

test("a document may be empty", async () => {
  const { id } = await documents.uploaded({ space_id: space.id, file_name: "empty" }, Buffer.alloc(0));
  const { status, bytes } = await documents.download(id);
  expect([status, bytes.length]).toEqual([200, 0]);
});

test.each([
  [{ file_size: -1 }, 400],
  [{ file_size: 1.5 }, 400],
  [{ file_size: 5 * 1_024 ** 3 + 1 }, 413],
  [{ content_type: "text" }, 400],
  [{ content_type: "text/plain\r\nx: y" }, 400],
  [{ space_id: randomUUID() }, 404],
  [{ folder_id: randomUUID() }, 404],
])("no document is made with %j", async (wrong, status) => {
  const { status: told } = await documents.create({ space_id: space.id, file_name: randomUUID(), ...wrong });
  expect(told).toBe(status);
});

test("a folder of another space is none of this one", async () => {
  const other = await documents.newSpace("other");
  const { body: folder } = await api.ask("POST", `/v1/spaces/${other.id}/folders`, {
    body: { name: "elsewhere" },
  });
  const place = { space_id: space.id, folder_id: folder.id };
  const made = await documents.create({ ...place, file_name: "misplaced" });
  expect([made.status, made.body.code]).toEqual([404, "not_found"]);
  const listed = await api.ask("GET", `/v1/documents?space_id=${space.id}&folder_id=${folder.id}`);
  expect([listed.status, listed.body.code]).toEqual([404, "not_found"]);
});
