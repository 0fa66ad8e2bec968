import type { IncomingHttpHeaders } from "node:http";
import { Readable } from "node:stream";
import { create as contentDisposition } from "content-disposition";
import type { FastifyReply, FastifyRequest } from "fastify";
import { tidyMediaType } from "../base/model/formats.ts";
import { type ByteRange, chooseRange, matchesEntityTag, quoteEntityTag } from "./bytes.ts";
import { sentBytesOf } from "./connections.ts";
import { withDeadline } from "./deadline.ts";
import { BODY_SLICE_BYTES, type TransferLimits } from "./limits.ts";
import type { AnnouncedBody, Content, StreamBody } from "./operation.ts";
import { invalidRequest, Problem, TemporarilyUnavailable } from "./problems.ts";
import { onDisconnectOf, type TransferPlaces } from "./turns.ts";

/** RFC 9530, perhaps among digests by other algorithms, which are not looked at. */
const SHA256 = /(?:^|,[ \t]*)sha-256=:([A-Za-z0-9+/]{43}=):[ \t]*(?:$|,)/;

/**
 * Reads the headers of a streamed body, before any of it.
 * @throws Problem that refuses it. There is no 411 on the platform, so a missing length is a 400.
 */
export function readContentHeaders(body: StreamBody, headers: IncomingHttpHeaders): AnnouncedBody {
  const coding = headers["content-encoding"] ?? "identity";
  if (coding.toLowerCase() !== "identity") throw new Problem("unsupported_media_type");
  const length = headers["content-length"];
  if (length === undefined)
    throw invalidRequest("header.content-length", "Missing: a chunked body is not accepted.");
  const bytes = Number(length);
  if (bytes > body.bytesMax) throw new Problem("payload_too_large");
  const mediaType = tidyMediaType(headers["content-type"] ?? "application/octet-stream");
  if (mediaType === null) throw new Problem("unsupported_media_type");
  return { mediaType, bytes, sha256: readDigest(headers["content-digest"]) };
}

function readDigest(header: string | string[] | undefined): Buffer {
  const refused = (message: string) => invalidRequest("header.content-digest", message);
  if (header === undefined) throw refused("Missing: sha-256=:BASE64:, the SHA-256 of the body.");
  const [, digest] = SHA256.exec(String(header)) ?? [];
  if (digest === undefined) throw refused("Must be sha-256=:BASE64: with 32 bytes.");
  return Buffer.from(digest, "base64");
}

/** `sha-256=:…:` */
export function contentDigest(sha256: Buffer): string {
  return `sha-256=:${sha256.toString("base64")}:`;
}

/** What operations share whose bodies or answers are streams. */
export type Streaming = TransferLimits & {
  readonly downloads: TransferPlaces;
  /** The source failed in the middle: the client sees a broken connection, and only this tells why. */
  readonly onSourceFailure: (error: unknown, requestId: string) => void;
};

type ContentAnswer = Streaming & {
  readonly content: Content;
  /** Whose place among the downloads it takes. */
  readonly sharer: string;
  /** What is left of the request's time, for the first bytes to come. */
  readonly waitMs: number;
  /** Asked now and then while it is read. @throws Problem when the reader may see it no more */
  readonly confirm: () => Promise<void>;
};

/**
 * Answers with what the request's headers ask for: nothing (304, HEAD), a range, or everything.
 * @throws Problem 416 for a range beyond the end
 */
export async function sendContent(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: ContentAnswer,
): Promise<FastifyReply> {
  const { content } = answer;
  const etag = quoteEntityTag(content.etag);
  if (matchesEntityTag(request.headers["if-none-match"], etag))
    return reply.header("etag", etag).code(304).send();
  const range = rangeOf(request, content, etag);
  const { first, last } = range ?? { first: 0, last: content.bytes - 1 };
  const bytes = last - first + 1;
  const headers = {
    ...contentHeaders(content),
    etag,
    "content-length": bytes,
    ...(range === null ? {} : { "content-range": `bytes ${first}-${last}/${content.bytes}` }),
  };
  const isSent = request.method !== "HEAD" && bytes > 0;
  // Opened before anything is answered, so that a source that is not there is an error like any other.
  const body = isSent ? await openBody(request, reply, answer, { first, last }) : undefined;
  return reply
    .code(range === null ? 200 : 206)
    .headers(headers)
    .send(body);
}

/** Nothing of a customer's file may run or be shown as a page of ours, whatever its type says. */
function contentHeaders({ mediaType, fileName }: Content): Readonly<Record<string, string>> {
  return {
    "content-type": mediaType,
    "content-disposition": contentDisposition(safeFileName(fileName)),
    "content-security-policy": "sandbox; default-src 'none'",
    "accept-ranges": "bytes",
  };
}

/** Control characters, those that turn the direction of a text (`gpj.exe` for `exe.jpg`), and path separators. */
const UNSAFE_IN_NAMES = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069/\\]/gu;

function safeFileName(name: string): string {
  return name.toWellFormed().replaceAll(UNSAFE_IN_NAMES, "_");
}

/** Null: the whole. */
function rangeOf({ method, headers }: FastifyRequest, { bytes }: Content, etag: string): ByteRange | null {
  const { range, "if-range": ifRange } = headers;
  // Range is defined for GET alone. Without a Last-Modified, no date in If-Range can match.
  if (range === undefined || method !== "GET" || (ifRange !== undefined && ifRange !== etag)) return null;
  const chosen = chooseRange(range, bytes);
  if (chosen === "whole") return null;
  if (chosen !== "unsatisfiable") return chosen;
  throw new Problem("range_not_satisfiable", { headers: { "content-range": `bytes */${bytes}` } });
}

async function openBody(
  request: FastifyRequest,
  reply: FastifyReply,
  { content, sharer, waitMs, confirm, ...streaming }: ContentAnswer,
  range: ByteRange,
): Promise<Readable> {
  const { downloads, progressWithinMs, renewEveryMs, onSourceFailure } = streaming;
  const { socket } = request.raw;
  // Nobody is told more: what has begun cannot be answered otherwise.
  const place = downloads.take(sharer, () => socket.destroy());
  const opening = content.open(range);
  // Whoever leaves may leave before it is open.
  const letGo = () => {
    opening.then((source) => source.destroy()).catch(() => undefined);
  };
  let isGone = false;
  // Not left to the generators: they hear of it only when the source gives something.
  onDisconnectOf(
    request,
    reply,
  )(() => {
    isGone = true;
    letGo();
  });
  try {
    const source = await withDeadline(waitMs, "the content", opening);
    let toldBytes = sentBytesOf(socket);
    const leaving = {
      rest: place.rest,
      move: () => {
        const sentBytes = sentBytesOf(socket);
        place.moved(sentBytes - toldBytes);
        toldBytes = sentBytes;
      },
    };
    const chunks = exactly(source, range.last - range.first + 1, progressWithinMs, leaving);
    // A source may fail only when it is read.
    const begun = await withDeadline(waitMs, "the content", chunks.next());
    if (isGone) throw new Error("Nobody reads it.");
    const body = Readable.from(continued(begun, chunks), {
      objectMode: false,
      highWaterMark: BODY_SLICE_BYTES,
    });
    body.once("error", (error) => {
      // A reader who went away is no failure.
      if (!socket.destroyed) onSourceFailure(error, request.id);
      socket.destroy();
    });
    // What is gone from the reader's sight meanwhile is sent no further; an outage says nothing of that.
    const confirming = setInterval(() => {
      confirm().catch((error: unknown) => error instanceof Problem && socket.destroy());
    }, renewEveryMs);
    body.once("close", () => clearInterval(confirming));
    body.once("close", letGo);
    body.once("close", place.giveBack);
    return body;
  } catch (error) {
    place.giveBack();
    letGo();
    // A source that was let go fails, which is no fault.
    throw isGone ? new TemporarilyUnavailable("the reader went away", { cause: error }) : error;
  }
}

/** The source's bytes in slices, as all large answers. Throws when they are not exactly `bytes`, or stop coming. */
async function* exactly(
  source: Readable,
  bytes: number,
  progressWithinMs: number,
  /** Told whenever there is room for more: bytes have left. It rests while there is nothing to send. */
  leaving: { move(): void; rest(): void },
): AsyncGenerator<Buffer> {
  const chunks = source[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  let left = bytes;
  for (;;) {
    leaving.rest();
    const { value: chunk, done } = await withDeadline(
      progressWithinMs,
      "the content's next bytes",
      chunks.next(),
    );
    // At the end, too: from now on only the client is waited for.
    leaving.move();
    if (done) break;
    left -= chunk.length;
    if (left < 0) throw new Error(`The source gave more than the ${bytes} bytes that were asked for.`);
    for (let at = 0; at < chunk.length; at += BODY_SLICE_BYTES) {
      yield chunk.subarray(at, at + BODY_SLICE_BYTES);
      leaving.move();
    }
  }
  if (left > 0) throw new Error(`The source ended ${left} bytes before its end.`);
}

async function* continued<T>(first: IteratorResult<T>, rest: AsyncGenerator<T>): AsyncGenerator<T> {
  if (!first.done) yield first.value;
  yield* rest;
}
