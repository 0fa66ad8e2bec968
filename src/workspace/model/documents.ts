import { MIMEType } from "node:util";

/** `PENDING_UPLOAD`: its key is reserved and nothing stored there yet. */
export const DOCUMENT_STATUSES = ["PENDING_UPLOAD", "UPLOADED"] as const;
export type DocumentStatus = (typeof DOCUMENT_STATUSES)[number];

export const DOCUMENT_ORIGINS = ["UPLOADED"] as const;

/** What kind of text a document is that people can edit together; `NONE`: it is not. */
export const LIVE_CONTENT_TYPES = ["MARKDOWN", "NONE"] as const;
export type LiveContentType = (typeof LIVE_CONTENT_TYPES)[number];

/** 5 GiB: what S3 takes in a request, and more than browsers like to send. */
export const DOCUMENT_BYTES_MAX = 5 * 1_024 ** 3;

/** @param contentType as `tidyMediaType` writes it */
export function liveContentType(contentType: string): LiveContentType {
  return new MIMEType(contentType).essence === "text/markdown" ? "MARKDOWN" : "NONE";
}
