import { fc, test } from "@fast-check/vitest";
import { describe, expect } from "vitest";
import { entityTag } from "../../src/http/bytes.ts";

/** On both sides of where another hash is taken. */
const LENGTHS = [0, 1, 31, 32, 40_000, 1_048_575, 1_048_576, 1_048_577, 3_000_000];

describe("an entity tag", () => {
  test.each(LENGTHS)(
    "of %i bytes is the same for the same, and another for one bit or byte more",
    (length) => {
      const bytes = new Uint8Array(length).fill(0x61);
      const tag = entityTag(bytes);
      expect(tag).toMatch(/^"[\w-]+"$/);
      expect(entityTag(bytes.slice())).toBe(tag);
      const others = [entityTag(new Uint8Array(length + 1).fill(0x61)), entityTag(bytes, "besides")];
      for (const at of new Set([0, length >> 1, length - 1])) {
        if (at < 0 || at >= length) continue;
        const changed = bytes.slice();
        changed[at] = 0x60;
        others.push(entityTag(changed));
      }
      expect(new Set([tag, ...others]).size).toBe(1 + others.length);
    },
  );

  test.prop([fc.uint8Array({ maxLength: 200 }), fc.string(), fc.string()])(
    "covers what goes besides the bytes, and nothing that was hashed before",
    (bytes, besides, other) => {
      const tag = entityTag(bytes, besides);
      expect(entityTag(bytes, other) === tag).toBe(other === besides);
      expect(entityTag(bytes, besides)).toBe(tag);
    },
  );

  test("is of the view's bytes, not of the memory that it lies in", () => {
    const memory = new Uint8Array(100).fill(1, 50);
    expect(entityTag(memory.subarray(50))).toBe(entityTag(new Uint8Array(50).fill(1)));
  });
});
