import { z } from "zod";
import { operationDefiners } from "../../src/api/define-operation.ts";
import type { Operation } from "../../src/api/operation.ts";
import { eitherAnswer, jsonAnswer, jsonBody } from "../../src/api/operation-io.ts";
import type { ToyTx } from "./api-toy-stores.ts";

/** Operations with a secret, with two successes, deprecated, retired. */
export function createLockOperations(): readonly Operation<ToyTx>[] {
  const { read, write, retired } = operationDefiners<ToyTx>();
  return [
    write({
      key: "locks.oil",
      tag: "Locks",
      summary: "Oil the locks",
      description: "Oils all locks, or says how many there are to oil.",
      method: "POST",
      path: "/v1/locks/oil",
      scope: "locks:write",
      risk: "reversible",
      mode: "async",
      idempotency: "key_required",
      body: jsonBody(z.strictObject({ dry_run: z.boolean().default(false) })),
      answer: eitherAnswer(jsonAnswer(202, z.object({ started: z.boolean() })), {
        status: 200,
        schema: z.object({ locks: z.int() }),
        description: "With `dry_run`: counted, nothing done.",
      }),
      handle: async ({ body }) => (body.dry_run ? { other: { locks: 2 } } : { body: { started: true } }),
    }),
    write({
      key: "locks.combination.rotate",
      tag: "Locks",
      summary: "Change the combination",
      description: "Change the combination, for a test.",
      method: "POST",
      path: "/v1/locks/combination/rotate",
      scope: "locks:write",
      risk: "irreversible",
      mode: "sync",
      idempotency: "key_required",
      holdsSecret: true,
      answer: jsonAnswer(200, z.object({ combination: z.string() })),
      handle: async () => ({ body: { combination: "1-2-3" } }),
    }),
    read({
      key: "locks.old_list",
      tag: "Locks",
      summary: "List the locks as before",
      description: "List the locks as before, for a test.",
      method: "GET",
      path: "/v1/locks",
      scope: "locks:read",
      deprecated: { at: "2023-07-01T00:00:00Z", sunsetAt: "2030-06-30T23:59:59Z" },
      answer: jsonAnswer(200, z.object({ locks: z.array(z.string()) })),
      handle: async () => ({ body: { locks: ["front", "back"] } }),
    }),
    retired({
      key: "locks.pick",
      tag: "Locks",
      summary: "Pick a lock",
      description: "Pick a lock, for a test.",
      method: "POST",
      path: "/v1/locks/{lock_id}/pick",
      scope: "locks:write",
      risk: "irreversible",
      mode: "sync",
      deprecated: { at: "2020-01-01", sunsetAt: "2021-01-01" },
    }),
  ];
}
