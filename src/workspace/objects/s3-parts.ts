import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  UploadPartCommand,
  UploadPartCopyCommand,
} from "@aws-sdk/client-s3";
import type { BodyReader } from "./body-reader.ts";
import { type Held, requireETag, type S3 } from "./s3-connection.ts";

/** S3's limit for one object. */
const PARTS_MAX = 10_000;

type Part = {
  readonly number: number;
  readonly start: number;
  readonly bytes: number;
  readonly isLast: boolean;
};

/** Sends a body part by part, each of them out of the put's one piece of memory. */
export async function putInParts(
  s3: S3,
  { key, sizeBytes, asked }: { readonly key: string; readonly sizeBytes: number; readonly asked: string },
  {
    memory,
    reader,
    signal,
  }: { readonly memory: Held; readonly reader: BodyReader; readonly signal: AbortSignal },
): Promise<void> {
  await withUpload(s3, { key, asked, ChecksumAlgorithm: "CRC32" }, signal, async (UploadId) => {
    const done: CompletedPart[] = [];
    for (const { number: PartNumber, bytes, isLast } of partsOf(sizeBytes, s3.limits.partBytes)) {
      const Body = memory.bytes.subarray(0, bytes);
      await reader.fill(Body, signal, memory.place);
      if (isLast) await reader.end(signal);
      const input = { ...s3.target(key), UploadId, PartNumber, Body, ChecksumAlgorithm: "CRC32" } as const;
      const { ETag, ChecksumCRC32 } = await s3.send(new UploadPartCommand(input), { asked, signal });
      done.push({ PartNumber, ETag, ChecksumCRC32 });
    }
    return done;
  });
}

/** Copies an object that is too large for one call. @param source its version, so that all parts are of one */
export async function copyInParts(
  s3: S3,
  source: { readonly path: string; readonly etag: string | undefined; readonly sizeBytes: number },
  to: { readonly key: string; readonly asked: string },
  signal: AbortSignal,
): Promise<void> {
  const { key, asked } = to;
  // Without checksums: not every server has one for a part that it copies from a part of another upload.
  await withUpload(s3, { key, asked }, signal, async (UploadId) => {
    const done: CompletedPart[] = [];
    const parts = partsOf(source.sizeBytes, s3.limits.copyPartBytes);
    const copySome = async () => {
      for (const { number, start, bytes } of parts) {
        const input = {
          ...s3.target(key),
          UploadId,
          PartNumber: number,
          CopySource: source.path,
          CopySourceIfMatch: source.etag,
          CopySourceRange: `bytes=${start}-${start + bytes - 1}`,
        };
        const { CopyPartResult } = await s3.send(new UploadPartCopyCommand(input), { asked, signal });
        requireETag(CopyPartResult, asked);
        done.push({ PartNumber: number, ETag: CopyPartResult?.ETag });
      }
    };
    const results = await Promise.allSettled(Array.from({ length: s3.limits.copyPartsAtOnce }, copySome));
    const failure = results.find((result) => result.status === "rejected");
    if (failure) throw failure.reason;
    return done;
  });
}

type Upload = { readonly key: string; readonly asked: string; readonly ChecksumAlgorithm?: "CRC32" };

/** Begins an upload, and completes it with the parts that `work` has sent, or gives it up. */
async function withUpload(
  s3: S3,
  { key, asked, ...checksum }: Upload,
  signal: AbortSignal,
  work: (uploadId: string) => Promise<CompletedPart[]>,
): Promise<void> {
  const begin = new CreateMultipartUploadCommand({ ...s3.target(key), ...checksum });
  const { cleanupMs } = s3.limits;
  // One that begins although nobody waits for it any more is given up, for which its id must be known.
  const { UploadId } = await withLateSignal(signal, cleanupMs, (late) =>
    s3.send(begin, { asked, signal: late }),
  );
  if (UploadId === undefined) throw new TypeError("S3 has begun an upload without an id.");
  const upload = { ...s3.target(key), UploadId };
  try {
    signal.throwIfAborted();
    const Parts = (await work(UploadId)).sort((left, right) => left.PartNumber! - right.PartNumber!);
    signal.throwIfAborted();
    const complete = new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts } });
    const { completeMs } = s3.limits;
    const whole = await s3.send(complete, { asked, deadlineMs: completeMs, answerMs: completeMs });
    requireETag(whole, asked);
  } catch (error) {
    const giveUp = new AbortMultipartUploadCommand(upload);
    // If this fails too, the parts are left over, and removed as such.
    await s3.send(giveUp, { asked, deadlineMs: cleanupMs }).catch(() => undefined);
    throw error;
  }
}

/** Calls `act` with a signal that aborts `lateMs` after `signal` does. */
async function withLateSignal<T>(
  signal: AbortSignal,
  lateMs: number,
  act: (late: AbortSignal) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const late = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const start = () => {
    timer = setTimeout(() => late.abort(signal.reason), lateMs);
  };
  signal.addEventListener("abort", start, { once: true });
  try {
    return await act(late.signal);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", start);
  }
}

export function partBytesOf(sizeBytes: number, partBytesMin: number): number {
  return Math.max(partBytesMin, Math.ceil(sizeBytes / PARTS_MAX));
}

/** At least `partBytesMin` each but for the last, and no more of them than S3 takes. */
function* partsOf(sizeBytes: number, partBytesMin: number): Generator<Part> {
  const partBytes = partBytesOf(sizeBytes, partBytesMin);
  for (let start = 0, number = 1; start < sizeBytes; start += partBytes, number++) {
    const bytes = Math.min(partBytes, sizeBytes - start);
    yield { number, start, bytes, isLast: start + bytes === sizeBytes };
  }
}
