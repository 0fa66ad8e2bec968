import { z } from "zod";
import { operationDefiners } from "./define-operation.ts";
import { jsonResponse, type Operation } from "./operation.ts";
import { createCursors, pageOf, pageQuery } from "./pagination.ts";

const ListedOperation = z
  .object({
    key: z.string().describe("Dotted name, also the operationId in the OpenAPI document."),
    method: z.enum(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    path: z.string(),
    summary: z.string(),
    required_scope: z.string().describe("The scope that the API key must have."),
    risk_level: z.enum(["none", "reversible", "irreversible"]),
    effect: z.enum(["read", "write"]),
    execution_mode: z
      .enum(["sync", "async"])
      .describe("With `async`, the work continues after the response."),
    idempotent: z.boolean(),
    lifecycle: z.enum(["active", "deprecated", "retired"]),
    deprecated_at: z.iso.datetime({ precision: 3 }).nullable(),
    sunset_at: z.iso.datetime({ precision: 3 }).nullable(),
  })
  .meta({ id: "Operation", description: "An operation of this API." });

/** `GET /v1/operations`: the list of all operations, this one included. */
export function operationsList(others: readonly Operation[]): Operation {
  const cursors = createCursors(z.int().min(0));
  const self: Operation = operationDefiners("Operations").read({
    key: "operations.list",
    summary: "List operations",
    description: "All operations, each with its required scope, risk level, effect and execution mode.",
    path: "/v1/operations",
    scope: "operations:read",
    query: z.strictObject(pageQuery),
    response: jsonResponse(200, pageOf(ListedOperation)),
    handle: async ({ query }) => {
      const start = cursors.read(query.cursor, "operations") ?? 0;
      const end = start + query.limit;
      const next = end < listed.length ? end : null;
      const page = { items: listed.slice(start, end), next, total: listed.length };
      return { body: cursors.pageBody(page, "operations", (one) => one) };
    },
  });
  const listed = [...others, self].map(describe);
  return self;
}

function describe(operation: Operation): z.output<typeof ListedOperation> {
  const { deprecated, work } = operation;
  return {
    key: operation.key,
    method: operation.method,
    path: operation.path,
    summary: operation.summary,
    required_scope: operation.scope,
    risk_level: operation.risk,
    effect: operation.effect,
    execution_mode: operation.mode,
    idempotent: operation.isIdempotent,
    lifecycle: work.kind === "retired" ? "retired" : deprecated === null ? "active" : "deprecated",
    deprecated_at: deprecated === null ? null : new Date(deprecated.at).toISOString(),
    sunset_at: deprecated?.sunsetAt ? new Date(deprecated.sunsetAt).toISOString() : null,
  };
}
