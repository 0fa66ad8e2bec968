import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { jsonResponse } from "../../src/http/operation.ts";
import { expectProblem } from "../support/api-expect.ts";
import { createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(overrides: ToyOverrides = {}): Promise<{ authorization: string }> {
  api = await createToyApi(overrides);
  return { authorization: `Bearer ${api.key}` };
}

describe("parameters", () => {
  test.each([
    ["?limit=0", [{ path: "query.limit", message: "Must be at least 1." }]],
    ["?limit=101", [{ path: "query.limit", message: "Must be at most 100." }]],
    ["?limit=", [{ path: "query.limit", message: "Must be a number." }]],
    ["?limit=0x10", [{ path: "query.limit", message: "Must be a number." }]],
    ["?limit=9007199254740993", [{ path: "query.limit", message: "Must be at most 100." }]],
    ["?limit=-9007199254740993", [{ path: "query.limit", message: "Must be at least 1." }]],
    [`?limit=1${"0".repeat(30)}`, [{ path: "query.limit", message: "Must be at most 100." }]],
    ["?limit=1&limit=2", [{ path: "query.limit", message: "Given more than once." }]],
    ["?cursor=a&cursor=a", [{ path: "query.cursor", message: "Given more than once." }]],
    ["?is_weighed=true&is_weighed=true", [{ path: "query.is_weighed", message: "Given more than once." }]],
    [
      "?color=red&color=red&limit=0",
      [
        { path: "query.limit", message: "Must be at least 1." },
        { path: "query.color", message: "Given more than once." },
      ],
    ],
    [`?${"id=a&".repeat(6)}`, [{ path: "query.id", message: "Must have at most 5 items." }]],
    ["?colour=red", [{ path: "query.colour", message: "Unknown field." }]],
    ["?__proto__=red", [{ path: "query.__proto__", message: "Unknown field." }]],
    ["?is_weighed=yes", [{ path: "query.is_weighed", message: "Must be true or false." }]],
  ])("%s are refused", async (query, errors) => {
    const auth = await start();
    const response = await fetch(`${await api.listen()}/v1/boxes${query}`, { headers: auth });
    await expectProblem(response, 400, "invalid_request", errors);
  });

  test.each([
    "?limit=1",
    "?is_weighed=false&heavier_than=-1.5",
    "?id=box-1",
    "?id=box-1&id=box-2",
    "?color=red",
  ])("%s are read as what the schema says", async (query) => {
    const auth = await start();
    expect((await fetch(`${await api.listen()}/v1/boxes${query}`, { headers: auth })).status).toBe(200);
  });

  test("are refused even where a schema forgot to", async () => {
    const { read } = operationDefiners("Boxes");
    const lax = read({
      key: "boxes.lax",
      summary: "Be lax",
      description: "Is lax.",
      path: "/v1/lax",
      scope: "boxes:read",
      query: z.object({ a: z.string().optional() }),
      response: jsonResponse(200, z.object({})),
      handle: async () => ({ body: {} }),
    });
    const auth = await start({ more: [lax] });
    const url = `${await api.listen()}/v1/lax`;
    expect((await fetch(`${url}?a=1`, { headers: auth })).status).toBe(200);
    expect((await fetch(`${url}?b=1`, { headers: auth })).status).toBe(400);
  });

  test("of an operation that takes none are refused", async () => {
    const auth = await start();
    const response = await fetch(`${await api.listen()}/v1/boxes/box-1?a=1`, { headers: auth });
    await expectProblem(response, 400, "invalid_request", [{ path: "query.a", message: "Unknown field." }]);
  });

  test("in the path are checked, decoded", async () => {
    const auth = await start();
    const response = await fetch(`${await api.listen()}/v1/boxes/a%2Fb`, { headers: auth });
    await expectProblem(response, 400, "invalid_request", [
      { path: "path.box_id", message: "Has characters or a length that are not allowed." },
    ]);
  });
});
