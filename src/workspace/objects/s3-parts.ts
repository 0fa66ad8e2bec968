import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  UploadPartCommand,
  UploadPartCopyCommand,
} from "@aws-sdk/client-s3";
import type { BodyReader } from "./body-reader.ts";
import { type Held, type Holding, requireETag, type S3 } from "./s3-connection.ts";

/**
 * The memory of one put: for a part from its start to its end, so that nobody who has begun waits for others, and where
 * there is more, for the next part as well.
 */
class PartMemory {
  readonly #s3: S3;
  readonly #partBytes: number;
  readonly #to: Holding;
  readonly #held: Set<Held>;
  readonly #free: Held[];

  private constructor(s3: S3, partBytes: number, to: Holding, first: Held) {
    this.#s3 = s3;
    this.#partBytes = partBytes;
    this.#to = to;
    this.#held = new Set([first]);
    this.#free = [first];
  }

  /** As soon as there is some. @throws ObjectShareError, ObjectStoreAwayError */
  static async hold(s3: S3, partBytes: number, to: Holding, signal: AbortSignal): Promise<PartMemory> {
    return new PartMemory(s3, partBytes, to, await s3.hold(partBytes, to, signal));
  }

  /** For the next part. @param sending ends once what is in use was given back */
  async take(sending: Promise<void>): Promise<Held> {
    const free = this.#free.pop() ?? this.#tryHold();
    if (free !== null) return free;
    await sending;
    return this.#free.pop()!;
  }

  /** S3 has what is in it. */
  giveBack(memory: Held): void {
    if (this.#held.size === 1) {
      this.#free.push(memory);
      return;
    }
    this.#held.delete(memory);
    this.#s3.reuse(memory.bytes);
    memory.letGo();
  }

  /** All of it, whatever is in use. */
  letGo(): void {
    for (const memory of this.#held) memory.letGo();
  }

  #tryHold(): Held | null {
    const second = this.#s3.tryHold(this.#partBytes, this.#to);
    if (second !== null) this.#held.add(second);
    return second;
  }
}

/** S3's limit for one object. */
const PARTS_MAX = 10_000;

type Part = {
  readonly number: number;
  readonly start: number;
  readonly bytes: number;
  readonly isLast: boolean;
};

/** Sends a body part by part. While one is sent, the next is read, if there is memory for two. */
export async function putInParts(
  s3: S3,
  to: Omit<Holding, "onCut"> & { readonly key: string; readonly sizeBytes: number },
  reader: BodyReader,
  signal: AbortSignal,
): Promise<void> {
  const { key, sizeBytes, asked } = to;
  const partBytes = partBytesOf(sizeBytes, s3.limits.partBytes);
  // Ends reading when sending fails, and sending when reading does.
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const holding = { ...to, onCut: (error: Error) => failed.abort(error) };
  const memory = await PartMemory.hold(s3, partBytes, holding, signal);
  await withUpload(s3, { key, asked, ChecksumAlgorithm: "CRC32" }, signal, async (UploadId) => {
    const done: CompletedPart[] = [];
    const send = async ({ number, bytes }: Part, held: Held) => {
      const Body = held.bytes.subarray(0, bytes);
      const input = {
        ...s3.target(key),
        UploadId,
        PartNumber: number,
        Body,
        ChecksumAlgorithm: "CRC32",
      } as const;
      const { ETag, ChecksumCRC32 } = await s3.call({
        asked,
        signal: either,
        send: (options) => s3.client.send(new UploadPartCommand(input), options),
      });
      done.push({ PartNumber: number, ETag, ChecksumCRC32 });
      memory.giveBack(held);
    };
    let sending = Promise.resolve();
    try {
      for (const part of partsOf(sizeBytes, s3.limits.partBytes)) {
        const held = await memory.take(sending);
        await reader.fill(held.bytes.subarray(0, part.bytes), either, held.place);
        if (part.isLast) await reader.end(either);
        await sending;
        sending = send(part, held);
        sending.catch((error) => failed.abort(error));
      }
      await sending;
    } catch (error) {
      failed.abort(error);
      // A part that arrives after the upload is given up would stay.
      await sending.catch(() => undefined);
      throw error;
    }
    return done;
  }).finally(() => memory.letGo());
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
        const { CopyPartResult } = await s3.call({
          asked,
          signal,
          send: (options) => s3.client.send(new UploadPartCopyCommand(input), options),
        });
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
    s3.call({ asked, signal: late, send: (options) => s3.client.send(begin, options) }),
  );
  if (UploadId === undefined) throw new TypeError("S3 has begun an upload without an id.");
  const upload = { ...s3.target(key), UploadId };
  try {
    signal.throwIfAborted();
    const Parts = (await work(UploadId)).sort((left, right) => left.PartNumber! - right.PartNumber!);
    signal.throwIfAborted();
    const complete = new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts } });
    const { completeMs } = s3.limits;
    const whole = await s3.call({
      asked,
      deadlineMs: completeMs,
      send: (options) => s3.client.send(complete, { ...options, requestTimeout: completeMs }),
    });
    requireETag(whole, asked);
  } catch (error) {
    const giveUp = new AbortMultipartUploadCommand(upload);
    // If this fails too, the parts are left over, and removed as such.
    await s3
      .call({ asked, deadlineMs: cleanupMs, send: (options) => s3.client.send(giveUp, options) })
      .catch(() => undefined);
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

function partBytesOf(sizeBytes: number, partBytesMin: number): number {
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
