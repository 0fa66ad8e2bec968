// Greedy accounts store objects that hardly come, and hold memory for their parts.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, test } from "vitest";
import type { ObjectStore } from "../../../src/workspace/objects/object-store.ts";
import { s3Limits } from "../../../src/workspace/objects/s3-connection.ts";
import { openS3Store } from "../../../src/workspace/objects/s3-store.ts";
import { expectItsTurn, GREEDY_COUNTS } from "../../support/fair-shares.ts";
import { type S3Server, startS3Server } from "../support/s3-server.ts";

const BYTES = Buffer.from("What a document has.");
const PUTS_OF_EACH = 20;

describe("S3 (versitygw)", () => {
  let folder: string;
  let server: S3Server;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "sealpost-s3-"));
    server = await startS3Server(folder);
  });
  afterAll(async () => {
    await server?.close();
    await rm(folder, { recursive: true });
  });

  const put = (store: ObjectStore, name: string, key: string) =>
    store
      .put(
        `spaces/${key}`,
        (async function* () {
          yield BYTES;
        })(),
        BYTES.length,
        undefined,
        name,
      )
      .then(() => "stored");

  test.each(GREEDY_COUNTS)(
    "another one's objects are stored beside %i accounts that hold all they get",
    async (count) => {
      const [loaded, quiet] = [openS3Store(server.options), openS3Store(server.options)];
      const over = new AbortController();
      async function* trickling() {
        yield BYTES;
        await new Promise((resolve) => over.signal.addEventListener("abort", resolve));
      }
      const bytes = 3 * s3Limits.partBytes;
      const greedy = Array.from({ length: count * PUTS_OF_EACH }, (_, n) =>
        loaded.put(`spaces/greedy-${n}`, trickling(), bytes, over.signal, `greedy-${n % count}`),
      );
      const ends = Promise.allSettled(greedy);
      const tryIt = (store: ObjectStore) => (n: number) => put(store, "victim", `victim-${count}-${n}`);
      await expectItsTurn("stored", tryIt(loaded), tryIt(quiet));
      over.abort(new Error("over"));
      await ends;
      await Promise.all([loaded.close(), quiet.close()]);
    },
  );
});
