import { addAbortListener } from "node:events";
import type { Readable } from "node:stream";
import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CopyObjectCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  type ListMultipartUploadsCommandOutput,
  ListObjectsV2Command,
  type ListObjectsV2CommandOutput,
  PutObjectCommand,
  UploadPartCommand,
  UploadPartCopyCommand,
} from "@aws-sdk/client-s3";
import { BodyReader, NEVER, objectBody } from "./body-reader.ts";
import {
  type ByteRange,
  checkObjectKey,
  ObjectNotFoundError,
  type ObjectStore,
  ObjectStoreAwayError,
} from "./object-store.ts";
import {
  type Held,
  requireETag,
  S3,
  type S3Limits,
  type S3Options,
  s3Limits,
  withoutSecrets,
} from "./s3-connection.ts";

/** S3's limit for one object. */
const PARTS_MAX = 10_000;

/** Sends a body part by part, each of them out of the put's one piece of memory. */
async function putInParts(
  s3: S3,
  { key, sizeBytes, asked }: { readonly key: string; readonly sizeBytes: number; readonly asked: string },
  { bytes: memory, place, signal }: Held,
  reader: BodyReader,
): Promise<void> {
  await withUpload(s3, { key, asked, ChecksumAlgorithm: "CRC32" }, signal, async (UploadId) => {
    const done: CompletedPart[] = [];
    for (const { number: PartNumber, bytes, isLast } of partsOf(sizeBytes, s3.limits.partBytes)) {
      const Body = memory.subarray(0, bytes);
      await reader.fill(Body, signal, place);
      if (isLast) await reader.end(signal);
      const input = { ...s3.target(key), UploadId, PartNumber, Body, ChecksumAlgorithm: "CRC32" } as const;
      const { ETag, ChecksumCRC32 } = await s3.send(new UploadPartCommand(input), { asked, signal });
      done.push({ PartNumber, ETag, ChecksumCRC32 });
    }
    return done;
  });
}

/** Copies an object that is too large for one call. @param source its version, so that all parts are of one */
async function copyInParts(
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
    const copying = Array.from({ length: s3.limits.copyPartsAtOnce }, copySome);
    await Promise.allSettled(copying);
    await Promise.all(copying);
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
  using _ = addAbortListener(signal, () => {
    timer = setTimeout(() => late.abort(signal.reason), lateMs);
  });
  return await act(late.signal).finally(() => clearTimeout(timer));
}

function partBytesOf(sizeBytes: number, partBytesMin: number): number {
  return Math.max(partBytesMin, Math.ceil(sizeBytes / PARTS_MAX));
}

/** At least `partBytesMin` each but for the last, and no more of them than S3 takes. */
function* partsOf(sizeBytes: number, partBytesMin: number) {
  const partBytes = partBytesOf(sizeBytes, partBytesMin);
  for (let start = 0, number = 1; start < sizeBytes; start += partBytes, number++) {
    const bytes = Math.min(partBytes, sizeBytes - start);
    yield { number, start, bytes, isLast: start + bytes === sizeBytes };
  }
}

/**
 * S3's answer as it arrives, of which the client makes sure that it is what was stored (where S3 tells a checksum). It
 * fails when S3 stands still; how long its reader takes does not count.
 */
function s3Body(answer: Readable, sizeBytes: number, stallMs: number, asked: string): Readable {
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

/** Whose share what nobody asked for is. */
const NOBODY = "";

/** Objects in a bucket of S3, or of a server that speaks like it. The bucket has nothing else. */
export function openS3Store(options: S3Options, limits: Partial<S3Limits> = {}): ObjectStore {
  const s3 = new S3(options, { ...s3Limits, ...limits });

  async function head(key: string, asked: string, signal: AbortSignal) {
    try {
      const command = new HeadObjectCommand(s3.target(key));
      const found = await s3.send(command, { asked, key, signal });
      requireETag(found, asked);
      return { sizeBytes: found.ContentLength ?? 0, etag: found.ETag };
    } catch (error) {
      // An answer to HEAD does not say whether the key is missing or the whole bucket.
      if (error instanceof ObjectNotFoundError) {
        const command = new HeadBucketCommand(s3.bucket);
        await s3.send(command, { asked, signal });
      }
      throw error;
    }
  }

  return {
    async put(key, body, sizeBytes, signal = NEVER, sharer = NOBODY) {
      checkObjectKey(key);
      const reader = new BodyReader(body, sizeBytes);
      const asked = `store ${JSON.stringify(key)}`;
      const { partBytes } = s3.limits;
      const isInParts = sizeBytes > partBytes;
      const heldBytes = isInParts ? partBytesOf(sizeBytes, partBytes) : sizeBytes;
      // For the put from its start to its end, so that nobody who has begun waits for others.
      using memory = await s3.hold(heldBytes, asked, sharer, signal);
      if (isInParts) return await putInParts(s3, { key, sizeBytes, asked }, memory, reader);
      await reader.fill(memory.bytes, memory.signal, memory.place);
      await reader.end(memory.signal);
      const command = new PutObjectCommand({ ...s3.target(key), Body: memory.bytes });
      requireETag(await s3.send(command, { asked }), asked);
    },

    async get(key, range = null, signal = NEVER) {
      checkObjectKey(key);
      const asked = `read ${JSON.stringify(key)}`;
      const wanted = range === null ? {} : { Range: `bytes=${range.start}-${range.end}` };
      const command = new GetObjectCommand({ ...s3.target(key), ...wanted });
      const answer = await s3.send(command, { asked, key, start: range?.start, signal });
      const bodyBytes = answer.ContentLength ?? 0;
      const body = s3Body(answer.Body as Readable, bodyBytes, s3.limits.stallMs, asked);
      try {
        requireETag(answer, asked);
      } catch (error) {
        body.destroy();
        throw error;
      }
      const part = partOf(answer.ContentRange);
      return { sizeBytes: part?.sizeBytes ?? bodyBytes, range: part?.range ?? null, body };
    },

    async copy(from, to, signal = NEVER) {
      checkObjectKey(from);
      checkObjectKey(to);
      const asked = `copy ${JSON.stringify(from)} to ${JSON.stringify(to)}`;
      const { sizeBytes, etag } = await head(from, asked, signal);
      // S3 refuses that, for it changes nothing.
      if (from === to) return;
      const { Bucket } = s3.bucket;
      const path = `${Bucket}/${from.split("/").map(encodeURIComponent).join("/")}`;
      if (sizeBytes > s3.limits.copyPartBytes) {
        await copyInParts(s3, { path, etag, sizeBytes }, { key: to, asked }, signal);
      } else {
        const command = new CopyObjectCommand({ ...s3.target(to), CopySource: path });
        const { CopyObjectResult } = await s3.send(command, { asked, key: from, signal });
        requireETag(CopyObjectResult, asked);
      }
      // Whoever copies removes the first: what is said to be made is looked at.
      const made = await head(to, asked, signal).catch((error: unknown) => {
        if (!(error instanceof ObjectNotFoundError)) throw error;
        throw new ObjectStoreAwayError(asked, error);
      });
      if (made.sizeBytes !== sizeBytes) {
        throw new ObjectStoreAwayError(asked, new Error(`it has ${made.sizeBytes} bytes, not ${sizeBytes}`));
      }
    },

    async remove(key, signal = NEVER) {
      checkObjectKey(key);
      const command = new DeleteObjectCommand(s3.target(key));
      const asked = `remove ${JSON.stringify(key)}`;
      await s3.send(command, { asked, signal });
      return true;
    },

    async stat(key, signal = NEVER) {
      checkObjectKey(key);
      const { sizeBytes } = await head(key, `look for ${JSON.stringify(key)}`, signal);
      return { sizeBytes };
    },

    async *list(folder, what, signal = NEVER) {
      const asked = `list ${JSON.stringify(folder)}`;
      const input = {
        ...s3.bucket,
        ...URL_ENCODED,
        Prefix: folder,
        ...(what === "folders" && { Delimiter: "/" }),
      };
      let ContinuationToken: string | undefined;
      do {
        const command = new ListObjectsV2Command({ ...input, ContinuationToken });
        const page: ListObjectsV2CommandOutput = await s3.send(command, { asked, signal });
        const keys = (page.Contents ?? []).map(({ Key }) => Key);
        const folders = (page.CommonPrefixes ?? []).map(({ Prefix }) => Prefix);
        for (const found of what === "keys" ? keys : folders) yield decoded(found ?? "", page);
        ContinuationToken = page.NextContinuationToken;
      } while (ContinuationToken !== undefined);
    },

    async removeLeftovers(before, signal = NEVER) {
      const asked = "remove what was left behind";
      let count = 0;
      const failures: unknown[] = [];
      let markers: { readonly KeyMarker?: string; readonly UploadIdMarker?: string } | null = {};
      while (markers !== null) {
        const input = { ...s3.bucket, ...URL_ENCODED, ...markers };
        const page: ListMultipartUploadsCommandOutput = await s3.send(
          new ListMultipartUploadsCommand(input),
          { asked, signal },
        );
        for (const { Key = "", UploadId, Initiated } of page.Uploads ?? []) {
          if (Initiated === undefined || Initiated >= before) continue;
          const key = decoded(Key, page);
          const command = new AbortMultipartUploadCommand({ ...s3.target(key), UploadId });
          try {
            await s3.send(command, { asked, key, signal });
            count += 1;
          } catch (error) {
            signal.throwIfAborted();
            // Somebody else who cleans has removed it.
            if (!(error instanceof ObjectNotFoundError)) failures.push(error);
          }
        }
        markers = nextMarkers(page);
      }
      if (failures.length > 0) throw failures[0];
      return count;
    },

    async check(signal = NEVER) {
      // Of what S3 can be asked about a bucket, this says why not.
      const command = new ListObjectsV2Command({ ...s3.bucket, MaxKeys: 1 });
      const asked = `list the bucket ${JSON.stringify(s3.bucket.Bucket)}`;
      await s3.send(command, { asked, signal });
    },

    async close() {
      s3.client.destroy();
    },
  };
}

/** Keys may have characters that XML cannot say. */
const URL_ENCODED = { EncodingType: "url" } as const;

function decoded(key: string, page: { readonly EncodingType?: string | undefined }): string {
  return page.EncodingType === "url" ? decodeURIComponent(key.replaceAll("+", " ")) : key;
}

function nextMarkers(page: ListMultipartUploadsCommandOutput) {
  const { IsTruncated, NextKeyMarker, NextUploadIdMarker } = page;
  if (!IsTruncated || NextKeyMarker === undefined) return null;
  const KeyMarker = decoded(NextKeyMarker, page);
  return NextUploadIdMarker === undefined ? { KeyMarker } : { KeyMarker, UploadIdMarker: NextUploadIdMarker };
}

/** Of `bytes 0-9/100`; null when the answer is everything. */
function partOf(contentRange: string | undefined): { range: ByteRange; sizeBytes: number } | null {
  const [, start, end, size] = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(contentRange ?? "") ?? [];
  if (size === undefined) return null;
  return { range: { start: Number(start), end: Number(end) }, sizeBytes: Number(size) };
}
