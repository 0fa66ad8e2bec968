import { afterEach, describe, expect, test } from "vitest";
import { expectProblem } from "../support/api-expect.ts";
import { createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(overrides: ToyOverrides = {}): Promise<{ authorization: string }> {
  api = await createToyApi(overrides);
  return { authorization: `Bearer ${api.key}` };
}

describe("an address", () => {
  test("that leads nowhere is 404, with a key and without", async () => {
    const auth = await start();
    const url = await api.listen();
    await expectProblem(await fetch(`${url}/v1/nothing`), 404, "not_found");
    await expectProblem(await fetch(`${url}/v1/nothing`, { headers: auth }), 404, "not_found");
    await expectProblem(await fetch(`${url}/v1/boxes/`, { headers: auth }), 404, "not_found");
    await expectProblem(await fetch(`${url}/v1/nothing`, { method: "POST", body: "{" }), 404, "not_found");
    const long = await fetch(`${url}/v1/boxes/${"x".repeat(3000)}`, { headers: auth });
    await expectProblem(long, 404, "not_found");
    expect(api.answered.map(({ operationKey }) => operationKey)).toContain("none");
  });

  test.each([
    ["/v1/boxes", "PUT", "GET, HEAD, POST"],
    ["/v1/boxes", "OPTIONS", "GET, HEAD, POST"],
    ["/v1/boxes?x=1", "DELETE", "GET, HEAD, POST"],
    ["/v1/boxes/box-1", "PATCH", "DELETE, GET, HEAD"],
    // The router prefers the literal, and the pattern of another operation matches too.
    ["/v1/boxes/weigh", "PUT", "DELETE, GET, HEAD, POST"],
    ["/healthz", "POST", "GET, HEAD"],
    ["/errors/not_found", "DELETE", "GET, HEAD"],
  ])("%s answers 405 to %s and names %s", async (path, method, allow) => {
    const auth = await start();
    const response = await fetch((await api.listen()) + path, { method, headers: auth });
    expect(response.headers.get("allow")).toBe(allow);
    await expectProblem(response, 405, "method_not_allowed");
  });

  test.each(["/v1/boxes/%", "/v1/boxes/%zz", "/%c0%af", "/v1/boxes/%ff"])(
    "%s cannot be decoded",
    async (path) => {
      await start();
      const response = await fetch((await api.listen()) + path);
      await expectProblem(response, 400, "invalid_request", [
        { path: "url", message: "The URL cannot be decoded: a % needs two hexadecimal digits after it." },
      ]);
      expect(response.headers.get("ratelimit")).toBe('"address";r=59;t=60');
      expect(api.answered).toMatchObject([
        { operationKey: "none", status: 400, problemCode: "invalid_request" },
      ]);
    },
  );
});
