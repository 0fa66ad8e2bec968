import { createHash } from "node:crypto";
import { MIMEType } from "node:util";
import type { Pool } from "pg";
import { isUuid } from "../../model/uuid.ts";
import type { ItemErrorCode } from "../model/runs.ts";
import { readMovedObject } from "../objects/moved-object.ts";
import { ObjectNotFoundError } from "../objects/object-errors.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import { type ReadDocument, readDocument } from "../store/document-reads.ts";
import { analyzeText, type TextAnalysis } from "./text-analysis.ts";

/** What a step reads within seconds, from whatever store. */
const DOCUMENT_BYTES_MAX = 256 * 1_024 ** 2;
/** Counting the words of so many takes half a second, and their text is in memory. */
const TEXT_BYTES_MAX = 1_024 ** 2;

export type DocumentAnalysis = {
  readonly content_type: string;
  readonly bytes: number;
  /** In hex. */
  readonly sha256: string;
  /** Null: it is no text, or a long one. */
  readonly text: TextAnalysis | null;
};

type Where = { readonly pool: Pool; readonly objects: ObjectStore };
type Which = { readonly accountId: string; readonly spaceId: string; readonly documentId: unknown };
type Options = { readonly topWords: number; readonly signal: AbortSignal };

/** Reads a document of the space once, as a stream. Whoever started the run may have named any other. */
export async function analyzeDocument(
  where: Where,
  which: Which,
  options: Options,
): Promise<DocumentAnalysis | ItemErrorCode> {
  const document = await find(where, which);
  if (document === null) return "document_not_found";
  if (!document.hasContent) return "document_not_uploaded";
  if (document.fileSize > DOCUMENT_BYTES_MAX) return "document_too_large";
  const isText = new MIMEType(document.contentType).type === "text" && document.fileSize <= TEXT_BYTES_MAX;
  const read = await readContent(where, which, document, isText, options.signal);
  if (read === null) return "document_gone";
  const { sha256, bytes, text } = read;
  return {
    content_type: document.contentType,
    bytes,
    sha256,
    text: text === null ? null : await analyzeText(decode(text, document.contentType), options.topWords),
  };
}

async function find(
  { pool }: Where,
  { accountId, spaceId, documentId }: Which,
): Promise<ReadDocument | null> {
  if (typeof documentId !== "string" || !isUuid(documentId.toLowerCase())) return null;
  return await readDocument(pool, accountId, spaceId, documentId);
}

type ReadContent = { readonly sha256: string; readonly bytes: number; readonly text: Buffer | null };

/** Null: it is nowhere. */
async function readContent(
  where: Where,
  which: Which,
  document: ReadDocument,
  isText: boolean,
  signal: AbortSignal,
): Promise<ReadContent | null> {
  const read = (key: string) => readObject(where.objects, key, isText, signal);
  const findKey = async () => (await find(where, which))?.storageKey ?? null;
  try {
    return await readMovedObject(document.storageKey, read, findKey);
  } catch (error) {
    if (error instanceof ObjectNotFoundError) return null;
    throw error;
  }
}

async function readObject(
  objects: ObjectStore,
  key: string,
  isText: boolean,
  signal: AbortSignal,
): Promise<ReadContent> {
  const { body } = await objects.get(key, null, signal);
  const hash = createHash("sha256");
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += chunk.length;
    if (isText) chunks.push(chunk);
  }
  return { sha256: hash.digest("hex"), bytes, text: isText ? Buffer.concat(chunks) : null };
}

/** In the charset that the type names, or UTF-8. What does not belong there becomes U+FFFD. */
function decode(bytes: Buffer, contentType: string): string {
  const charset = new MIMEType(contentType).params.get("charset") ?? "utf-8";
  try {
    return new TextDecoder(charset).decode(bytes);
  } catch {
    return new TextDecoder().decode(bytes);
  }
}
