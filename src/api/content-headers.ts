import type { IncomingHttpHeaders } from "node:http";
import { parseDictionary } from "structured-headers";
import { tidyMediaType } from "../model/media-type.ts";
import type { AnnouncedBody, StreamBody } from "./operation-io.ts";
import { invalidRequest, Problem } from "./problems.ts";

const LENGTH = "header.content-length";
const DIGEST = "header.content-digest";
const SHA256_BYTES = 32;

/**
 * Reads the headers of a streamed body, before any of it.
 * @throws Problem that refuses it. There is no 411 on the platform, so a missing length is a 400.
 */
export function readContentHeaders(body: StreamBody, headers: IncomingHttpHeaders): AnnouncedBody {
  const coding = headers["content-encoding"] ?? "identity";
  if (coding.toLowerCase() !== "identity") throw new Problem("unsupported_media_type");
  const length = headers["content-length"];
  if (length === undefined) throw invalidRequest(LENGTH, "Missing: a chunked body is not accepted.");
  const bytes = Number(length);
  if (bytes > body.bytesMax) throw new Problem("payload_too_large");
  const mediaType = readMediaType(headers["content-type"]);
  return { mediaType, bytes, sha256: readDigest(headers["content-digest"]) };
}

function readMediaType(header = "application/octet-stream"): string {
  const mediaType = tidyMediaType(header);
  if (mediaType === null) throw new Problem("unsupported_media_type");
  return mediaType;
}

/** RFC 9530: `sha-256=:…:`, perhaps among digests by other algorithms, which are not looked at. */
function readDigest(header: string | string[] | undefined): Buffer {
  if (header === undefined) {
    throw invalidRequest(DIGEST, "Missing: sha-256=:BASE64:, the SHA-256 of the body.");
  }
  const digest = bytesOf(String(header), "sha-256");
  if (digest === null) throw invalidRequest(DIGEST, "Must be sha-256=:BASE64: with 32 bytes.");
  return digest;
}

function bytesOf(header: string, algorithm: string): Buffer | null {
  try {
    const [value] = parseDictionary(header).get(algorithm) ?? [];
    return value instanceof ArrayBuffer && value.byteLength === SHA256_BYTES ? Buffer.from(value) : null;
  } catch {
    return null;
  }
}

/** `sha-256=:…:` */
export function contentDigest(sha256: Buffer): string {
  return `sha-256=:${sha256.toString("base64")}:`;
}
