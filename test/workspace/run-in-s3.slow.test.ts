import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import type { Json } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";
import { moveOnce } from "./support/moving.ts";
import { chain, runsOf, startTestRunner } from "./support/runs.ts";
import { openS3Site } from "./support/s3-site.ts";

/** Of two parts, as the store has it; it is no text by its length. */
const LONG = Buffer.alloc(9_000_000, "What a document of two parts has. ");
const TEXTS: readonly (readonly [string, string, Buffer])[] = [
  ["empty.txt", "text/plain", Buffer.alloc(0)],
  ["invalid.txt", "text/plain", Buffer.from([0x61, 0xff, 0xc0, 0x20, 0x62, 0xed, 0xa0, 0x80])],
  ["one line.txt", "text/plain", Buffer.alloc(1_048_576, "wide ")],
  ["data.txt", "text/plain", Buffer.from(Array.from({ length: 4_096 }, (_, n) => (n * 7) % 256))],
  ["long.txt", "text/plain", LONG],
  ["Größe + 1.md", "text/markdown", Buffer.from("# Größe\n\nEine Überschrift, und noch ein Satz dazu.\n")],
];

test(`documents in S3 are analysed, those that are moved meanwhile, too`, async () => {
  await using resources = new AsyncDisposableStack();
  const { database, api, objects } = await openS3Site(resources);
  const documents = documentsOf(api.ask);
  const runs = runsOf(api.ask);
  const { id: space_id } = await documents.newSpace("in the cloud");
  for (const [file_name, content_type, bytes] of TEXTS) {
    await documents.uploaded({ space_id, file_name, content_type }, bytes);
  }

  // A node for each look: all of them while the space's documents are on their way to its new name.
  const looks = Array.from({ length: 3 }, () => ({ kind: "analyze" }) as const);
  const workflow = await runs.newWorkflow(space_id, chain({ kind: "documents" }, ...looks));
  await documents.renameSpace(space_id, "elsewhere");
  const { id } = await runs.started(workflow);
  const runner = startTestRunner(database.pool, objects);
  resources.defer(() => runner.stop());
  while (await moveOnce(database.pool, objects));
  expect(await runs.ended(id)).toMatchObject({ status: "SUCCEEDED" });
  expect(runner.errors).toEqual([]);

  for (const look of ["node-1", "node-2", "node-3"]) {
    const items = await runs.items(id, look);
    expect(items.map(({ file_name, analysis }) => [file_name, (analysis as Json).sha256])).toEqual(
      TEXTS.map(([file_name, , bytes]) => [file_name, createHash("sha256").update(bytes).digest("hex")]),
    );
    const texts = items.map(({ analysis }) => (analysis as Json).text as Json | null);
    expect(texts.map((text) => text?.lines ?? null)).toEqual([0, 1, 1, expect.any(Number), null, 3]);
  }

  const [{ document_id }] = (await runs.items(id, "node-0")) as [Json];
  await objects.remove(String((await documents.get(document_id)).body.storage_key));
  const again = await runs.started(workflow, {});
  expect(await runs.ended(again.id)).toMatchObject({ status: "SUCCEEDED" });
  const [item] = await runs.items(again.id, "node-1");
  expect(item).toMatchObject({ document_id, analysis: null, error: { code: "document_gone" } });
});
