import { wholeAccount } from "../../base/model/reader.ts";
import { findAnalysis } from "../../delivery/analyses-sql.ts";
import type { NodeKind } from "../model/node-kinds.ts";
import { hasFolder, listUploaded } from "../store/documents.ts";
import type { Item } from "../store/node-runs.ts";
import { analyze } from "./analyze.ts";
import { type InputPlace, NodeFailedError, type NodeStep, type NodeStepResult } from "./node-step.ts";

const ITEMS_PER_STEP = 100;
const DOCUMENTS_PER_STEP = 500;
/** Of what the failed analysis says of itself. */
const REASON_CHARS_MAX = 500;

export type NodeSteps = { readonly [Kind in NodeKind]: NodeStep<Kind> };

/** Hands on the run's input. */
const begin = async ({ input }: { readonly input: Item }): Promise<NodeStepResult> => {
  return { kind: "succeeded", items: [input] };
};

/** What every kind of node does. */
export const NODE_STEPS: NodeSteps = {
  manual_trigger: begin,
  schedule_trigger: begin,
  hook_trigger: begin,

  /** Hands on an item for each document with content that lies in the folder, in the order of ids. */
  documents: async ({ pool, node, accountId, spaceId, position }) => {
    const { folder_id: folderId } = node.parameters;
    const place = { spaceId, folderId };
    if (!(await hasFolder(pool, accountId, place))) {
      const message = `The workflow's space has no folder ${folderId}. Choose another one for the node ${node.id}.`;
      throw new NodeFailedError("folder_not_found", message);
    }
    const after = position as string | null;
    const documents = await listUploaded(pool, accountId, place, after, DOCUMENTS_PER_STEP);
    const items = documents.map(({ id: document_id, file_name, content_type, file_size }) => {
      return { document_id, file_name, content_type, file_size };
    });
    const last = documents.at(-1);
    return last === undefined || documents.length < DOCUMENTS_PER_STEP
      ? { kind: "succeeded", items }
      : { kind: "progressed", items, position: last.id };
  },

  /** Hands its items on when the time has come. */
  wait: async ({ node, position, startedAt, now, readInput }) => {
    const { for_seconds, until: moment } = node.parameters;
    const until =
      moment === undefined ? new Date(startedAt.getTime() + (for_seconds ?? 0) * 1_000) : new Date(moment);
    if (until > now) return { kind: "waiting", until, analysisId: null };
    const input = await readInput(position as InputPlace | null, ITEMS_PER_STEP);
    const items = input.items.map(({ item }) => item);
    return input.isEnd
      ? { kind: "succeeded", items }
      : { kind: "progressed", items, position: input.items.at(-1)!.place };
  },

  analyze,

  /**
   * Waits until the analysis `<run id>:<node run id>` is published, by whoever makes it, and hands it on. It is one
   * like any other: what publishes it knows nothing of runs.
   */
  external_analysis: async ({ pool, node, accountId, runId, nodeRunId, startedAt, now }) => {
    const analysisId = `${runId}:${nodeRunId}`;
    const { timeout_seconds: seconds } = node.parameters;
    const until = new Date(startedAt.getTime() + seconds * 1_000);
    const found = await findAnalysis(pool, wholeAccount(accountId), analysisId);
    if (found === null && now < until) return { kind: "waiting", until, analysisId };
    if (found === null) {
      const message = `Nobody has published the analysis ${analysisId} within ${seconds} seconds. Start the run again.`;
      throw new NodeFailedError("external_analysis_missing", message);
    }
    if (found.text === null || found.isErased) {
      const message = `The analysis ${analysisId} was published, but is no longer kept. Start the run again.`;
      throw new NodeFailedError("external_analysis_missing", message);
    }
    const analysis = parse(found.text);
    if (analysis.status === "failed") {
      const message = `The analysis ${analysisId} has failed${reasonOf(analysis)}`;
      throw new NodeFailedError("external_analysis_failed", message);
    }
    return { kind: "succeeded", items: [analysis] };
  },
};

type Reviver = (key: string, value: unknown, context: { readonly source?: string }) => unknown;

/** TypeScript does not know the reviver's third argument yet. */
const parseJson = JSON.parse as (text: string, reviver: Reviver) => unknown;

/** A number out of range (`1e400`) is kept as text: as a number it would be null in what is handed on. */
function parse(text: string): Item {
  return parseJson(text, (_, value, { source }) =>
    typeof value === "number" && !Number.isFinite(value) ? source : value,
  ) as Item;
}

/** The end of the sentence, as the platform's analyses tell it. */
function reasonOf({ error_code, error_message }: Item): string {
  const told = [error_code, error_message]
    .filter((part) => typeof part === "string" && part !== "")
    .join(": ");
  // Neither PostgreSQL's text nor an analysis can hold NUL or a lone surrogate.
  const text = told
    .slice(0, REASON_CHARS_MAX)
    .toWellFormed()
    .replaceAll(/\p{Cc}/gu, " ");
  return text === "" ? "." : `: ${text}${/[.!?]$/.test(text) ? "" : "."}`;
}
