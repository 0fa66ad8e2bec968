import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { ClientBase } from "pg";
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/api/define-operation.ts";
import { emptyResponse, jsonBody, jsonResponse, rawBody } from "../../src/api/operation-io.ts";

const { read, write, callOut } = operationDefiners<"box_sealed">();

const Box = z.strictObject({ id: z.string(), weight: z.int().nullable() });
const named = {
  key: "boxes.get",
  tag: "Boxes",
  summary: "Read a box",
  description: "Reads.",
  path: "/v1/boxes/{id}",
} as const;
const params = z.strictObject({ id: z.string() });
const scope = "boxes:read";

describe("a declaration", () => {
  test("gives its handler what its schemas say", () => {
    read({
      ...named,
      method: "GET",
      scope,
      params,
      query: z.strictObject({ depth: z.int().default(1) }),
      response: jsonResponse(200, Box),
      errors: ["not_found"],
      handle: async (request) => {
        expectTypeOf(request.params).toEqualTypeOf<{ id: string }>();
        expectTypeOf(request.query).toEqualTypeOf<{ depth: number }>();
        expectTypeOf(request.body).toEqualTypeOf<undefined>();
        // @ts-expect-error a code that is not declared
        request.problem("box_sealed");
        request.problem("not_found");
        return { body: { id: request.params.id, weight: null } };
      },
    });
    write({
      ...named,
      method: "PUT",
      scope,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      body: jsonBody(Box),
      response: emptyResponse(),
      handle: async (request, tx) => {
        expectTypeOf(tx).toEqualTypeOf<ClientBase>();
        expectTypeOf(request.body).toEqualTypeOf<{ id: string; weight: number | null }>();
      },
    });
    callOut({
      ...named,
      method: "POST",
      scope,
      risk: "reversible",
      mode: "sync",
      idempotency: "key_required",
      callsOut: { deadlineMs: 1000 },
      body: rawBody({ documentedAs: Box, bytesMax: 10 }),
      response: jsonResponse(202, Box, { Location: "Where the box is." }),
      handle: async (request) => {
        expectTypeOf(request.body).toEqualTypeOf<Buffer>();
        return { body: { id: "1", weight: 1 }, headers: { Location: "/v1/boxes/1" } };
      },
    });
    expect.assertions(0);
  });

  test("that lacks what it owes does not compile", () => {
    const answer = jsonResponse(200, Box);
    const handle = async () => ({ body: { id: "1", weight: 1 } });
    const writing = { ...named, answer, handle, scope, risk: "reversible", mode: "sync" } as const;

    // @ts-expect-error no scope
    read({ ...named, method: "GET", answer, handle });
    // @ts-expect-error a scope without its action
    read({ ...named, method: "GET", answer, handle, scope: "boxes" });
    // @ts-expect-error a write without the idempotency rule
    write({ ...writing, method: "POST" });
    // @ts-expect-error a call without the idempotency rule
    callOut({ ...writing, method: "POST", callsOut: { deadlineMs: 1 } });
    // @ts-expect-error a write that claims to be harmless
    write({ ...writing, method: "POST", idempotency: "key_required", risk: "none" });
    // @ts-expect-error a write behind GET
    write({ ...writing, method: "GET", idempotency: "key_required" });
    // @ts-expect-error a read behind POST
    read({ ...named, method: "POST", answer, handle, scope });
    // @ts-expect-error a code that no catalogue has
    read({ ...named, method: "GET", answer, handle, scope, errors: ["box_lost"] });
    // @ts-expect-error an answer that is not of its schema
    read({ ...named, method: "GET", answer, scope, handle: async () => ({ body: { id: 1, weight: 1 } }) });
    const withHeader = async () => ({ body: { id: "1", weight: 1 }, headers: { A: "1" } });
    // @ts-expect-error a header that is not declared
    read({ ...named, method: "GET", answer, scope, handle: withHeader });
    expect.assertions(0);
  });

  // Vitest strips types unread; only the compiler makes the expectations above true.
  test("is judged by the compiler", async () => {
    const root = fileURLToPath(new URL("../..", import.meta.url));
    const file = fileURLToPath(import.meta.url);
    const flags =
      "--ignoreConfig --noEmit --strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess --skipLibCheck " +
      "--target es2024 --module nodenext --types node --erasableSyntaxOnly --rewriteRelativeImportExtensions";
    const run = promisify(execFile)("node_modules/.bin/tsc", [...flags.split(" "), file], { cwd: root });
    await expect(run).resolves.toMatchObject({ stdout: "" });
  });
});
