import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let api: TestApi;
let path: string;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  path = await newPath();
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

async function newPath(): Promise<string> {
  const { body } = await api.ask("POST", "/v1/spaces", { body: { name: "with folders" } });
  return `/v1/spaces/${body.id}/folders`;
}
const make = (name: unknown, parent_id?: unknown, at = path) =>
  api.ask("POST", at, { body: { name, parent_id } });
const list = async (query = "") =>
  (await api.ask("GET", path + query)).body as { items: Json[]; total: number };

test("folders lie in one another, each name once in a place", async () => {
  const { status, body: top } = await make("2026");
  expect(status).toBe(201);
  expect(top).toEqual({
    id: expect.any(String),
    space_id: path.split("/")[3],
    parent_id: null,
    name: "2026",
    created_by: { id: api.account.userId, name: expect.any(String) },
    created_at: expect.any(String),
  });
  const { body: inner } = await make("2026", top.id);
  expect(inner).toMatchObject({ parent_id: top.id, name: "2026" });
  for (const [name, parent] of [["2026"], ["2026", top.id]]) {
    const taken = await make(name, parent);
    expect([taken.status, taken.body.code]).toEqual([409, "folder_name_taken"]);
  }
  expect(await list()).toEqual({ items: [top], next_cursor: null, total: 1 });
  expect(await list(`?parent_id=${top.id}`)).toEqual({ items: [inner], next_cursor: null, total: 1 });
  expect((await list(`?parent_id=${inner.id}`)).items).toEqual([]);
});

test("a folder lies in one of its own space", async () => {
  const { body } = await make("here");
  const other = await newPath();
  expect((await make("there", body.id, other)).status).toBe(404);
  expect((await make("nowhere", randomUUID())).status).toBe(404);
  expect((await api.ask("GET", `${other}?parent_id=${body.id}`)).status).toBe(404);
});

test.each(["", ".", "..", "a/b", "a\\b", "a\u0000", "a\n", " a", "x".repeat(201)])(
  "no folder is called %j",
  async (name) => {
    expect((await make(name)).status).toBe(400);
  },
);

test("of 20 who make the same folder at once one does, and 19 hear of it", async () => {
  const answers = await Promise.all(Array.from({ length: 20 }, () => make("at once")));
  expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
  expect(answers.filter(({ body }) => body.code === "folder_name_taken")).toHaveLength(19);
});
