import { Readable } from "node:stream";
import { fc } from "@fast-check/vitest";
import { afterEach, describe, expect, inject, test } from "vitest";
import { z } from "zod";
import type { ByteRange } from "../../src/http/bytes.ts";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { jsonResponse, type Operation } from "../../src/http/operation.ts";
import type { OpenApiDocument } from "../support/api-answer-check.ts";
import { type FuzzOptions, fuzzApi } from "../support/api-fuzz.ts";
import { ADA, createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";

const RUNS = inject("fuzzRuns");
const SEED = 20260101;

let api: ToyApi;
afterEach(() => api.app.close());

const unlimited = {
  key: { name: "default", requestsMax: 1_000_000, windowSeconds: 60 },
  address: { name: "address", requestsMax: 1_000_000, windowSeconds: 60 },
};

/** Requests of one operation alone, made from its document. */
async function start(operation: Operation, overrides: ToyOverrides = {}): Promise<FuzzOptions> {
  api = await createToyApi({ policies: unlimited, more: [operation], ...overrides });
  const baseUrl = `${await api.listen()}/v1`;
  const document = (await (await fetch(`${baseUrl}/openapi.json`)).json()) as OpenApiDocument;
  const path = operation.path.replace("/v1", "");
  return {
    document: { ...document, paths: { [path]: document.paths[path] ?? {} } },
    baseUrl,
    headers: { authorization: `Bearer ${api.key}` },
    runsPerOperation: RUNS,
    seed: SEED,
  };
}

describe(`requests made from the document, ${RUNS} for each operation, seed ${SEED},`, () => {
  const { read } = operationDefiners("Boxes");
  const wrong = {
    key: "boxes.wrong",
    summary: "Go wrong",
    description: "Goes wrong.",
    path: "/v1/wrong",
    scope: "boxes:read",
    query: z.strictObject({ n: z.int().min(0).default(0) }),
    response: jsonResponse(200, z.object({ n: z.int().max(500_000) })),
  } as const;

  test("try files, too, which are taken and refused, given whole and in part", async () => {
    api = await createToyApi({ policies: unlimited });
    const baseUrl = `${await api.listen()}/v1`;
    const document = (await (await fetch(`${baseUrl}/openapi.json`)).json()) as OpenApiDocument;
    const path = "/boxes/{box_id}/file";
    const id = "box-1";
    const made_at = "2026-01-02T03:04:05.678Z";
    api.boxes.rows.set(id, { id, color: "red", weight: null, made_at, accountId: ADA });
    const params = { box_id: fc.constant(id) };
    const bytes = 150;
    const open = async ({ first, last }: ByteRange) => Readable.from([Buffer.alloc(last - first + 1)]);
    const file = { bytes, mediaType: "text/plain", etag: "v1", fileName: "a", open };
    const putFile = async () => void api.boxes.files.set(`${ADA}/${id}`, file);
    const report = await fuzzApi({
      document: { ...document, paths: { [path]: document.paths[path]! } },
      baseUrl,
      headers: { authorization: `Bearer ${api.key}` },
      runsPerOperation: 3 * RUNS,
      seed: SEED,
      known: { "boxes.file.set": { params }, "boxes.file.get": { params, before: putFile } },
    });
    expect(api.faults).toEqual([]);
    const statuses = (key: string) => [...report.get(key)!.keys()];
    expect(statuses("boxes.file.set")).toEqual(expect.arrayContaining([200, 400, 401, 404, 415]));
    expect(statuses("boxes.file.get")).toEqual(expect.arrayContaining([200, 206, 416, 401, 404]));
  });

  test("show an operation that fails for some of them", async () => {
    const fails = read({
      ...wrong,
      handle: async ({ query }) => {
        if (query.n > 100_000) throw new Error("too much");
        return { body: { n: query.n } };
      },
    });
    await expect(fuzzApi(await start(fails))).rejects.toThrow("boxes.wrong (GET /wrong)");
  });

  test("show an operation that answers what it does not declare", async () => {
    const strays = read({ ...wrong, handle: async ({ query }) => ({ body: { n: query.n } }) });
    await expect(fuzzApi(await start(strays, { check: undefined }))).rejects.toMatchObject({
      message: "boxes.wrong (GET /wrong)",
      cause: { cause: { message: expect.stringContaining("the body is not of its schema") } },
    });
  });
});
