// A body is read on the one thread that serves everybody: none may take long, whoever sends it and whatever is in it.
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { JSON_BODY_BYTES_MAX } from "../../src/http/limits.ts";
import type { Operation } from "../../src/http/operation.ts";
import { Problem } from "../../src/http/problems.ts";
import { compileRequestValidator } from "../../src/http/request-validation.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";
import { patience } from "../support/time-limits.ts";

const ID = "11111111-1111-4111-8111-111111111111";
const DEPTH = 505;
/** Of the processor, for 64 KiB; a larger body may take as much longer. */
const WITHIN_MS = 50;

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
  "what looks like the beginning of an address": (bytes) => `"https://${"a@".repeat(bytes / 2)}"`,
};

function membersOf({ body }: Operation): readonly string[] {
  if (body?.kind !== "json") return [];
  const { properties } = z.toJSONSchema(body.schema, { io: "input", unrepresentable: "any" });
  return Object.keys(properties ?? {});
}

const operations = declaredOperations().filter(({ body }) => body?.kind === "json");

describe.each(operations.map((operation) => [operation.key, operation] as const))("%s", (_key, operation) => {
  const validate = compileRequestValidator(operation);
  const bytesMax = operation.body?.kind === "json" ? operation.body.bytesMax : 0;
  const params = Object.fromEntries(
    Object.keys(operation.params?.shape ?? {}).map((name) => [name, ID] as const),
  );
  const take = (body: string) => {
    const before = process.threadCpuUsage();
    try {
      validate({ params, query: {}, body: Buffer.from(body) });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
    }
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1_000;
  };

  test.each(Object.keys(VALUES))("%s take no time", (name) => {
    const value = VALUES[name]!(bytesMax - 64);
    const bodies = [value, ...membersOf(operation).map((member) => `{${JSON.stringify(member)}:${value}}`)];
    // The first may compile something.
    for (const body of bodies) take(body.slice(0, 1_000));
    const times = bodies.map(take);
    const withinMs = patience(WITHIN_MS * Math.max(1, bytesMax / JSON_BODY_BYTES_MAX));
    expect(Math.max(...times), bodies[times.indexOf(Math.max(...times))]!.slice(0, 60)).toBeLessThan(
      withinMs,
    );
  });
});
