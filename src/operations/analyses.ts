import type { ClientBase } from "pg";
import { z } from "zod";
import { type FieldError, Problem } from "../api/problems.ts";
import { bytesAnswer, jsonAnswer, rawBody } from "../api/shapes.ts";
import { ANALYSIS_STATUSES } from "../model/events.ts";
import { publish } from "../publish/publish-analyses.ts";
import { findAnalysis } from "../store/analyses.ts";
import { type Publication, PublishRefusedError } from "../store/publications.ts";
import { type AnalysisBody, AnalysisBodyError, readAnalysisBody } from "./analysis-body.ts";
import type { Dependencies } from "./dependencies.ts";
import { analysisId, id, targetUrl } from "./fields.ts";
import { read, type SealpostOperation, write } from "./sealpost-operation.ts";

const tag = "Analyses";

/** Room in a request for all that is not the analysis: the URL, the names, spaces. */
const ENVELOPE_BYTES = 16_384;

const Analysis = z.looseObject({ id: analysisId, status: z.enum(ANALYSIS_STATUSES) }).meta({
  id: "Analysis",
  description: "A completed analysis. Its other members are whatever was published.",
});

const NewAnalysis = z.strictObject({
  analysis: Analysis,
  webhook_url: targetUrl
    .nullable()
    .optional()
    .describe("Where to deliver this one: a public https:// URL. Overrides the account's endpoint."),
});

export const Published = z
  .object({ analysis_id: analysisId, delivery_id: id })
  .meta({ id: "Published", description: "What was published, and the delivery that tells of it." });

/** Publishing what the pipeline has completed, and reading it back. */
export function analysisOperations(dependencies: Dependencies): readonly SealpostOperation[] {
  const { pool, analysisRetentionMs, analysisBytesMax, unsafeAllowedTargets, now } = dependencies;
  return [
    read({
      key: "analyses.get",
      tag,
      summary: "Read an analysis",
      description:
        "The analysis exactly as it was published, byte for byte the `data` of its webhook. Readable for 7 days, " +
        "then 410. One that is not finished is a 404.",
      method: "GET",
      path: "/v1/analyses/{analysis_id}",
      scope: "analyses:read",
      params: z.strictObject({ analysis_id: analysisId }),
      answer: bytesAnswer({ mediaType: "application/json", documentedAs: Analysis }),
      errors: ["not_found", "analysis_expired"],
      handle: async ({ accountId, params, problem }) => {
        const found = await findAnalysis(pool, accountId, params.analysis_id);
        if (found === null) throw problem("not_found");
        const hasExpired = now() >= found.publishedAtMs + analysisRetentionMs;
        if (found.text === null || hasExpired) throw problem("analysis_expired");
        return { bytes: Buffer.from(found.text) };
      },
    }),
    write({
      key: "analyses.publish",
      tag,
      summary: "Publish a completed analysis",
      description:
        "Stores the analysis as it is written and delivers it by webhook. The same again answers the same delivery " +
        `and does nothing. The analysis has at most ${analysisBytesMax} bytes, and its \`id\` and ` +
        "`status` are written without escapes.",
      method: "POST",
      path: "/v1/analyses",
      scope: "analyses:publish",
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      body: rawBody({ documentedAs: NewAnalysis, bytesMax: analysisBytesMax + ENVELOPE_BYTES }),
      answer: jsonAnswer(202, Published),
      errors: ["analysis_conflict", "target_refused", "invalid_analysis"],
      handle: async ({ accountId, body, traceparent }, tx) => {
        const sent = readBody(body);
        const { analysis } = sent;
        const webhookUrl = readWebhookUrl(sent.webhookUrl);
        const publication = { accountId, analysis, webhookUrl };
        const delivery_id = await publishOne(tx, publication, { unsafeAllowedTargets, traceparent });
        // Publishing has found it to be a string, written without escapes.
        const { id: analysis_id } = sent.parsed as { readonly id: string };
        return { body: { analysis_id, delivery_id } };
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

/** @throws Problem for what publishing refuses */
async function publishOne(
  tx: ClientBase,
  publication: Publication,
  rules: Parameters<typeof publish>[2],
): Promise<string> {
  try {
    const [deliveryId] = await publish(tx, [publication], rules);
    if (deliveryId === undefined) throw new Error("publishing one analysis gave no delivery");
    return deliveryId;
  } catch (error) {
    throw error instanceof PublishRefusedError ? (problemOf(error) ?? error) : error;
  }
}

/** Null: a refusal that no request of ours can bring about. */
function problemOf(refusal: PublishRefusedError): Problem | null {
  const { code } = refusal;
  switch (code) {
    case "invalid_analysis":
      return new Problem(code, { errors: [fieldError("body.analysis", refusal)], cause: refusal });
    case "target_refused":
      return new Problem(code, { errors: [fieldError("body.webhook_url", refusal)], cause: refusal });
    case "analysis_conflict":
      return new Problem(code, { cause: refusal });
    case "analysis_too_large":
      return new Problem("payload_too_large", { cause: refusal });
    case "unknown_account":
    case "invalid_request":
      return null;
    default:
      throw new Error(`Unknown refusal ${code satisfies never}`);
  }
}

/** What is wrong and what to do. Publishing speaks of batches; here there is one. */
function fieldError(path: string, { message, remedy }: PublishRefusedError): FieldError {
  const fault = message.replace(/^analysis at index 0: (?:its webhook_url is refused: )?/, "");
  const isWhole = fault.endsWith(remedy);
  const sentence = `${fault.charAt(0).toUpperCase()}${fault.slice(1)}`.replace(/[^.]$/, "$&.");
  return { path, message: isWhole ? sentence : `${sentence} ${remedy}` };
}
