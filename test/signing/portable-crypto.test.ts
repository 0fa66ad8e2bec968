import * as nodeCrypto from "node:crypto";
import { inspect } from "node:util";
import { fc, test as property } from "@fast-check/vitest";
import { describe, expect, test } from "vitest";
import * as portable from "../../scripts/portable-crypto.ts";

function hmacs(secret: string | Uint8Array, prefix: string, body: Uint8Array): readonly string[] {
  const key = nodeCrypto.createSecretKey(Buffer.from(secret as string));
  const theirs = nodeCrypto.createHmac("sha256", key).update(prefix).update(body).digest("hex");
  const ours = portable.createHmac("sha256", portable.createSecretKey(secret)).update(prefix).update(body);
  return [theirs, String(ours.digest("hex"))];
}

describe("what stands in for node:crypto", () => {
  // Where the padding fits into the last block, and where it needs one more; keys longer than a block are hashed.
  test.each([1, 54, 55, 56, 63, 64, 65, 118, 119, 120, 128, 1_000_000])(
    "computes the same HMAC of %i bytes, and with a key of them",
    (length) => {
      const body = Uint8Array.from({ length }, (_, at) => at % 251);
      const [expected, found] = hmacs("whsec_x", "", body);
      expect(found).toBe(expected);
      const [ofKey, foundOfKey] = hmacs(body, "1.", body);
      expect(foundOfKey).toBe(ofKey);
    },
  );

  property.prop([
    fc.string({ unit: "binary", minLength: 1 }),
    fc.string(),
    fc.uint8Array({ maxLength: 300 }),
  ])("computes the same HMAC of anything", (secret, prefix, body) => {
    const [expected, found] = hmacs(secret, prefix, body);
    expect(found).toBe(expected);
  });

  test("gives the bytes themselves where no encoding is asked for", () => {
    const hmac = portable.createHmac("sha256", portable.createSecretKey("k")).update("text");
    const theirs = nodeCrypto.createHmac("sha256", "k").update("text").digest();
    expect(Buffer.from(hmac.digest() as Uint8Array)).toEqual(theirs);
  });

  test("compares every byte", () => {
    const bytes = Uint8Array.of(1, 2, 3, 4);
    expect(portable.timingSafeEqual(bytes, Uint8Array.from(bytes))).toBe(true);
    for (const at of bytes.keys()) expect(portable.timingSafeEqual(bytes, bytes.with(at, 9))).toBe(false);
    expect(() => portable.timingSafeEqual(bytes, bytes.subarray(1))).toThrow(RangeError);
  });

  test("shows no key, and keeps it whatever becomes of the bytes", () => {
    const bytes = new TextEncoder().encode("whsec_secret");
    const key = portable.createSecretKey(bytes);
    expect(inspect(key, { showHidden: true, depth: 9 })).not.toMatch(/whsec|Uint8Array/);
    expect(JSON.stringify(key)).toBe('{"type":"secret"}');
    bytes.fill(0);
    expect(portable.createHmac("sha256", key).digest("hex")).toBe(
      nodeCrypto.createHmac("sha256", "whsec_secret").digest("hex"),
    );
  });

  test("has numbers below a bound, and ids that differ", () => {
    const numbers = Array.from({ length: 500 }, () => portable.randomInt(10));
    expect([...new Set(numbers)].sort()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(portable.randomUUID()).not.toBe(portable.randomUUID());
  });
});
