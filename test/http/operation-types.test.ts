import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { ClientBase } from "pg";
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { emptyResponse, jsonBody, jsonResponse, rawBody } from "../../src/http/operation.ts";

const { read, staffRead, write, batchedWrite, callOut } = operationDefiners<"box_sealed">("Boxes");

const Box = z.strictObject({ id: z.string(), weight: z.int().nullable() });
const named = {
  key: "boxes.get",
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
      body: jsonBody(Box),
      audit: (request) => {
        expectTypeOf(request.body).toEqualTypeOf<{ id: string; weight: number | null }>();
        return { id: request.body.id };
      },
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
      callsOut: { deadlineMs: 1000 },
      body: rawBody({ documentedAs: Box, bytesMax: 10 }),
      audit: (_, { body }) => {
        expectTypeOf(body).toEqualTypeOf<{ id: string; weight: number | null }>();
        return null;
      },
      response: jsonResponse(202, Box, { Location: "Where the box is." }),
      handle: async (request) => {
        expectTypeOf(request.body).toEqualTypeOf<Buffer>();
        return { body: { id: "1", weight: 1 }, headers: { Location: "/v1/boxes/1" } };
      },
    });
    expect.assertions(0);
  });

  test("that lacks what it owes does not compile", () => {
    const response = jsonResponse(200, Box);
    const handle = async () => ({ body: { id: "1", weight: 1 } });
    const reading = { ...named, scope, response, handle } as const;
    const audit = () => null;
    const writing = { ...named, method: "POST", scope, risk: "reversible", mode: "sync", response } as const;
    const together = { prepare: () => ({ item: 1, name: null }), handleEach: async () => [] };
    const callsOut = { deadlineMs: 1 };

    // What lacks nothing, so that each of the others fails for its own reason.
    read(reading);
    write({ ...writing, handle, audit });
    write({ ...writing, handle, audit: { elsewhere: "in the log line" } });
    batchedWrite({ ...writing, ...together, audit });
    callOut({ ...writing, handle, callsOut, audit });

    const { scope: _, ...unscoped } = reading;
    // @ts-expect-error no scope
    read(unscoped);
    // @ts-expect-error a scope without its action
    read({ ...reading, scope: "boxes" });
    staffRead(reading);
    // @ts-expect-error a read across accounts that wants to know of which
    staffRead({ ...reading, handle: async ({ accountId }) => ({ body: { id: accountId, weight: 1 } }) });
    // @ts-expect-error a write that would do without an Idempotency-Key
    write({ ...writing, handle, audit, idempotency: "none" });
    // @ts-expect-error writes in company that would
    batchedWrite({ ...writing, ...together, audit, idempotency: "none" });
    // @ts-expect-error a call that would
    callOut({ ...writing, handle, callsOut, audit, idempotency: "none" });
    // @ts-expect-error a write that does not say what the audit log says of it
    write({ ...writing, handle });
    // @ts-expect-error writes in company that do not
    batchedWrite({ ...writing, ...together });
    // @ts-expect-error a call that does not
    callOut({ ...writing, handle, callsOut });
    // @ts-expect-error a write that leaves no row and does not say why
    write({ ...writing, handle, audit: false });
    // @ts-expect-error details that are no object
    write({ ...writing, handle, audit: () => "all of it" });
    // @ts-expect-error a write that claims to be harmless
    write({ ...writing, handle, audit, risk: "none" });
    // @ts-expect-error a write behind GET
    write({ ...writing, handle, audit, method: "GET" });
    // @ts-expect-error a read behind POST
    read({ ...reading, method: "POST" });
    // @ts-expect-error a code that no catalogue has
    read({ ...reading, errors: ["box_lost"] });
    // @ts-expect-error an answer that is not of its schema
    read({ ...reading, handle: async () => ({ body: { id: 1, weight: 1 } }) });
    const withHeader = async () => ({ body: { id: "1", weight: 1 }, headers: { A: "1" } });
    // @ts-expect-error a header that is not declared
    read({ ...reading, handle: withHeader });
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
