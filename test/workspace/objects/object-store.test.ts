import { once } from "node:events";
import { PassThrough, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { fc, test as property } from "@fast-check/vitest";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  BodyLengthError,
  ObjectNotFoundError,
  ObjectRangeError,
  type ObjectStore,
} from "../../../src/workspace/objects/object-store.ts";
import { digest, inChunks, putBytes, readBytes, uniqueBytes } from "../support/object-bodies.ts";
import { keysIn } from "../support/object-listing.ts";
import { type OpenStore, storeKinds } from "../support/object-stores.ts";

const TOMORROW = new Date(Date.now() + 86_400_000);
const KEY = "spaces/plans-0123456789ab/report.pdf";

describe.each(storeKinds)("an object in $name", ({ tags, partBytes, open }) => {
  describe("keeps the contract", { tags }, () => {
    let opened: OpenStore;
    let store: ObjectStore;

    beforeAll(async () => {
      opened = await open();
      store = opened.store;
    });
    afterAll(() => opened?.close());
    beforeEach(async () => {
      for (const key of await keysIn(store)) await store.remove(key);
    });

    const sizes = [0, 1, partBytes - 1, partBytes, partBytes + 1, 2 * partBytes, 2 * partBytes + 1];
    test.each(sizes)("of %i bytes is read as it was put", async (size) => {
      const bytes = uniqueBytes(size);
      await putBytes(store, KEY, bytes);
      const { sizeBytes, range, body } = await store.get(KEY);
      expect({ sizeBytes, range }).toEqual({ sizeBytes: size, range: null });
      expect(digest(await buffer(body))).toBe(digest(bytes));
      expect(await store.stat(KEY)).toEqual({ sizeBytes: size });
      expect(await keysIn(store)).toEqual([KEY]);
    });

    const chunks = fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 30 });
    property.prop([chunks, fc.nat(9_000), fc.nat(9_000)], { numRuns: 40 })(
      "has the bytes of any chunks, and any range of them",
      async (pieces, start, length) => {
        const bytes = Buffer.concat(pieces);
        await store.put(KEY, Readable.from(pieces), bytes.length);
        expect(digest(await readBytes(store, KEY))).toBe(digest(bytes));
        const end = start + length;
        if (start >= bytes.length) {
          await expect(store.get(KEY, { start, end })).rejects.toThrow(ObjectRangeError);
          return;
        }
        const content = await store.get(KEY, { start, end });
        expect(content.sizeBytes).toBe(bytes.length);
        expect(content.range).toEqual({ start, end: Math.min(end, bytes.length - 1) });
        expect(digest(await buffer(content.body))).toBe(digest(bytes.subarray(start, end + 1)));
      },
    );

    test("can be stored, which is found out without storing one", async () => {
      await store.check();
      expect(await keysIn(store)).toEqual([]);
      expect(await store.removeLeftovers(TOMORROW)).toBe(0);
      await expect(store.check(AbortSignal.abort(new Error("never mind")))).rejects.toThrow("never mind");
    });

    test("has ranges across its parts", async () => {
      const bytes = uniqueBytes(2 * partBytes + 1);
      await putBytes(store, KEY, bytes);
      for (const [start, end] of [
        [partBytes - 1, partBytes],
        [2 * partBytes, 2 * partBytes],
        [1, 2 * partBytes - 1],
      ] as const) {
        const { body } = await store.get(KEY, { start, end });
        expect(digest(await buffer(body))).toBe(digest(bytes.subarray(start, end + 1)));
      }
    });

    test("is listed below its folder, and the folder below the one above", async () => {
      // S3 tells a thousand at a time.
      const many = Array.from({ length: tags.length === 0 ? 3 : 1_001 }, (_, n) => `spaces/a-1/${n}`);
      const odd = ["spaces/a-1/x/A b+%=.txt", `spaces/a-1/x/${"ü".repeat(120)}`];
      const others = ["spaces/a-2/x", "spaces/a-11/x", "else/x", "spaces/x"];
      for (const key of [...many, ...odd, ...others]) await putBytes(store, key, uniqueBytes(1));
      const list = async (...args: Parameters<ObjectStore["list"]>) => {
        const found: string[] = [];
        for await (const one of store.list(...args)) found.push(one);
        return found.sort();
      };
      expect(await list("spaces/a-1/", "keys")).toEqual([...many, ...odd].sort());
      expect(await list("spaces/", "folders")).toEqual(["spaces/a-1/", "spaces/a-11/", "spaces/a-2/"]);
      expect(await list("nothing/", "keys")).toEqual([]);
      expect(await list("nothing/", "folders")).toEqual([]);
    });

    test("that is not there is told as such, and removed all the same", async () => {
      await expect(store.get(KEY)).rejects.toThrow(ObjectNotFoundError);
      await expect(store.get(KEY, { start: 0, end: 1 })).rejects.toThrow(ObjectNotFoundError);
      await expect(store.stat(KEY)).rejects.toThrow(ObjectNotFoundError);
      await expect(store.copy(KEY, "spaces/other")).rejects.toThrow(ObjectNotFoundError);
      await store.remove(KEY);
      expect(await keysIn(store)).toEqual([]);
      expect(await store.removeLeftovers(TOMORROW)).toBe(0);
    });

    describe("is left as it was, and nothing besides, by a put", () => {
      const sizeBytes = 2 * partBytes + 1;
      const cuts = [0, 1, partBytes - 1, partBytes, partBytes + 1, 2 * partBytes, 2 * partBytes];
      const old = Buffer.from("what was there before");
      const sent = uniqueBytes(sizeBytes);

      async function expectUntouched(failing: Promise<void>, expected: unknown): Promise<void> {
        await expect(failing).rejects.toThrow(expected as Error);
        expect(digest(await readBytes(store, KEY))).toBe(digest(old));
        expect(await keysIn(store)).toEqual([KEY]);
        expect(await store.removeLeftovers(TOMORROW)).toBe(0);
      }
      beforeEach(() => putBytes(store, KEY, old));

      test.each(cuts)("that is aborted after %i bytes", async (cut) => {
        const controller = new AbortController();
        const reason = new Error("nobody waits for it any more");
        const body = new PassThrough();
        body.write(sent.subarray(0, cut));
        const putting = store.put(KEY, body, sizeBytes, controller.signal);
        const aborting = once(body, "drain", { signal: AbortSignal.timeout(50) })
          .catch(() => undefined)
          .then(() => controller.abort(reason));
        await expectUntouched(putting, reason);
        await aborting;
      });

      test("that is aborted while it begins", async () => {
        const reason = new Error("nobody waits for it any more");
        for (let ms = 0; ms < 20; ms += 1) {
          const body = new PassThrough();
          const putting = store.put(KEY, body, sizeBytes, abortedAfter(ms, reason));
          await expect(putting).rejects.toBe(reason);
        }
        await expectUntouched(Promise.reject(reason), reason);
      });

      test.each(cuts)("whose stream is destroyed after %i bytes", async (cut) => {
        const body = new PassThrough({ highWaterMark: sizeBytes });
        body.write(sent.subarray(0, cut));
        const putting = store.put(KEY, body, sizeBytes);
        setImmediate(() => body.destroy(new Error("hung up")));
        await expectUntouched(putting, /hung up/);
      });

      test.each(cuts)("whose body throws after %i bytes", async (cut) => {
        const fault = new Error("the digest is another");
        const body = async function* () {
          yield* inChunks(sent.subarray(0, cut));
          throw fault;
        };
        await expectUntouched(store.put(KEY, body(), sizeBytes), fault);
      });

      test.each([...cuts, sizeBytes - 1])("that ends after %i bytes", async (cut) => {
        const putting = store.put(KEY, inChunks(sent.subarray(0, cut)), sizeBytes);
        await expectUntouched(putting, new BodyLengthError(sizeBytes, cut));
      });

      test.each([0, 1, partBytes, partBytes + 1, 2 * partBytes])("of %i bytes that goes on", async (size) => {
        await expectUntouched(store.put(KEY, inChunks(sent), size), /but is longer/);
      });

      test("that is aborted before it begins", async () => {
        const reason = new Error("too late");
        const putting = store.put(KEY, inChunks(sent), sizeBytes, AbortSignal.abort(reason));
        await expectUntouched(putting, reason);
      });
    });

    test("is one of those that are put at once, whole at every moment", async () => {
      const bodies = Array.from({ length: 10 }, (_, n) => uniqueBytes(n % 2 === 0 ? 70_000 : partBytes + 1));
      const digests = new Set(bodies.map(digest));
      await putBytes(store, KEY, bodies[0]!);
      let isOver = false;
      const read: string[] = [];
      const readers = Array.from({ length: 3 }, async () => {
        while (!isOver) read.push(digest(await readBytes(store, KEY)));
      });
      await Promise.all(bodies.map((bytes) => putBytes(store, KEY, bytes)));
      isOver = true;
      await Promise.all(readers);
      expect([...digests]).toEqual(expect.arrayContaining(read));
      expect(digests).toContain(digest(await readBytes(store, KEY)));
      expect(await keysIn(store)).toEqual([KEY]);
      expect(await store.removeLeftovers(TOMORROW)).toBe(0);
    });

    test.each([
      ["removed", async () => await store.remove(KEY)],
      ["replaced", async () => await putBytes(store, KEY, uniqueBytes(99))],
      ["copied away", async () => await store.copy(KEY, "spaces/elsewhere").then(() => store.remove(KEY))],
    ])("is read to its end although it is %s meanwhile", async (_, act) => {
      const bytes = uniqueBytes(2 * partBytes + 1);
      await putBytes(store, KEY, bytes);
      const { body } = await store.get(KEY);
      await once(body, "readable");
      await act();
      expect(digest(await buffer(body))).toBe(digest(bytes));
    });

    test.each([0, 1, partBytes, partBytes + 1, 3 * partBytes])(
      "of %i bytes is copied, and both live on alone",
      async (size) => {
        const [bytes, later] = [uniqueBytes(size), uniqueBytes(77)];
        await putBytes(store, KEY, bytes);
        await putBytes(store, "spaces/b", uniqueBytes(5));
        await store.copy(KEY, "spaces/b");
        await store.copy(KEY, "spaces/b");
        await store.copy(KEY, KEY);
        await store.copy("spaces/b", "spaces/c");
        await putBytes(store, KEY, later);
        expect(digest(await readBytes(store, "spaces/b"))).toBe(digest(bytes));
        await store.remove("spaces/b");
        expect(digest(await readBytes(store, KEY))).toBe(digest(later));
        expect(digest(await readBytes(store, "spaces/c"))).toBe(digest(bytes));
        expect(await store.removeLeftovers(TOMORROW)).toBe(0);
      },
    );
  });
});

/** A signal that aborts so much later. */
function abortedAfter(ms: number, reason: Error): AbortSignal {
  const controller = new AbortController();
  setTimeout(() => controller.abort(reason), ms);
  return controller.signal;
}
