import { fc, test as property } from "@fast-check/vitest";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { pathOf } from "../../../src/workspace/objects/file-store.ts";
import { checkObjectKey, type ObjectStore } from "../../../src/workspace/objects/object-store.ts";
import { putBytes, readBytes } from "../support/object-bodies.ts";
import { keyOf, keysIn } from "../support/object-listing.ts";
import { type OpenStore, storeKinds } from "../support/object-stores.ts";

const refused = [
  ["", "empty"],
  ["/", "empty"],
  ["/etc/passwd", "empty"],
  ["spaces/", "empty"],
  ["spaces//report.pdf", "empty"],
  [".", "elsewhere"],
  ["..", "elsewhere"],
  ["../keys", "elsewhere"],
  ["spaces/../../../etc/passwd", "elsewhere"],
  ["spaces/.", "elsewhere"],
  ["spaces/a\0b", "cannot be written"],
  ["spaces/a\nb", "cannot be written"],
  ["spaces/a\u0085b", "cannot be written"],
  ["spaces/\uffff", "cannot be written"],
  ["spaces/\ud800", "not Unicode"],
  [`spaces/${"x".repeat(1_018)}`, "longer than 1024"],
  [`spaces/${"ü".repeat(509)}`, "longer than 1024"],
] as const;

/** Each pair is one name to some file system or other. */
const confusable = [
  ["report.pdf", "Report.pdf", "REPORT.PDF"],
  ["\u00e9t\u00e9", "e\u0301te\u0301"],
  ["ß", "ss", "ẞ"],
  ["ı", "i", "İ", "I"],
  ["ﬁ", "fi"],
  ["name", "name.", "name ", "name..", " name", ".name", "name="],
  ["a%2fb", "a%2Fb", "a%b", "a%", "%", "%%", "%41", "A"],
  ["a+b", "a b", "a%20b", "a%2Bb", "a&b", "a?b", "a#b", "a;b"],
  ["con", "CON", "nul.txt", "aux", "com1", "lpt9."],
  ["...", "....", "~", "-rf", "*", "$HOME", "`id`", "|", "<script>", "\"'", "a\\b", "..\\..\\x", "C:", ":x"],
  ["\u202egnp.exe", "\u200b", "\ufeff", "\u2028", "👩‍👩‍👧‍👦", "日本語", "𝒳"],
  ["x".repeat(120), "x".repeat(121), `${"x".repeat(120)}+`, `${"x".repeat(120)}=`, "x".repeat(240)],
  ["x".repeat(255), "ü".repeat(127), "😀".repeat(63), "%".repeat(255), "A".repeat(255), ".".repeat(255)],
];

const name = fc
  .string({ unit: "binary", minLength: 1, maxLength: 60 })
  .filter((text) => !/[\p{Cc}\uFFFE\uFFFF/]/u.test(text) && text !== "." && text !== "..");
const keys = fc.array(name, { minLength: 1, maxLength: 4 }).map((names) => names.join("/"));

test.each(refused)("%j is no key: it is %s", (key, why) => {
  expect(() => checkObjectKey(key)).toThrow(why);
});

test("the longest key is one", () => {
  checkObjectKey("x".repeat(1_024));
  checkObjectKey("ü".repeat(512));
});

describe("a key's path", () => {
  property.prop([keys], { numRuns: 500 })("is its own, in small ASCII, and leads back to it", (key) => {
    const path = pathOf(key);
    expect(keyOf(path)).toBe(key);
    expect(path).toMatch(/^[a-z0-9_.%+=/-]+$/);
    for (const piece of path.split("/")) {
      expect(piece).toMatch(/^[^.].*[^.]$|^[^.]$/);
      expect(piece.length).toBeLessThanOrEqual(121);
    }
  });

  test("is readable where it can be", () => {
    expect(pathOf("spaces/plans-0123456789ab/report-2.pdf")).toBe("spaces/plans-0123456789ab/report-2.pdf=");
    expect(pathOf("A b/..x.")).toBe("%41%20b/%2e%2ex%2e=");
  });
});

describe.each(storeKinds)("$name", ({ tags, open }) => {
  describe("takes and refuses keys", { tags }, () => {
    let opened: OpenStore;
    let store: ObjectStore;

    beforeAll(async () => {
      opened = await open();
      store = opened.store;
    });
    afterAll(() => opened?.close());

    test.each(refused)("does nothing with %j", async (key) => {
      const body = async function* () {};
      await expect(store.put(key, body(), 0)).rejects.toThrow(RangeError);
      await expect(store.get(key)).rejects.toThrow(RangeError);
      await expect(store.stat(key)).rejects.toThrow(RangeError);
      await expect(store.remove(key)).rejects.toThrow(RangeError);
      await expect(store.copy(key, "spaces/a")).rejects.toThrow(RangeError);
      await expect(store.copy("spaces/a", key)).rejects.toThrow(RangeError);
    });

    test.each(confusable)("tells %j from its like", async (...names) => {
      const all = names.map((each) => `spaces/hostile/${each}`);
      for (const key of all) await putBytes(store, key, Buffer.from(key));
      for (const key of all) {
        expect((await readBytes(store, key)).toString()).toBe(key);
        expect(await keysIn(store, key)).toContain(key);
      }
      expect(await keysIn(store, "spaces/hostile/")).toEqual([...all].sort());
      for (const key of all) {
        await store.copy(key, `spaces/copied/${key.slice("spaces/hostile/".length)}`);
        await store.remove(key);
      }
      expect(await keysIn(store, "spaces/hostile/")).toEqual([]);
      for (const key of await keysIn(store)) await store.remove(key);
      expect(await keysIn(store)).toEqual([]);
    });

    property.prop([fc.uniqueArray(name, { minLength: 1, maxLength: 5 })], { numRuns: 30 })(
      "keeps objects of any name",
      async (names) => {
        const all = names.map((each) => `spaces/any/${each}`);
        for (const key of all) await putBytes(store, key, Buffer.from(key));
        expect(await keysIn(store)).toEqual([...all].sort());
        for (const key of all) {
          expect((await readBytes(store, key)).toString()).toBe(key);
          await store.remove(key);
        }
      },
    );
  });
});
