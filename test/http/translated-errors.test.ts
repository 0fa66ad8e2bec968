// Where the kernel has to know what an error of the database means before it answers with it.
import { buffer } from "node:stream/consumers";
import { afterEach, expect, test } from "vitest";
import { z } from "zod";
import { AccountNews } from "../../src/http/account-news.ts";
import { operationDefiners } from "../../src/http/define-operation.ts";
import type { Kernel } from "../../src/http/kernel.ts";
import { jsonResponse, type Operation, streamBody } from "../../src/http/operation.ts";
import { Problem, TemporarilyUnavailable } from "../../src/http/problems.ts";
import { expectProblem } from "../support/api-expect.ts";
import { ADA, createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";
import { fileHeaders } from "../support/file-headers.ts";

class Away extends Error {}
class Full extends Error {}
const translateError = (error: unknown) => {
  if (error instanceof Away) return new TemporarilyUnavailable("the database is away", { cause: error });
  return error instanceof Full ? new Problem("storage_full", { cause: error }) : error;
};

const { read, batchedWrite, upload } = operationDefiners("Boxes");
const named = {
  key: "boxes.count",
  summary: "Count",
  description: "Counts, for a test.",
  path: "/v1/boxes/count",
} as const;
const Counted = jsonResponse(200, z.object({ count: z.int() }));

let api: ToyApi;
let kernel: Kernel;
afterEach(() => api.app.close());

async function start(operation: Operation, overrides: ToyOverrides = {}): Promise<void> {
  const addRoutes = async (_: unknown, given: Kernel) => {
    kernel = given;
  };
  api = await createToyApi({ translateError, addRoutes, more: [operation], ...overrides });
}

const scopes = new Set(["boxes:read", "boxes:write"]);
const caller = { keyId: "key-1", isStaff: false, userId: null, scopes };
const ask = (idempotencyKey: string | null) =>
  kernel.ask(
    named.key,
    { caller, accountId: ADA },
    {
      ...{ params: {}, query: {}, body: undefined, requestId: "r", traceparent: null },
      ...{ idempotencyKey, waitMs: 4_000 },
    },
  );

test("an outage ends the waiting of a read that is held, with what it has found", async () => {
  let looks = 0;
  const news = new AccountNews(10, () => undefined);
  const operation = read({
    ...named,
    scope: "boxes:read",
    response: Counted,
    waits: { waitMs: () => 60_000, isEmpty: () => true },
    handle: async () => {
      looks++;
      if (looks > 1) throw new Away();
      news.tell([ADA]);
      return { body: { count: looks } };
    },
  });
  await start(operation, { news });
  const { response } = await ask(null);
  expect(JSON.parse(String(response.body))).toEqual({ count: 1 });
  expect(looks).toBe(2);
});

test("an outage is not taken for what one write of a batch has done", async () => {
  const sizes: number[] = [];
  const operation = batchedWrite({
    ...named,
    scope: "boxes:write",
    method: "POST",
    audit: { elsewhere: "Nothing is told of it." },
    response: Counted,
    prepare: () => ({ item: null, name: null }),
    handleEach: async (writes) => {
      sizes.push(writes.length);
      throw new Away();
    },
  });
  await start(operation);
  const asked = await Promise.allSettled([ask("k"), ask("l")]);
  const rejected = { status: "rejected", reason: expect.any(TemporarilyUnavailable) };
  expect(asked).toEqual([rejected, rejected]);
  expect(sizes).toEqual([2]);
});

test("an upload that the database refuses lets go of what it has received", async () => {
  const refused: Buffer[] = [];
  const bytes = Buffer.from("What is in the box?");
  const operation = upload({
    ...named,
    scope: "boxes:write",
    method: "PUT",
    audit: { elsewhere: "Nothing is told of it." },
    body: streamBody({ bytesMax: 1_000 }),
    response: Counted,
    receive: async ({ body }) => await buffer(body.open()),
    recheck: async () => undefined,
    handle: async () => {
      throw new Full();
    },
    refused: async (_, received) => void refused.push(received),
  });
  await start(operation);
  const headers = { authorization: `Bearer ${api.key}`, "idempotency-key": "k", ...fileHeaders(bytes) };
  const response = await fetch(`${await api.listen()}${named.path}`, { method: "PUT", headers, body: bytes });
  await expectProblem(response, 409, "storage_full", []);
  expect(refused).toEqual([bytes]);
});
