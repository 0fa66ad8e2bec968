// The API of boxes in a process of its own, which keeps nothing of a file but its length. Prints where it listens.
import { Readable } from "node:stream";
import type { ByteRange } from "../../src/http/bytes.ts";
import { ADA, createToyApi } from "./api-toy-server.ts";

const CHUNK = Buffer.alloc(65_536, "sealpost");

async function* chunksOf({ first, last }: ByteRange): AsyncGenerator<Buffer> {
  for (let left = last - first + 1; left > 0; left -= CHUNK.length) yield CHUNK.subarray(0, left);
}

const api = await createToyApi();
const id = "box-1";
api.boxes.rows.set(id, {
  id,
  color: "red",
  weight: null,
  made_at: "2026-01-02T03:04:05.678Z",
  accountId: ADA,
});
api.boxes.keep = async (body) => {
  for await (const _ of body.open());
  return async (range) => Readable.from(chunksOf(range), { objectMode: false });
};
const url = await api.listen();
process.stdout.write(`${JSON.stringify({ url: `${url}/v1/boxes/${id}/file`, key: api.key })}\n`);
