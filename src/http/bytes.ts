import { hash } from "node:crypto";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { BODY_SLICE_BYTES } from "./limits.ts";

/** The same bytes for everybody who reads them: slices are views, and only one at a time is on its way, and told. */
export function inSlices(body: Buffer, onSlice?: (bytes: number) => void): Readable {
  let at = 0;
  return new Readable({
    highWaterMark: BODY_SLICE_BYTES,
    read() {
      const slice = body.subarray(at, at + BODY_SLICE_BYTES);
      at += slice.length;
      onSlice?.(slice.length);
      this.push(slice.length === 0 ? null : slice);
    },
  });
}

/** The form for a request's Accept-Encoding, and the headers that tell of it. */
export type CompressedBytes = Awaited<ReturnType<typeof compressOnce>>;

/**
 * Bytes, plain and compressed. Both are made once and sent to everybody: @fastify/compress would compress for each
 * request anew, and each string sent would be copied for its connection.
 */
export async function compressOnce(bytes: Buffer) {
  const vary = { vary: "accept-encoding" };
  const plain = { bytes, headers: { ...vary, "content-length": bytes.length } };
  const zipped = await promisify(gzip)(bytes);
  const compressed = {
    bytes: zipped,
    headers: { ...vary, "content-encoding": "gzip", "content-length": zipped.length },
  };
  return (acceptEncoding = ""): typeof plain | typeof compressed =>
    acceptsGzip(acceptEncoding) ? compressed : plain;
}

/** `*` is not taken for it: who means gzip says so. */
function acceptsGzip(acceptEncoding: string): boolean {
  return acceptEncoding
    .split(",")
    .some((coding) => /^\s*gzip\s*(?:;|$)/i.test(coding) && !/;\s*q=0(?:\.0*)?\s*$/i.test(coding));
}

/** A strong tag of these bytes and of what goes `besides` them. */
export function entityTag(bytes: Uint8Array, besides = ""): string {
  const tag = hash("sha256", bytes, "base64url");
  return quoteEntityTag(besides === "" ? tag : `${tag}.${hash("sha256", besides, "base64url")}`);
}

/** `opaque` must not contain quotes or control characters. */
export function quoteEntityTag(opaque: string): string {
  if (!/^[\x21\x23-\x7e]+$/.test(opaque))
    throw new RangeError("An entity tag is printable ASCII without quotes.");
  return `"${opaque}"`;
}

const TAG_IN_LIST = /(?:W\/)?("[\x21\x23-\x7e\x80-\xff]*")/g;

/** Whether If-None-Match, if there is one, names `tag`: a list, weak or strong alike, or `*`. */
export function matchesEntityTag(ifNoneMatch = "", tag: string): boolean {
  if (ifNoneMatch.trim() === "*") return true;
  for (const [, opaque] of ifNoneMatch.matchAll(TAG_IN_LIST)) if (opaque === tag) return true;
  return false;
}

/** The first and the last byte, counted from 0. */
export type ByteRange = { readonly first: number; readonly last: number };

/** `whole`: no range that we serve. `unsatisfiable`: beyond the end, a 416. */
export type ChosenRange = ByteRange | "whole" | "unsatisfiable";

const ONE_RANGE = /^bytes[ \t]*=[ \t]*(?:(\d+)-(\d*)|-(\d+))[ \t]*$/i;

/**
 * The part of `bytes` that a Range header asks for (RFC 9110, 14). Several ranges, other units and mistakes are
 * ignored, as the RFC allows or demands: the answer is the whole.
 *
 * Losing option: range-parser, which has 416 for `bytes=-500` of a shorter content, and for `bytes=5-2`.
 */
export function chooseRange(header: string, bytes: number): ChosenRange {
  const [, from, to, suffix] = ONE_RANGE.exec(header) ?? [];
  if (suffix !== undefined) {
    const wanted = Math.min(Number(suffix), bytes);
    return wanted === 0 ? "unsatisfiable" : { first: bytes - wanted, last: bytes - 1 };
  }
  if (from === undefined) return "whole";
  const first = Number(from);
  const last = to === "" || to === undefined ? Number.POSITIVE_INFINITY : Number(to);
  if (last < first) return "whole";
  return first >= bytes ? "unsatisfiable" : { first, last: Math.min(last, bytes - 1) };
}
