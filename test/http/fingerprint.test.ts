import { describe, expect, test } from "vitest";
import { fingerprintOf } from "../../src/http/idempotent-write.ts";

describe("a fingerprint", () => {
  const base = { operationKey: "a.b", params: {}, query: {}, body: {} as unknown };
  const print = (change: Partial<typeof base>): string =>
    fingerprintOf({ ...base, ...change }).toString("hex");

  test("is the same for equal values, in any order", () => {
    const one = { a: 1, b: { c: [1, { d: 2, e: 3 }], f: null } };
    const other = { b: { f: null, c: [1, { e: 3, d: 2 }] }, a: 1, g: undefined };
    expect(print({ body: one })).toBe(print({ body: other }));
    expect(print({ body: Object.assign(Object.create(null), one) })).toBe(print({ body: one }));
    expect(print({ body: undefined })).toBe(print({ body: null }));
  });

  test("is what earlier versions stored for the same request", () => {
    const request = { params: { id: "x" }, query: { limit: 5, after: "y" }, body: { b: [1, "2"], a: null } };
    expect(print(request)).toBe("c73663926a5c10513a89ce63d761a38806694877920a39552076f07fc15dc567");
  });

  test("differs wherever the requests do", () => {
    const prints = [
      print({}),
      print({ operationKey: "a.c" }),
      print({ params: { a: 1 } }),
      print({ query: { a: 1 } }),
      print({ body: { a: 1 } }),
      print({ body: { a: "1" } }),
      print({ body: { a: [1] } }),
      print({ body: { a: [1, null] } }),
      print({ body: { a: [1, 23] } }),
      print({ body: { a: [12, 3] } }),
      print({ body: { a: { 0: 1 } } }),
      print({ body: JSON.parse('{"__proto__":1}') }),
      print({ body: { at: new Date(0) } }),
      print({ body: { at: new Date(1) } }),
      print({ body: Buffer.from("x") }),
    ];
    expect(new Set(prints).size).toBe(prints.length);
  });

  test("is refused to values that JSON cannot tell apart", () => {
    const refusal = new TypeError("Not a value that JSON can hold.");
    expect(() => print({ body: { a: new Map([[1, 2]]) } })).toThrow(refusal);
    expect(() => print({ body: { a: new Set([1]) } })).toThrow(refusal);
  });
});
