import { describe, expect, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { jsonResponse, type Operation, rawBody } from "../../src/http/operation.ts";
import { createOperationRegistry } from "../../src/http/operation-registry.ts";
import { standardProblems } from "../../src/http/problem-catalogue.ts";
import { createToyApi } from "../support/api-toy-server.ts";
import { operationsTable } from "../support/operations-table.ts";

const { read, write } = operationDefiners<"lost">("Boxes");
const base = {
  key: "boxes.get",
  summary: "Read a box",
  description: "Reads.",
  path: "/v1/boxes/{id}",
  scope: "boxes:read",
  params: z.strictObject({ id: z.string() }),
  response: jsonResponse(200, z.object({})),
  handle: async () => ({ body: {} }),
} as const;

describe("a registry", () => {
  const register =
    (...operations: Operation[]) =>
    () =>
      createOperationRegistry(operations, standardProblems);

  test("takes operations that fit together", () => {
    const other = read({ ...base, key: "boxes.lid", path: "/v1/boxes/{id}/lid" });
    expect(register(read(base), other)).not.toThrow();
  });

  test("is told that a write needs a key and cannot be undone, unless it says otherwise", () => {
    const writing = { ...base, method: "PUT", audit: () => ({}) } as const;
    expect(write(writing)).toMatchObject({ risk: "irreversible", mode: "sync", isIdempotent: false });
    expect(write({ ...writing, risk: "reversible", mode: "async" })).toMatchObject({
      ...{ risk: "reversible", mode: "async", isIdempotent: false },
    });
    expect(read(base)).toMatchObject({ method: "GET", risk: "none", isIdempotent: true });
  });

  test.each<[string, () => unknown]>([
    ["both have key boxes.get", register(read(base), read({ ...base, path: "/v1/crates/{id}" }))],
    [
      "both have GET /v1/boxes/{}",
      register(
        read(base),
        read({
          ...base,
          key: "boxes.see",
          path: "/v1/boxes/{name}",
          params: z.strictObject({ name: z.string() }),
        }),
      ),
    ],
    ["not dotted snake_case", register(read({ ...base, key: "boxes.Get" }))],
    ["the path has {id}, the schema {}", register(read({ ...base, params: z.strictObject({}) }))],
    ["is not of words and {params}", register(read({ ...base, path: "/v1/boxes/{id}/" }))],
    ["no catalogue has the code lost", register(read({ ...base, errors: ["lost"] }))],
    ["a read answers 200", register(read({ ...base, response: jsonResponse(202, z.object({})) }))],
    ["no date", register(read({ ...base, deprecated: { at: "2026-13-13", sunsetAt: null } }))],
    [
      "before its deprecation",
      register(read({ ...base, deprecated: { at: "2026-02-01", sunsetAt: "2026-01-01" } })),
    ],
    [
      "its body has no room",
      register(
        write({
          ...base,
          method: "PUT",
          risk: "reversible",
          mode: "sync",
          audit: () => ({}),
          body: rawBody({ documentedAs: z.object({}), bytesMax: 0 }),
        }),
      ),
    ],
  ])("refuses at once: %s", (message, registering) => {
    expect(registering).toThrow(message);
  });
});

describe("the list of operations", () => {
  test("is an operation itself, walked like any list", async () => {
    const api = await createToyApi();
    const get = (query: string) =>
      api.app.inject({ url: `/v1/operations${query}`, headers: { authorization: `Bearer ${api.key}` } });
    const all = (await get("")).json();
    expect(all).toMatchObject({ next_cursor: null, total: 14 });
    expect(all.items).toContainEqual({
      key: "operations.list",
      path: "/v1/operations",
      method: "GET",
      summary: "List operations",
      required_scope: "operations:read",
      risk_level: "none",
      effect: "read",
      execution_mode: "sync",
      idempotent: true,
      lifecycle: "active",
      deprecated_at: null,
      sunset_at: null,
    });
    expect(all.items).toContainEqual(
      expect.objectContaining({
        ...{ key: "locks.pick", lifecycle: "retired", risk_level: "irreversible", idempotent: false },
        ...{ deprecated_at: "2020-01-01T00:00:00.000Z", sunset_at: "2021-01-01T00:00:00.000Z" },
      }),
    );
    const first = (await get("?limit=7")).json();
    const second = (await get(`?limit=7&cursor=${first.next_cursor}`)).json();
    expect([...first.items, ...second.items]).toEqual(all.items);
    expect(second.next_cursor).toBeNull();
    await api.app.close();
  });

  test("is a table for docs/api.md", () => {
    expect(operationsTable([read(base)])).toBe(
      `| Operation | Method and path | Scope | Risk, effect, mode | What it does |
|---|---|---|---|---|
| \`boxes.get\` | \`GET /v1/boxes/{id}\` | \`boxes:read\` | none, read, sync | Read a box |
`,
    );
  });
});
