import type { FileHandle } from "node:fs/promises";
import type { Readable } from "node:stream";
import { objectBody } from "./object-body.ts";
import { ObjectStoreAwayError } from "./object-errors.ts";
import type { ByteRange } from "./object-store.ts";

/** Bytes read or written at a time. */
export const BLOCK_BYTES = 256 * 1_024;

/** What an open file has from `start` to `end` inclusive. The stream owns the handle. */
export function fileBody(handle: FileHandle, { start, end }: ByteRange, asked: string): Readable {
  let position = start;
  return objectBody({
    next: async () => {
      if (position > end) return null;
      const block = Buffer.allocUnsafeSlow(Math.min(BLOCK_BYTES, end + 1 - position));
      try {
        const { bytesRead } = await handle.read(block, 0, block.length, position);
        if (bytesRead === 0) throw new Error(`the file ends at ${position}, before ${end}`);
        position += bytesRead;
        return block.subarray(0, bytesRead);
      } catch (error) {
        throw new ObjectStoreAwayError(asked, error);
      }
    },
    close: () => handle.close(),
  });
}
