import type { Readable } from "node:stream";
import { objectBody } from "./object-body.ts";
import { ObjectStoreAwayError } from "./object-errors.ts";
import { withoutSecrets } from "./s3-calls.ts";

/**
 * S3's answer as it arrives, of which the client makes sure that it is what was stored (where S3 tells a checksum). It
 * fails when S3 stands still; how long its reader takes does not count.
 */
export function s3Body(answer: Readable, sizeBytes: number, stallMs: number, asked: string): Readable {
  const chunks = answer[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
  let receivedBytes = 0;
  return objectBody({
    next: async () => {
      try {
        const { done, value } = await within(stallMs, chunks.next());
        if (!done) receivedBytes += value.length;
        else if (receivedBytes !== sizeBytes) throw new Error(`${receivedBytes} of ${sizeBytes} bytes came`);
        return done ? null : value;
      } catch (error) {
        throw new ObjectStoreAwayError(asked, withoutSecrets(error));
      }
    },
    close: async () => {
      answer.destroy();
    },
  });
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  return await new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no byte came within ${ms} ms`)), ms);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
