import { createHash } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { MIMEType } from "node:util";
import { isUuid } from "../../base/model/formats.ts";
import type { ItemErrorCode } from "../model/workflows.ts";
import { readMovedObject } from "../objects/known-store.ts";
import { ObjectNotFoundError } from "../objects/object-store.ts";
import { readDocument } from "../store/documents.ts";
import type { Item } from "../store/node-runs.ts";
import type { InputPlace, NodeStep } from "./node-step.ts";

type WordCount = { readonly word: string; readonly count: number };

/** No language's words are longer; what is, is data, and would make its item as long. */
const WORD_CHARS_MAX = 64;

const segmenter = new Intl.Segmenter("en", { granularity: "word" });
/** A millisecond, of each of a dozen texts: other accounts' steps go on in between. */
const SEGMENTS_AT_ONCE = 500;

/** @param topWords how many of the most frequent words are told */
export async function analyzeText(text: string, topWords: number) {
  const counts = new Map<string, number>();
  let words = 0;
  let segments = 0;
  for (const { segment, isWordLike } of segmenter.segment(text)) {
    if (++segments % SEGMENTS_AT_ONCE === 0) await setImmediate();
    if (!isWordLike) continue;
    words++;
    if (segment.length > WORD_CHARS_MAX) continue;
    const word = segment.toLowerCase();
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  // The language is not offered: what guesses it well takes 90 MB of memory.
  return { lines: countLines(text), words, language: null, top_words: mostFrequent(counts, topWords) };
}

/**
 * The most frequent first; of those that are as frequent, in the order of the alphabet. Sorting all of them took a
 * second where each word stands once, and few are wanted.
 */
function mostFrequent(counts: ReadonlyMap<string, number>, countMax: number): readonly WordCount[] {
  const top: WordCount[] = [];
  for (const [word, count] of counts) {
    const isBehind = (other: WordCount) =>
      other.count > count || (other.count === count && other.word < word);
    if (top.length === countMax && isBehind(top[countMax - 1]!)) continue;
    top.splice(top.findLastIndex(isBehind) + 1, 0, { word, count });
    if (top.length > countMax) top.pop();
  }
  return top;
}

/** The last one may end without a line break. */
function countLines(text: string): number {
  const breaks = text.match(/\r\n|\n|\r/g)?.length ?? 0;
  return text === "" || /[\r\n]$/.test(text) ? breaks : breaks + 1;
}

/** What a step reads within seconds, from whatever store. */
const DOCUMENT_BYTES_MAX = 256 * 1_024 ** 2;
/** Counting the words of so many takes half a second, and their text is in memory. */
const TEXT_BYTES_MAX = 1_024 ** 2;

type Analyzing = Parameters<NodeStep<"analyze">>[0];
type Found = Awaited<ReturnType<typeof find>>;

/** Reads a document of the space once, as a stream. `text`: null, it is no text, or a long one. */
async function analyzeDocument(input: Analyzing, document: Found): Promise<Item | ItemErrorCode> {
  if (document === null) return "document_not_found";
  const { content_type, file_size, storage_key } = document;
  if (!document.has_content) return "document_not_uploaded";
  if (file_size > DOCUMENT_BYTES_MAX) return "document_too_large";
  const isText = new MIMEType(content_type).type === "text" && file_size <= TEXT_BYTES_MAX;
  const read = (key: string) => readObject(input, key, isText);
  const findKey = async () => (await find(input, document.id))?.storage_key ?? null;
  try {
    const { text, ...facts } = await readMovedObject(storage_key, read, findKey);
    const { top_words } = input.node.parameters;
    const analysis = text && (await analyzeText(decode(text, content_type), top_words));
    return { content_type, ...facts, text: analysis };
  } catch (error) {
    if (error instanceof ObjectNotFoundError) return "document_gone";
    throw error;
  }
}

/** @param documentId whatever the item says: whoever started the run may have named any other */
async function find({ pool, accountId, spaceId }: Analyzing, documentId: unknown) {
  if (typeof documentId !== "string" || !isUuid(documentId.toLowerCase())) return null;
  return await readDocument(pool, accountId, spaceId, documentId);
}

async function readObject({ objects, signal }: Analyzing, key: string, isText: boolean) {
  const { body } = await objects.get(key, null, signal);
  const hash = createHash("sha256");
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += chunk.length;
    if (isText) chunks.push(chunk);
  }
  return { bytes, sha256: hash.digest("hex"), text: isText ? Buffer.concat(chunks) : null };
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

/** A step begins no further document once it has taken this long. */
const STEP_MS = 500;
const ITEMS_PER_STEP = 100;
/** At a time: a store that is far away answers one slowly, and many as fast. */
const ITEMS_AT_ONCE = 4;
/** Together; what is larger is read alone, as the time is looked at only between them. */
const BYTES_AT_ONCE_MAX = 2 * 1_024 ** 2;

/** Says of each document what it has in it. */
export const analyze: NodeStep<"analyze"> = async (input) => {
  const startedMs = performance.now();
  const { items: given, isEnd } = await input.readInput(input.position as InputPlace | null, ITEMS_PER_STEP);
  const items: Item[] = [];
  do {
    input.signal.throwIfAborted();
    const next = given.slice(items.length, items.length + ITEMS_AT_ONCE).map(({ item }) => item);
    const found = await Promise.all(next.map((item) => find(input, item.document_id)));
    // None is left behind when another one fails: each holds a file or a connection.
    let bytes = 0;
    const analyses = found
      .filter((document, n) => {
        bytes += document?.file_size ?? 0;
        return n === 0 || bytes <= BYTES_AT_ONCE_MAX;
      })
      .map((document, n) => analyzed(input, next[n]!, document));
    await Promise.allSettled(analyses);
    items.push(...(await Promise.all(analyses)));
  } while (items.length < given.length && performance.now() - startedMs < STEP_MS);
  return isEnd && items.length === given.length
    ? { kind: "succeeded", items }
    : { kind: "progressed", items, position: given[items.length - 1]!.place };
};

const messages: Readonly<Record<ItemErrorCode, string>> = {
  document_not_found: "The workflow's space has no such document.",
  document_not_uploaded: "The document has no content yet.",
  document_gone: "The document's content is missing.",
  document_too_large: "The document is too large to be analyzed.",
};

async function analyzed(input: Analyzing, item: Item, document: Found): Promise<Item> {
  if (!("document_id" in item)) return { ...item, analysis: null };
  const result = await analyzeDocument(input, document);
  return typeof result === "string"
    ? { ...item, analysis: null, error: { code: result, message: messages[result] } }
    : { ...item, analysis: result };
}
