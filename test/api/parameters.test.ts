import { afterEach, describe, expect, test } from "vitest";
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
    ["?limit=0", [{ path: "query.limit", message: "Too small: expected number to be >=1" }]],
    ["?limit=101", [{ path: "query.limit", message: "Too big: expected number to be <=100" }]],
    ["?limit=", [{ path: "query.limit", message: "Invalid input: expected number, received string" }]],
    ["?limit=0x10", [{ path: "query.limit", message: "Invalid input: expected number, received string" }]],
    [
      "?limit=1&limit=2",
      [{ path: "query.limit", message: "Invalid input: expected number, received array" }],
    ],
    ["?colour=red", [{ path: "query.colour", message: "Not known here; check the spelling." }]],
    ["?__proto__=red", [{ path: "query.__proto__", message: "Not known here; check the spelling." }]],
    [
      "?is_weighed=yes",
      [{ path: "query.is_weighed", message: "Invalid input: expected boolean, received string" }],
    ],
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

  test("of an operation that takes none are refused", async () => {
    const auth = await start();
    const response = await fetch(`${await api.listen()}/v1/boxes/box-1?a=1`, { headers: auth });
    await expectProblem(response, 400, "invalid_request", [{ path: "query.a", message: "Not known here." }]);
  });

  test("in the path are checked, decoded", async () => {
    const auth = await start();
    const response = await fetch(`${await api.listen()}/v1/boxes/a%2Fb`, { headers: auth });
    await expectProblem(response, 400, "invalid_request", [
      { path: "path.box_id", message: "Invalid string: must match pattern /^[a-z0-9-]{1,40}$/" },
    ]);
  });
});
