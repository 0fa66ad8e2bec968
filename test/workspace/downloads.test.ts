// What is read of a document's bytes, in part and whole, and what is said when they cannot be had.
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ask, type Json } from "../support/sealpost-api.ts";
import { BYTES } from "./support/documents.ts";
import { type StillApi, startStillApi } from "./support/moving.ts";

let still: StillApi;
let { database, api, documents, objects } = {} as StillApi;
let space_id: unknown;
let document: Json;
beforeAll(async () => {
  still = await startStillApi();
  ({ database, api, documents, objects } = still);
  space_id = (await documents.newSpace()).id;
  document = await documents.uploaded({ space_id });
});
afterAll(() => still.close());

const LAST = BYTES.length - 1;
const TEXT = BYTES.toString();

describe("a range", () => {
  test.each<[string, number, string | null, string]>([
    ["bytes=0-0", 206, `bytes 0-0/${BYTES.length}`, TEXT.slice(0, 1)],
    [`bytes=${LAST}-`, 206, `bytes ${LAST}-${LAST}/${BYTES.length}`, TEXT.slice(-1)],
    ["bytes=-5", 206, `bytes ${LAST - 4}-${LAST}/${BYTES.length}`, TEXT.slice(-5)],
    ["bytes=-999999999999", 206, `bytes 0-${LAST}/${BYTES.length}`, TEXT],
    [`bytes=3-${"9".repeat(30)}`, 206, `bytes 3-${LAST}/${BYTES.length}`, TEXT.slice(3)],
    ["bytes=0-0,-1", 200, null, TEXT],
    ["bytes=5-1", 200, null, TEXT],
    ["bytes=--5", 200, null, TEXT],
    ["bytes=0x1-2", 200, null, TEXT],
    ["octets=0-1", 200, null, TEXT],
    ["bytes=", 200, null, TEXT],
  ])("%s is %i", async (range, status, contentRange, text) => {
    const answer = await documents.download(document.id, { headers: { range } });
    expect([answer.status, answer.headers.get("content-range")]).toEqual([status, contentRange]);
    expect(answer.bytes.toString()).toBe(text);
    expect(Number(answer.headers.get("content-length"))).toBe(text.length);
  });

  test.each([`bytes=${BYTES.length}-`, "bytes=999999999999-", `bytes=${"9".repeat(30)}-`, "bytes=-0"])(
    "%s is beyond the end",
    async (range) => {
      const { status, body, headers } = await documents.download(document.id, { headers: { range } });
      expect([status, body.code]).toEqual([416, "range_not_satisfiable"]);
      expect(headers.get("content-range")).toBe(`bytes */${BYTES.length}`);
    },
  );

  test("of nothing is beyond the end, and HEAD knows none", async () => {
    const { id } = await documents.uploaded({ space_id, file_name: "empty" }, Buffer.alloc(0));
    expect((await documents.download(id, { headers: { range: "bytes=0-" } })).status).toBe(416);
    const path = `/v1/documents/${document.id}/content`;
    const head = await api.ask("HEAD", path, { headers: { range: "bytes=0-1" } });
    expect([head.status, head.headers.get("content-length")]).toEqual([200, String(BYTES.length)]);
  });

  test("counts if its document is still the same", async () => {
    const part = (ifRange: string) =>
      documents.download(document.id, { headers: { range: "bytes=0-3", "if-range": ifRange } });
    expect((await part(`"${document.id}"`)).status).toBe(206);
    expect((await part('"another"')).status).toBe(200);
    await documents.rename(document.id, "Renamed.txt");
    expect((await part(`"${document.id}"`)).status).toBe(206);
  });
});

test("a document whose object is missing is a fault of ours, told as such, and in the log", async () => {
  const { id, storage_key } = await documents.uploaded({ space_id, file_name: "lost" });
  await objects.remove(String(storage_key));
  for (const headers of [{}, { range: "bytes=0-3" }]) {
    const path = `/v1/documents/${id}/content`;
    const answer = await ask(api.url, "GET", path, { key: api.account.key, headers });
    expect([answer.status, answer.body.code]).toEqual([500, "internal_error"]);
    expect(answer.headers.get("content-disposition")).toBeNull();
    const { request_id } = answer.body;
    const logged = () => api.log.filter((line) => line.request_id === request_id && Number(line.level) >= 50);
    await expect.poll(logged).toMatchObject([{ err: { type: "ObjectNotFoundError" } }]);
  }
  expect((await documents.get(id)).status).toBe(200);
});

test("while the store is away clients are told to come again, and the log why; then all goes on", async () => {
  const { id } = await documents.created({ space_id, file_name: "while away" });
  const folder = join(api.stateDir, "objects");
  await rename(folder, `${folder}-away`);
  // As a disk that is not mounted, where nobody can make a folder.
  await writeFile(folder, "");
  const answers = [
    await documents.download(document.id),
    await documents.download(document.id, { headers: { range: "bytes=0-3" } }),
    await documents.put(id),
  ];
  for (const { status, body, headers } of answers) {
    expect([status, body.code]).toEqual([503, "temporarily_unavailable"]);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
  }
  const told = api.log.filter(({ msg }) => msg === "an area cannot do its work");
  expect(told[0]).toMatchObject({ err: { message: expect.stringContaining("The object store could not") } });
  // What needs no bytes goes on, and counts of nothing half done are right.
  expect((await documents.get(id)).body).toMatchObject({ status: "PENDING_UPLOAD", has_content: false });
  expect((await documents.create({ space_id, file_name: "made while away" })).status).toBe(201);
  expect((await documents.rename(document.id, "renamed while away")).status).toBe(200);

  await rm(folder);
  await rename(`${folder}-away`, folder);
  expect((await documents.put(id)).status).toBe(200);
  expect((await documents.download(id)).bytes).toEqual(BYTES);
  expect((await documents.download(document.id)).bytes).toEqual(BYTES);
  const { rows } = await database.pool.query(
    "select is_reserved from workspace.loose_objects where storage_key like $1",
    [`%${id}%`],
  );
  expect(rows).toEqual([{ is_reserved: false }]);
});
