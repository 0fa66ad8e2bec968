import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { putBytes } from "../support/object-bodies.ts";
import { keysIn } from "../support/object-listing.ts";
import { startObjectProcess } from "../support/object-processes.ts";
import { type OpenStore, storeKinds } from "../support/object-stores.ts";

const DAY_MS = 86_400_000;

describe.each(storeKinds)("what a killed put leaves in $name", ({ tags, partBytes, open }) => {
  let opened: OpenStore;
  beforeAll(async () => {
    opened = await open();
  });
  afterAll(() => opened?.close());

  test("is seen by nobody, and removed once it is old", { tags }, async () => {
    const { store, address } = opened;
    await putBytes(store, "spaces/whole", Buffer.from("whole"));
    // More than the parts that S3 is sent by default.
    const bytes = Math.max(partBytes, 9 * 1_024 * 1_024);
    for (const key of ["spaces/whole", "spaces/new", "spaces/ü b+c%/new"]) {
      const child = startObjectProcess("stuck-put", address, key, String(bytes));
      const exited = once(child, "exit");
      await Promise.race([
        once(child.stdout!, "data"),
        exited.then(() => Promise.reject(new Error("it has ended"))),
      ]);
      child.kill("SIGKILL");
      await exited;
    }
    expect(await keysIn(store)).toEqual(["spaces/whole"]);
    expect((await store.stat("spaces/whole")).sizeBytes).toBe(5);
    expect(await store.removeLeftovers(new Date(Date.now() - DAY_MS))).toBe(0);
    expect(await store.removeLeftovers(new Date(Date.now() + DAY_MS))).toBe(3);
    expect(await store.removeLeftovers(new Date(Date.now() + DAY_MS))).toBe(0);
    expect(await keysIn(store)).toEqual(["spaces/whole"]);
  });
});
