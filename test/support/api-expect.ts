import { expect } from "vitest";

/** Every error has exactly these members, and the headers that every response has. */
export async function expectProblem(
  response: Response,
  status: number,
  code: string,
  errors?: readonly { readonly path: string; readonly message: string }[],
): Promise<void> {
  const problem = (await response.json()) as Record<string, unknown>;
  expect({ status: response.status, ...problem }).toEqual({
    type: `https://docs.boxes.test/errors/${code}`,
    title: expect.stringMatching(/^[A-Z]/),
    status,
    code,
    request_id: response.headers.get("x-request-id"),
    ...(errors === undefined ? {} : { errors }),
  });
  expect(response.headers.get("content-type")).toBe("application/problem+json");
  expect(response.headers.get("x-request-id")).toMatch(/^.{1,128}$/);
  expect(response.headers.get("ratelimit")).toMatch(/^"(default|address)";r=\d+;t=\d+$/);
  expect(response.headers.get("ratelimit-policy")).toMatch(/^"(default|address)";q=\d+;w=60$/);
}
