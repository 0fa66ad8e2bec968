import type { IncomingHttpHeaders } from "node:http";
import { type ErrorCode, outcomeOfErrorCode } from "../../model/error-codes.ts";
import { statusErrorCode } from "../../model/http-status-errors.ts";
import { type BodyRead, excerptOf, recordedHeaders, retryAfterOf } from "./answer.ts";
import type { PostResult } from "./result.ts";

/** The part of a result that says how it ended. */
export type PostEnding = Pick<
  PostResult,
  "outcome" | "errorCode" | "statusCode" | "retryAfter" | "responseHeaders" | "responseExcerpt"
>;

/** The head alone decides: a body that broke off changes nothing about a 2xx. */
export function endWithAnswer(
  statusCode: number,
  headers: IncomingHttpHeaders,
  body: BodyRead,
  excerptBytesMax: number,
): PostEnding {
  const isSuccess = statusCode >= 200 && statusCode < 300;
  return {
    outcome: isSuccess ? "succeeded" : "rejected",
    errorCode: isSuccess ? null : statusErrorCode(statusCode),
    statusCode,
    retryAfter: retryAfterOf(headers),
    responseHeaders: recordedHeaders(headers),
    responseExcerpt: excerptOf(body, headers, excerptBytesMax),
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
    responseHeaders: null,
    responseExcerpt: null,
  };
}
