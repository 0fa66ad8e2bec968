import type { IncomingHttpHeaders } from "node:http";
import { errors } from "undici";
import { type ErrorCode, outcomeOfErrorCode } from "../../base/model/error-codes.ts";
import { statusErrorCode } from "../../base/model/http-status-errors.ts";
import type { Outcome } from "../../base/model/statuses.ts";
import { TransportFloodedError } from "../connect/reading.ts";
import { ConnectError, type ConnectProgress } from "../egress.ts";

/** How one POST ended, whatever the receiver did. Durations are milliseconds. */
export type PostResult = PostEnding & {
  /** Null if there was no connection, or if a proxy chose the address. */
  remoteAddress: string | null;
  /** When the receiver's certificate expires, in ms since the epoch; null without a TLS connection. */
  certificateEndsAtMs: number | null;
  timings: PostTimings;
  durationMs: number;
  /** False only if not one byte of the request can have reached the receiver. */
  mayHaveWritten: boolean;
};

/** Null for a step that did not take place: all but the last are null when a kept connection was used. */
export type PostTimings = ConnectProgress["timings"] & {
  /** From sending the request to the first byte of the answer. */
  firstByteMs: number | null;
};

/** The part of a result that an answer, or an error, decides. */
export type PostEnding = {
  outcome: Outcome;
  /** Null if and only if it succeeded. */
  errorCode: ErrorCode | null;
  /** Null if no answer's head was read. */
  statusCode: number | null;
  /** The raw text of the answer's `Retry-After`, at most 200 characters. */
  retryAfter: string | null;
  /** It wants nothing more from this sender at this URL. */
  isRefusal: boolean;
  /** A few headers that tell where the answer came from; null if there was no answer or none of them. */
  responseHeaders: Record<string, string> | null;
  /** The beginning of the answer's body, at most 1 KiB; null if it is empty or there was no answer. */
  responseExcerpt: string | null;
};

/** A text without what must not be recorded. */
type Hide = (text: string) => string;

/** The head alone decides: a body that was cut off does not change a 2xx. */
export function endWithAnswer(
  statusCode: number,
  headers: IncomingHttpHeaders,
  body: BodyRead,
  excerptBytesMax: number,
  hide: Hide = (text) => text,
): PostEnding {
  const isSuccess = statusCode >= 200 && statusCode < 300;
  return {
    outcome: isSuccess ? "succeeded" : "rejected",
    errorCode: isSuccess ? null : statusErrorCode(statusCode),
    statusCode,
    retryAfter: retryAfterOf(headers),
    isRefusal: statusCode === 410 && /(?:^|,)\s*1\s*(?:,|$)/.test(String(headers["webhook-refuse"])),
    responseHeaders: recordedHeaders(headers, hide),
    responseExcerpt: excerptOf(body, headers, excerptBytesMax, hide),
  };
}

export function endWithError(errorCode: ErrorCode): PostEnding {
  const outcome = outcomeOfErrorCode(errorCode);
  if (outcome === null) throw new Error(`${errorCode} is no error of an attempt.`);
  return {
    outcome,
    errorCode,
    statusCode: null,
    retryAfter: null,
    isRefusal: false,
    responseHeaders: null,
    responseExcerpt: null,
  };
}

/** Why no connection was made. Unknown errors are reported as such, never blamed on the receiver. */
export function classifyConnectError(error: unknown): ErrorCode {
  return error instanceof ConnectError ? error.code : "unexpected_failure";
}

const ANSWER_ERRORS: Readonly<Record<string, ErrorCode>> = {
  UND_ERR_HEADERS_OVERFLOW: "response_head_too_large",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "bad_response",
  ECONNRESET: "connection_reset",
  ECONNABORTED: "connection_reset",
  EPIPE: "connection_reset",
  ETIMEDOUT: "connection_reset",
  EHOSTUNREACH: "connection_reset",
  ENETUNREACH: "connection_reset",
  ENETDOWN: "connection_reset",
  EPROTO: "tls_protocol",
};

/** Why a request that was sent got no answer, by the errors of undici, its HTTP parser, OpenSSL and the system. */
export function classifyAnswerError(error: Error): ErrorCode {
  // The parser's errors do not always have a code.
  if (error instanceof errors.HTTPParserError) return "bad_response";
  if (error instanceof TransportFloodedError) return "response_head_too_large";
  const code = String((error as { code?: unknown }).code);
  // undici has one code for both; "bad response" and "bad upgrade" are its messages for unexpected HTTP.
  if (code === "UND_ERR_SOCKET")
    return error.message.startsWith("bad ") ? "bad_response" : "connection_closed";
  // Alerts after the handshake: with TLS 1.3 a server that wants a client certificate says so only then.
  if (code.startsWith("ERR_SSL_")) return "tls_protocol";
  return ANSWER_ERRORS[code] ?? "unexpected_failure";
}

/** Headers that help to find out why a receiver answered as it did; no cookies, nothing secret. */
const RECORDED_HEADERS = [
  "allow",
  "cf-mitigated",
  "cf-ray",
  "content-encoding",
  "content-length",
  "content-type",
  "date",
  "location",
  "ngrok-error-code",
  "retry-after",
  "server",
  "via",
  "www-authenticate",
  "x-amzn-requestid",
  "x-amzn-trace-id",
  "x-amzn-waf-action",
  "x-azure-ref",
  "x-railway-fallback",
  "x-render-routing",
  "x-request-id",
  "x-vercel-error",
  "x-vercel-mitigated",
] as const;

/** Characters of one header's value. */
const HEADER_VALUE_LENGTH_MAX = 500;
const RETRY_AFTER_LENGTH_MAX = 200;

const MORE_MARK = "…";
const CUT_MARK = "… [cut off]";

// All control characters but line feed and tab: PostgreSQL rejects NUL, and the others garble logs and pages.
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
const CONTROL_CHARACTERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const LONE_SURROGATES = /\p{Surrogate}/gu;

const encoder = new TextEncoder();

/** Drops what must not be stored: control characters but `\n` and `\t`, and lone surrogates. */
export function recordableText(text: string): string {
  const kept = text.replace(CONTROL_CHARACTERS, "");
  return kept.isWellFormed() ? kept : kept.replace(LONE_SURROGATES, "");
}

/** The headers worth recording; null if there are none. */
export function recordedHeaders(
  headers: IncomingHttpHeaders,
  hide: Hide = (text) => text,
): Record<string, string> | null {
  let recorded: Record<string, string> | null = null;
  for (const name of RECORDED_HEADERS) {
    const value = headers[name];
    if (value === undefined) continue;
    recorded ??= {};
    recorded[name] = headerText(value, HEADER_VALUE_LENGTH_MAX, hide);
  }
  return recorded;
}

/** The raw `Retry-After`, for the schedule to judge; null if there is none. */
export function retryAfterOf(headers: IncomingHttpHeaders): string | null {
  const value = headers["retry-after"];
  return value === undefined ? null : headerText(value, RETRY_AFTER_LENGTH_MAX);
}

export type BodyRead = {
  /** The first bytes of the body, at least `bytesMax` if there are that many. */
  readonly chunks: readonly Buffer[];
  readonly bytesCount: number;
  /** The end of the body was not read: reset, too long or too slow. */
  readonly isCut: boolean;
};

/**
 * The beginning of an answer's body as text: at most `bytesMax` bytes of UTF-8, including the mark for "more" or "cut
 * off". Null for an empty body.
 */
export function excerptOf(
  body: BodyRead,
  headers: IncomingHttpHeaders,
  bytesMax: number,
  hide: Hide = (text) => text,
): string | null {
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding.toLowerCase() !== "identity" && body.bytesCount > 0) {
    // Never decompressed, because of gzip bombs.
    return firstBytes(`[compressed: ${headerText(encoding, 40, hide)}]`, bytesMax);
  }
  if (body.bytesCount === 0) return body.isCut ? CUT_MARK : null;

  const hasMore = body.bytesCount > bytesMax;
  const isWhole = !hasMore && !body.isCut;
  const begin = recordableText(Buffer.concat(body.chunks).toString("utf8", 0, bytesMax));
  // A character that was cut in half became a replacement character.
  const text = hide(isWhole ? begin : begin.replace(/\ufffd$/, ""));
  if (isWhole && bytesIn(text) <= bytesMax) return text;

  const mark = body.isCut ? CUT_MARK : MORE_MARK;
  return firstBytes(text, bytesMax - bytesIn(mark)) + mark;
}

function headerText(value: string | string[], lengthMax: number, hide: Hide = (text) => text): string {
  const text = typeof value === "string" ? value : value.join(", ");
  return hide(recordableText(text.slice(0, lengthMax))).slice(0, lengthMax);
}

function bytesIn(text: string): number {
  return Buffer.byteLength(text);
}

/** As much of the text as fits, with no character cut in half. */
function firstBytes(text: string, bytesMax: number): string {
  return text.slice(0, encoder.encodeInto(text, new Uint8Array(bytesMax)).read);
}
