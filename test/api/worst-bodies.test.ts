// A body is read on the one thread that serves everybody: none may take long, whoever sends it and whatever is in it.
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { BODY_BYTES_IN_TURN_MIN, JSON_BODY_BYTES_MAX } from "../../src/http/limits.ts";
import type { Operation, OperationRequest } from "../../src/http/operation.ts";
import { Problem } from "../../src/http/problems.ts";
import { compileRequestValidator } from "../../src/http/request-validation.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";
import { patience } from "../support/time-limits.ts";

const ID = "11111111-1111-4111-8111-111111111111";
const DEPTH = 505;
/** Of the processor, for 64 KiB; a larger body may take as much longer, and is read in its turn. */
const WITHIN_MS = 10;
/**
 * For a body that is read at once. An account may send 100 in a second by default (see RATE_LIMIT_REQUESTS), and leaves
 * others nine tenths of the thread.
 */
const UNTURNED_MS = 1;
const TRIES_MAX = 20;

const filled = (bytes: number, item: string, between = ",") =>
  Array.from({ length: Math.max(1, Math.floor(bytes / (item.length + between.length))) }, () => item).join(
    between,
  );
const deep = (inner: string) => `${'{"a":'.repeat(DEPTH)}${inner}${"}".repeat(DEPTH)}`;
/** A letter with marks in the order that normalizing has to change. */
const marked = (bytes: number) => `"a${"\u0301".repeat(bytes / 4)}${"\u0323".repeat(bytes / 4)}"`;

/** Values, as JSON, that take up so many bytes. */
const VALUES: Readonly<Record<string, (bytes: number) => string>> = {
  "numbers that are too large, deep down": (bytes) => deep(`[${filled(bytes - 6 * DEPTH, "1e999")}]`),
  "names that stand twice, deep down": (bytes) => deep(`{${filled(bytes - 6 * DEPTH, '"b":1')}}`),
  "objects deep down in which names stand twice": (bytes) =>
    deep(`[${filled(bytes - 6 * DEPTH, '{"b":1,"b":1}')}]`),
  "marks on one letter": marked,
  "numbers in a list": (bytes) => `[${filled(bytes, "1")}]`,
  "lists in a list": (bytes) => `[${filled(bytes, "[]")}]`,
  "objects in a list": (bytes) => `[${filled(bytes, "{}")}]`,
  "members that nobody knows": (bytes) =>
    `{${Array.from({ length: bytes / 10 }, (_, n) => `"${n.toString(36)}":0`).join(",")}}`,
  spaces: (bytes) => `"${" ".repeat(bytes)}"`,
  "members that nobody knows, and one twice": (bytes) =>
    `{${Array.from({ length: bytes / 10 }, (_, n) => `"${n.toString(36)}":0`).join(",")},"0":1}`,
  "what looks like the beginning of an address": (bytes) => `"https://${"a@".repeat(bytes / 2)}"`,
};

function membersOf({ body }: Operation): readonly string[] {
  if (body?.kind !== "json" && body?.kind !== "raw") return [];
  const schema = body.kind === "json" ? body.schema : body.documentedAs;
  const { properties } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return Object.keys(properties ?? {});
}

const operations = declaredOperations().filter(({ body }) => body?.kind === "json" || body?.kind === "raw");

describe.each(operations.map((operation) => [operation.key, operation] as const))("%s", (_key, operation) => {
  const validate = compileRequestValidator(operation);
  const { body: declared, work } = operation;
  const bytesMax = declared === null ? 0 : declared.bytesMax;
  const params = Object.fromEntries(
    Object.keys(operation.params?.shape ?? {}).map((name) => [name, ID] as const),
  );
  const take = (body: string) => {
    const before = process.threadCpuUsage();
    try {
      const valid = validate({ params, query: {}, body: Buffer.from(body) });
      // A raw body is read by the operation itself.
      const asked = { ...valid, accountId: ID, caller: { userId: null } };
      if (work.kind === "batched_write")
        work.prepare(asked as OperationRequest<unknown, unknown, unknown, string>);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
    }
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1_000;
  };
  /**
   * Of the slowest body with that value: alone, or in each member, also where that stands twice. What a body takes is
   * the least of its tries: compiling, collected garbage and neighbours only ever add to it.
   */
  const slowest = (name: string, bytes: number, withinMs: number) => {
    const value = VALUES[name]!(bytes - 64);
    const inMember = (member: string) => {
      const named = `${JSON.stringify(member)}:${value}`;
      return [`{${named}}`, `{${named},${JSON.stringify(member)}:1}`];
    };
    const bodies = [value, ...membersOf(operation).flatMap(inMember)];
    const times = bodies.map((body) => {
      let least = Number.POSITIVE_INFINITY;
      for (let tries = 0; tries < TRIES_MAX && least >= withinMs; tries++)
        least = Math.min(least, take(body));
      return least;
    });
    const ms = Math.max(...times);
    return { ms, begins: bodies[times.indexOf(ms)]!.slice(0, 60) };
  };

  test.each(Object.keys(VALUES))("%s take no time", (name) => {
    const withinMs = WITHIN_MS * Math.max(1, bytesMax / JSON_BODY_BYTES_MAX);
    const { ms, begins } = slowest(name, bytesMax, withinMs);
    expect(ms, begins).toBeLessThan(patience(withinMs));
  });

  test("those too small for a turn take little, however many an account may send", () => {
    for (const name of Object.keys(VALUES)) {
      const { ms, begins } = slowest(name, Math.min(bytesMax, BODY_BYTES_IN_TURN_MIN), UNTURNED_MS);
      expect(ms, begins).toBeLessThan(patience(UNTURNED_MS));
    }
  });
});
