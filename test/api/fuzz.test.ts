import { fc } from "@fast-check/vitest";
import { afterEach, describe, expect, inject, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/api/define-operation.ts";
import { jsonAnswer } from "../../src/api/shapes.ts";
import type { OpenApiDocument } from "../support/api-answer-check.ts";
import { countOf, type FuzzOptions, fuzzApi } from "../support/api-fuzz.ts";
import { ADA, createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";
import type { ToyTx } from "../support/api-toy-stores.ts";
import { patience } from "../support/time-limits.ts";

const RUNS = inject("fuzzRuns");
const SEED = 20260101;
/** Of each operation's requests so many succeed, and as many are refused. */
const OF_EACH_MIN = RUNS / 15;

let api: ToyApi;
afterEach(() => api.app.close());

const unlimited = {
  key: { name: "default", requestsMax: 1_000_000, windowSeconds: 60 },
  address: { name: "address", requestsMax: 1_000_000, windowSeconds: 60 },
};

async function start(overrides: ToyOverrides = {}): Promise<FuzzOptions> {
  api = await createToyApi({ policies: unlimited, ...overrides });
  const baseUrl = await api.listen();
  for (let number = 0; number < 200; number++) {
    const box = {
      id: `seed-${number}`,
      color: "red",
      weight: number,
      made_at: "2026-01-02T03:04:05.678Z",
    } as const;
    api.boxes.rows.set(box.id, { ...box, accountId: ADA });
    api.boxes.texts.set(`${ADA}/seed-${number}`, Buffer.from('{"id":"1"}'));
  }
  const seeded = fc.nat(199).map((number) => `seed-${number}`);
  return {
    document: (await (await fetch(`${baseUrl}/v1/openapi.json`)).json()) as OpenApiDocument,
    baseUrl,
    headers: { authorization: `Bearer ${api.key}` },
    runsPerOperation: RUNS,
    seed: SEED,
    known: {
      "boxes.get": { params: { box_id: seeded } },
      "boxes.remove": { params: { box_id: seeded } },
      "boxes.text.get": { params: { box_id: seeded } },
    },
  };
}

describe(`requests made from the document, ${RUNS} for each operation, seed ${SEED},`, () => {
  test("get no 5xx and nothing outside the document, right and wrong ones alike", {
    timeout: patience(120_000),
  }, async () => {
    const report = await fuzzApi(await start());
    expect(api.faults).toEqual([]);
    expect(report.size).toBe(12);
    for (const key of report.keys()) {
      if (key !== "locks.pick")
        expect(countOf(report, key, 200), `${key} 2xx`).toBeGreaterThanOrEqual(OF_EACH_MIN);
      expect(countOf(report, key, 400), `${key} 4xx`).toBeGreaterThanOrEqual(OF_EACH_MIN);
    }
  });

  const { read } = operationDefiners<ToyTx>();
  const wrong = {
    key: "boxes.wrong",
    tag: "Boxes",
    summary: "Go wrong",
    description: "Goes wrong.",
    method: "GET",
    path: "/v1/wrong",
    scope: "boxes:read",
    query: z.strictObject({ n: z.int().min(0).default(0) }),
    answer: jsonAnswer(200, z.object({ n: z.int().max(500_000) })),
  } as const;

  test("show an operation that fails for some of them", async () => {
    const fails = read({
      ...wrong,
      handle: async ({ query }) => {
        if (query.n > 100_000) throw new Error("too much");
        return { body: { n: query.n } };
      },
    });
    await expect(fuzzApi(await start({ more: [fails] }))).rejects.toThrow("boxes.wrong (GET /v1/wrong)");
  });

  test("show an operation that answers what it does not declare", async () => {
    const strays = read({ ...wrong, handle: async ({ query }) => ({ body: { n: query.n } }) });
    await expect(fuzzApi(await start({ more: [strays], isChecking: false }))).rejects.toMatchObject({
      message: "boxes.wrong (GET /v1/wrong)",
      cause: { cause: { message: expect.stringContaining("the body is not of its schema") } },
    });
  });
});
