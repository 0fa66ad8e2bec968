import type { ErrorCode } from "../../model/error-codes.ts";
import type { Outcome } from "../../model/outcomes.ts";

/** How one POST ended, whatever the receiver did. Durations are milliseconds. */
export type PostResult = {
  outcome: Outcome;
  /** Null if and only if it succeeded. */
  errorCode: ErrorCode | null;
  /** Null if no answer's head was read. */
  statusCode: number | null;
  /** The raw text of the answer's `Retry-After`, at most 200 characters. */
  retryAfter: string | null;
  /** Null if it came to no connection, or if a proxy chose the address. */
  remoteAddress: string | null;
  timings: PostTimings;
  durationMs: number;
  /** A few headers that tell where the answer came from; null if there was no answer or none of them. */
  responseHeaders: Record<string, string> | null;
  /** The beginning of the answer's body, at most 1 KiB; null if it is empty or there was no answer. */
  responseExcerpt: string | null;
  /** False only if not one byte of the request can have reached the receiver. */
  mayHaveWritten: boolean;
};

/** Null for a step that did not take place: the first three are null when a kept connection was used. */
export type PostTimings = {
  dnsMs: number | null;
  connectMs: number | null;
  tlsMs: number | null;
  /** From sending the request to the first byte of the answer. */
  firstByteMs: number | null;
};

export type PostRequest = {
  /** A judged URL: https, without credentials or fragment. */
  readonly url: URL;
  /** `host`, `content-length` and `connection` are not the caller's to set. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** For everything from DNS to the answer's head; reading the body must end by then, too. */
  readonly deadlineMs: number;
};
