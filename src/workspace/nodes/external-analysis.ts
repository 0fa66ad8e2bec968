import type { Pool } from "pg";
import { wholeAccount } from "../../model/reader.ts";
import { findAnalysis } from "../../store/analyses.ts";
import type { Item } from "../store/node-items.ts";
import { NodeFailedError, type NodeStep } from "./node-step.ts";

/** Of what the failed analysis says of itself. */
const REASON_CHARS_MAX = 500;

/**
 * Waits until the analysis `<run id>:<node run id>` is published, by whoever makes it, and hands it on. It is one like
 * any other: what publishes it knows nothing of runs.
 */
export function createExternalAnalysisStep(pool: Pool): NodeStep<"external_analysis"> {
  return async ({ node, accountId, runId, nodeRunId, startedAt, now }) => {
    const analysisId = `${runId}:${nodeRunId}`;
    const { timeout_seconds: seconds } = node.parameters;
    const until = new Date(startedAt.getTime() + seconds * 1_000);
    const found = await findAnalysis(pool, wholeAccount(accountId), analysisId);
    if (found === null && now < until) return { kind: "waiting", until, analysisId };
    if (found === null) {
      const message = `Nobody has published the analysis ${analysisId} within ${seconds} seconds. Start the run again.`;
      throw new NodeFailedError("external_analysis_missing", message);
    }
    if (found.text === null) {
      const message = `The analysis ${analysisId} was published, but is not kept any more. Start the run again.`;
      throw new NodeFailedError("external_analysis_missing", message);
    }
    const analysis = parse(found.text);
    if (analysis.status === "failed") {
      const message = `The analysis ${analysisId} has failed${reasonOf(analysis)}`;
      throw new NodeFailedError("external_analysis_failed", message);
    }
    return { kind: "succeeded", items: [analysis] };
  };
}

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
