import { promisify } from "node:util";
import { gzip } from "node:zlib";

/** Bytes that are sent to many, and the headers that tell of their form. */
export type SentBytes = {
  readonly bytes: Buffer;
  readonly headers: Readonly<Record<string, string | number>>;
};

/** Chooses the form for a request's Accept-Encoding. */
export type CompressedBytes = (acceptEncoding: string | undefined) => SentBytes;

/**
 * Bytes, plain and compressed. Both are made once and sent to everybody: @fastify/compress would compress for each
 * request anew, and each string sent would be copied for its connection.
 */
export async function compressOnce(bytes: Buffer): Promise<CompressedBytes> {
  const vary = { vary: "accept-encoding" };
  const plain = { bytes, headers: { ...vary, "content-length": bytes.length } };
  const zipped = await promisify(gzip)(bytes);
  const compressed = {
    bytes: zipped,
    headers: { ...vary, "content-encoding": "gzip", "content-length": zipped.length },
  };
  return (acceptEncoding = "") => (acceptsGzip(acceptEncoding) ? compressed : plain);
}

/** `*` is not taken for it: who means gzip says so. */
function acceptsGzip(acceptEncoding: string): boolean {
  return acceptEncoding
    .split(",")
    .some((coding) => /^\s*gzip\s*(?:;|$)/i.test(coding) && !/;\s*q=0(?:\.0*)?\s*$/i.test(coding));
}
