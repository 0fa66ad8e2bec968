import { beforeAll, describe, expect, test } from "vitest";
import type { Json, TestAccount } from "../support/sealpost-api.ts";
import { api, documents, space, useDocuments } from "./document-world.ts";
import { BYTES } from "./support/documents.ts";

useDocuments();

const WRONG = [
  ...[
    "",
    ".",
    "..",
    "a/b",
    "/a",
    "a\\b",
    "..\\..",
    "a\u0000",
    "a\nb",
    "\u0085",
    "\ud800",
    "a\uffff",
    7,
    null,
  ],
  ...["x".repeat(256), "é".repeat(128), "🦑".repeat(64)],
];
const RIGHT = [
  ...[" ", " x ", "...", "~", "CON", "aux.txt", ".htaccess", "-rf", "%2e%2e", "a=b", "a+", "a;b", "<b>.html"],
  ...[
    '"quoted".txt',
    "it's",
    "名前.pdf",
    "gpj.\u202eexe",
    "x".repeat(255),
    `${"é".repeat(127)}x`,
    "🦑".repeat(63),
  ],
  ...["A", "a", "keys", "unfinished", "\u00a0", "a,b", "*", "?", "#", "a:b", "|"],
];

test.each(WRONG)("no document is called %j, neither when it is made nor later", async (file_name) => {
  const { status, body } = await documents.create({ space_id: space.id, file_name });
  expect([status, body.code]).toEqual([400, "invalid_request"]);
  const { id } = await documents.created({
    space_id: space.id,
    file_name: `wrong ${WRONG.indexOf(file_name)}`,
  });
  expect((await documents.rename(id, file_name)).status).toBe(400);
});

test.each(RIGHT)("a document may be called %j, and comes back under that name", async (file_name) => {
  const { id, ...made } = await documents.uploaded({ space_id: space.id, file_name });
  expect(made.file_name).toBe(file_name.normalize("NFC"));
  const { status, headers, bytes } = await documents.download(id);
  expect([status, bytes]).toEqual([200, BYTES]);
  expect(headers.get("content-disposition")).toMatch(/^attachment; filename/);
  expect(headers.get("content-disposition")).not.toMatch(/[\r\n\u202e]/);
});

test("names that look the same are the same, however they are written", async () => {
  const made = await documents.created({ space_id: space.id, file_name: "cafe\u0301.txt" });
  expect(made.file_name).toBe("caf\u00e9.txt");
  const again = await documents.create({ space_id: space.id, file_name: "caf\u00e9.txt" });
  expect([again.status, again.body.code]).toEqual([409, "document_name_taken"]);
});

test("a name is free in another folder, and in the same one for the document itself", async () => {
  const folder = await api.ask("POST", `/v1/spaces/${space.id}/folders`, { body: { name: "inner" } });
  const { id } = await documents.created({ space_id: space.id, file_name: "same.txt" });
  await documents.created({ space_id: space.id, folder_id: folder.body.id, file_name: "same.txt" });
  expect((await documents.rename(id, "same.txt")).status).toBe(200);
});

describe("the list", () => {
  const list = async (query: string) =>
    (await api.ask("GET", `/v1/documents?${query}`)).body as {
      items: Json[];
      next_cursor: string;
      total: number;
    };

  test("is of a space or a folder, newest first, page by page", async () => {
    const { id } = await documents.newSpace("listed");
    const folder = await api.ask("POST", `/v1/spaces/${id}/folders`, { body: { name: "inner" } });
    const folder_id = folder.body.id;
    const made: Json[] = [];
    for (let n = 0; n < 5; n++) {
      made.push(await documents.created({ space_id: id, file_name: `${n}`, ...(n % 2 && { folder_id }) }));
    }
    made.reverse();
    expect((await list(`space_id=${id}`)).items).toEqual(made);
    const inFolder = made.filter((document) => document.folder_id === folder_id);
    expect(await list(`space_id=${id}&folder_id=${folder_id}`)).toEqual({
      items: inFolder,
      next_cursor: null,
      total: 2,
    });
    const first = await list(`space_id=${id}&limit=3`);
    expect([first.items, first.total]).toEqual([made.slice(0, 3), 5]);
    const rest = await list(`space_id=${id}&limit=3&cursor=${first.next_cursor}`);
    expect([rest.items, rest.next_cursor]).toEqual([made.slice(3), null]);
    const other = await api.ask("GET", `/v1/documents?space_id=${space.id}&cursor=${first.next_cursor}`);
    expect(other.status).toBe(400);
  });
});

describe("who may do what", () => {
  let owner: TestAccount;
  let theirs: Json;
  let document: Json;
  beforeAll(async () => {
    owner = await api.newAccount();
    theirs = await documents.newSpace("theirs", { key: owner.key });
    document = await documents.uploaded({ space_id: theirs.id }, BYTES, { key: owner.key });
  });

  /** Statuses of everything that can be asked about a document. */
  async function tried(key: string): Promise<Record<string, number>> {
    const empty = await documents.created(
      { space_id: theirs.id, file_name: `empty ${Math.random()}` },
      { key: owner.key },
    );
    const create = await documents.create(
      { space_id: theirs.id, file_name: `new ${Math.random()}` },
      { key },
    );
    return {
      list: (await api.ask("GET", `/v1/documents?space_id=${theirs.id}`, { key })).status,
      get: (await documents.get(document.id, { key })).status,
      download: (await documents.download(document.id, { key })).status,
      create: create.status,
      upload: (await documents.put(empty.id, BYTES, { key })).status,
      rename: (await documents.rename(document.id, `named ${Math.random()}`, { key })).status,
    };
  }

  test.each([
    ["ADMIN", [200, 200, 200, 201, 200, 200]],
    ["EDITOR", [200, 200, 200, 201, 200, 200]],
    ["VIEWER", [200, 200, 200, 403, 403, 403]],
  ])("a member that is %s", async (role, statuses) => {
    const { userId, key } = await api.newUser(owner.accountId);
    const path = `/v1/spaces/${theirs.id}/members/${userId}`;
    expect((await api.ask("PUT", path, { key: owner.key, body: { role } })).status).toBe(200);
    expect(Object.values(await tried(key))).toEqual(statuses);
  });

  test.each(["colleague", "stranger"])("a %s who is no member meets nothing", async (who) => {
    const { key } = who === "colleague" ? await api.newUser(owner.accountId) : await api.newAccount();
    expect(new Set(Object.values(await tried(key)))).toEqual(new Set([404]));
  });
});
