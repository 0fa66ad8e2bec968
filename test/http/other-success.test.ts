import { afterEach, expect, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { eitherResponse, jsonBody, jsonResponse } from "../../src/http/operation.ts";
import { createToyApi, type ToyApi } from "../support/api-toy-server.ts";

const stacking = operationDefiners("Boxes").write({
  key: "boxes.stack",
  summary: "Stack the boxes",
  description: "Stack the boxes, or say how high they would be.",
  method: "POST",
  path: "/v1/boxes/stack",
  scope: "boxes:write",
  risk: "reversible",
  mode: "async",
  audit: () => null,
  body: jsonBody(z.strictObject({ only_say: z.boolean(), as: z.unknown().optional() })),
  response: eitherResponse(jsonResponse(202, z.object({ stack: z.string() })), {
    status: 200,
    schema: z.object({ height: z.int() }),
    description: "Only said.",
  }),
  handle: async ({ body }) =>
    body.only_say ? { other: { height: body.as as number } } : { body: { stack: "s1" } },
});

let api: ToyApi;
afterEach(() => api.app.close());

async function stack(body: object, idempotencyKey: string): Promise<[number, unknown, string | null]> {
  const headers = { authorization: `Bearer ${api.key}`, "idempotency-key": idempotencyKey };
  const response = await api.app.inject({ method: "POST", url: "/v1/boxes/stack", headers, body });
  return [response.statusCode, response.json(), (response.headers["idempotent-replayed"] as string) ?? null];
}

test("an operation ends with either of its successes, each under its own status, and repeats it", async () => {
  api = await createToyApi({ more: [stacking] });
  expect(await stack({ only_say: false }, "k1")).toEqual([202, { stack: "s1" }, null]);
  expect(await stack({ only_say: true, as: 3 }, "k2")).toEqual([200, { height: 3 }, null]);
  expect(await stack({ only_say: true, as: 3 }, "k2")).toEqual([200, { height: 3 }, "true"]);
  const document = (await api.app.inject("/v1/openapi.json")).json();
  const { responses } = document.paths["/boxes/stack"].post;
  expect(Object.keys(responses).slice(0, 2)).toEqual(["200", "202"]);
  expect(responses[200]).toMatchObject({ description: "Only said." });
});

test("the other success is checked against its own schema", async () => {
  api = await createToyApi({ more: [stacking] });
  expect((await stack({ only_say: true, as: "high" }, "k3"))[0]).toBe(500);
  expect(api.faults).toHaveLength(1);
});
