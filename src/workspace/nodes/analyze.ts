import type { Pool } from "pg";
import type { ItemErrorCode } from "../model/runs.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import type { Item } from "../store/node-items.ts";
import { analyzeDocument, type DocumentAnalysis } from "./document-analysis.ts";
import type { InputItem, InputPlace, NodeStep } from "./node-step.ts";

/** A step begins no further document once it has taken this long. */
const STEP_MS = 500;
const ITEMS_PER_STEP = 100;
/** At a time: a store that is far away answers one slowly, and many as fast. */
const ITEMS_AT_ONCE = 4;

/** Says of each document what it has in it. */
export function createAnalyzeStep(pool: Pool, objects: ObjectStore): NodeStep<"analyze"> {
  return async ({ node, accountId, spaceId, position, signal, readInput }) => {
    const startedMs = performance.now();
    const { items: input, isEnd } = await readInput(position as InputPlace | null, ITEMS_PER_STEP);
    const analyze = async ({ item }: InputItem): Promise<Item> => {
      if (!("document_id" in item)) return { ...item, analysis: null };
      const document = { accountId, spaceId, documentId: item.document_id };
      const options = { topWords: node.parameters.top_words, signal };
      return analyzed(item, await analyzeDocument({ pool, objects }, document, options));
    };
    const items: Item[] = [];
    do {
      signal.throwIfAborted();
      const next = input.slice(items.length, items.length + ITEMS_AT_ONCE);
      // None is left behind when another one fails: each holds a file or a connection.
      const analyses = await Promise.allSettled(next.map(analyze));
      for (const analysis of analyses) {
        if (analysis.status === "rejected") throw analysis.reason;
        items.push(analysis.value);
      }
    } while (items.length < input.length && performance.now() - startedMs < STEP_MS);
    return isEnd && items.length === input.length
      ? { kind: "succeeded", items }
      : { kind: "progressed", items, position: input[items.length - 1]!.place };
  };
}

const messages: Readonly<Record<ItemErrorCode, string>> = {
  document_not_found: "The workflow's space has no such document.",
  document_not_uploaded: "The document has no content yet.",
  document_gone: "The document's content is missing.",
  document_too_large: "The document is too large to be analysed.",
};

function analyzed(item: Item, result: DocumentAnalysis | ItemErrorCode): Item {
  return typeof result === "string"
    ? { ...item, analysis: null, error: { code: result, message: messages[result] } }
    : { ...item, analysis: result };
}
