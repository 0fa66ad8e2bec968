import { z } from "zod";
import type { Operation } from "../api/operation.ts";
import { bytesResponse, jsonResponse, rawBody } from "../api/operation-io.ts";
import { type FieldError, Problem } from "../api/problems.ts";
import { ANALYSIS_STATUSES } from "../model/events.ts";
import { publishEach } from "../publish/publish-each.ts";
import { findAnalysis } from "../store/analyses.ts";
import { PublishRefusedError } from "../store/publish-call.ts";
import { type AnalysisBody, AnalysisBodyError, readAnalysisBody } from "./analysis-body.ts";
import { analysisId, id, targetUrl } from "./fields.ts";
import type { Dependencies } from "./sealpost-operation.ts";
import { batchedWrite, read } from "./sealpost-operation.ts";

const tag = "Analyses";

/** Room in a request for everything but the analysis: the URL, names, whitespace. */
const ENVELOPE_BYTES = 16_384;

export const Analysis = z.looseObject({ id: analysisId, status: z.enum(ANALYSIS_STATUSES) }).meta({
  id: "Analysis",
  description: "A completed analysis, with whatever other fields were published.",
});

const NewAnalysis = z.strictObject({
  analysis: Analysis,
  webhook_url: targetUrl
    .nullable()
    .optional()
    .describe("Where to deliver this analysis: a public https:// URL. Overrides the account's endpoint."),
});

export const Published = z
  .object({ analysis_id: analysisId, delivery_id: id })
  .meta({ id: "Published", description: "The published analysis and its delivery." });

/** Publishing and reading analyses. */
export function analysisOperations(dependencies: Dependencies): readonly Operation[] {
  const { pool, analysisRetentionMs, analysisBytesMax, unsafeAllowedTargets, now } = dependencies;
  return [
    read({
      key: "analyses.get",
      tag,
      summary: "Get an analysis",
      description:
        "The analysis exactly as it was published, byte for byte the `data` of its webhook. Readable for 7 days, " +
        "then 410; 404 until it is published.",
      method: "GET",
      path: "/v1/analyses/{analysis_id}",
      scope: "analyses:read",
      params: z.strictObject({ analysis_id: analysisId }),
      response: bytesResponse({ mediaType: "application/json", documentedAs: Analysis }),
      errors: ["not_found", "analysis_expired"],
      handle: async ({ reader, params, problem }) => {
        const found = await findAnalysis(pool, await reader(), params.analysis_id);
        if (found === null) throw problem("not_found");
        const hasExpired = now() >= found.publishedAtMs + analysisRetentionMs;
        if (found.text === null || hasExpired) throw problem("analysis_expired");
        return { bytes: Buffer.from(found.text) };
      },
    }),
    batchedWrite({
      key: "analyses.publish",
      tag,
      summary: "Publish a completed analysis",
      description:
        "Stores the analysis byte for byte and delivers it by webhook. Publishing it again returns the same delivery " +
        `and does nothing else. The analysis has at most ${analysisBytesMax} bytes, and its \`id\` and ` +
        "`status` have no escape sequences.",
      method: "POST",
      path: "/v1/analyses",
      scope: "analyses:publish",
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      body: rawBody({ documentedAs: NewAnalysis, bytesMax: analysisBytesMax + ENVELOPE_BYTES }),
      audit: {
        elsewhere: "the request's log line names key, account and request: there are millions of these",
      },
      response: jsonResponse(202, Published),
      errors: ["analysis_conflict", "target_refused", "invalid_analysis"],
      prepare: ({ accountId, body, traceparent }) => {
        const { analysis, parsed, webhookUrl } = readBody(body);
        const analysisId = idOf(parsed);
        const item = { accountId, analysis, analysisId, webhookUrl: readWebhookUrl(webhookUrl), traceparent };
        // Without an id it is refused, however many there are.
        return { item, name: analysisId === "" ? null : analysisId };
      },
      handleEach: async (items, tx) => {
        const results = await publishEach(tx, items, { unsafeAllowedTargets }).catch(throwAsProblem);
        return results.map((result, index) =>
          "refusal" in result
            ? problemOf(result.refusal)
            : { body: { analysis_id: items[index]!.analysisId, delivery_id: result.deliveryId } },
        );
      },
    }),
  ];
}

function readBody(bytes: Buffer): AnalysisBody {
  try {
    return readAnalysisBody(bytes);
  } catch (error) {
    if (!(error instanceof AnalysisBodyError)) throw error;
    const code = error.isAboutAnalysis ? "invalid_analysis" : "invalid_request";
    throw new Problem(code, { errors: [{ path: error.path, message: error.message }] });
  }
}

function readWebhookUrl(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "string") return value;
  const errors = [{ path: "body.webhook_url", message: "Must be a string or null." }];
  throw new Problem("invalid_request", { errors });
}

/** Empty where there is none: publishing says what is wrong with it. */
function idOf(parsed: unknown): string {
  const id = typeof parsed === "object" && parsed !== null && "id" in parsed ? parsed.id : null;
  return typeof id === "string" ? id : "";
}

/** What publishing refuses, as the problem that tells of it. */
export function throwAsProblem(error: unknown): never {
  throw error instanceof PublishRefusedError ? problemOf(error) : error;
}

/** @throws what no request of ours can cause */
function problemOf(refusal: PublishRefusedError): Problem {
  const { code } = refusal;
  switch (code) {
    case "invalid_analysis":
      return new Problem(code, { errors: [fieldError("body.analysis", refusal)], cause: refusal });
    case "target_refused":
      return new Problem(code, { errors: [fieldError("body.webhook_url", refusal)], cause: refusal });
    case "analysis_conflict":
      return new Problem(code, { cause: refusal });
    case "account_moved":
      return new Problem(code, { errors: [fieldError("account", refusal)], cause: refusal });
    case "account_full":
      return new Problem("storage_full", { errors: [fieldError("account", refusal)], cause: refusal });
    case "analysis_too_large":
      return new Problem("payload_too_large", { cause: refusal });
    case "unknown_account":
    case "invalid_request":
      throw refusal;
    default:
      throw new Error(`Unknown refusal ${code satisfies never}`);
  }
}

/** What is wrong and what to do. Publishing words its messages for batches; here there is only one. */
function fieldError(path: string, { message, remedy }: PublishRefusedError): FieldError {
  const fault = message.replace(/^analysis at index 0: (?:its webhook_url is refused: )?/, "");
  const isWhole = fault.endsWith(remedy);
  const sentence = `${fault.charAt(0).toUpperCase()}${fault.slice(1)}`.replace(/[^.]$/, "$&.");
  return { path, message: isWhole ? sentence : `${sentence} ${remedy}` };
}
