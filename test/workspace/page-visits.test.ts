import { createHash } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { type PageWorld, pageWorld } from "./page-world.ts";

let database: TestDatabase;
let api: TestApi;
let world: PageWorld;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  world = pageWorld(api);
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const visits = async (link: Json) => {
  const { visit_count, last_visited_at, state } = await world.linkOf(link.id);
  return { visit_count, last_visited_at, state };
};

test("a page is written, published, linked and opened", async () => {
  const { link } = await world.linked({}, "# Results\n\n**3** pages.");
  expect(String(link.url)).toMatch(/^http:\/\/pages\.localhost\/p\/[\w-]{43}$/);
  const opened = await world.open(link);
  expect(opened.status).toBe(200);
  expect(opened.text).toContain("<title>A page</title>");
  expect(opened.text).toContain("<h1>A page</h1>\n<h2>Results</h2>\n<p><strong>3</strong> pages.</p>");
  const { headers } = opened;
  expect(headers).toMatchObject({
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
    "x-content-type-options": "nosniff",
  });
  expect(headers["content-security-policy"]).toMatch(
    /^sandbox; default-src 'none'; style-src 'sha256-[^;]+; base-uri/,
  );
  expect(headers["set-cookie"]).toBeUndefined();
  expect(await visits(link)).toEqual({
    visit_count: 1,
    last_visited_at: expect.any(String),
    state: "active",
  });
});

test("a link's token is kept nowhere, not even in its stored answer", async () => {
  const { link } = await world.linked();
  const token = String(link.url).split("/").at(-1)!;
  const { rows } = await database.pool.query(
    "select to_jsonb(l)::text as row from workspace.page_links as l",
  );
  const stored = await database.pool.query(
    "select to_jsonb(i)::text as row from sealpost.idempotency_keys as i",
  );
  const everything = JSON.stringify([rows, stored.rows, api.log]);
  expect(everything).toContain(createHash("sha256").update(token).digest("hex"));
  expect(everything).not.toContain(token);
  expect(everything).not.toContain(Buffer.from(token).toString("hex"));
});
