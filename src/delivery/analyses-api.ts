import type { ClientBase, Pool } from "pg";
import { z } from "zod";
import { analysisId, id, targetUrl } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { findMovedTo } from "../base/database/account-rows.ts";
import { isTransactionConflict } from "../base/database/transaction.ts";
import { ANALYSIS_STATUSES } from "../base/model/events.ts";
import type { Reader } from "../base/model/reader.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/host.ts";
import { LockWaitError } from "../http/idempotent-write.ts";
import { JSON_LEVELS_MAX } from "../http/limits.ts";
import { bytesResponse, jsonResponse, type Operation, rawBody } from "../http/operation.ts";
import { accountMoved, type FieldError, invalidRequest, Problem } from "../http/problems.ts";
import { endOfString, orRefuse, utf8 } from "../http/request-validation.ts";
import { type PublishRefusalCode, PublishRefusedError } from "../publish/publish-call-sql.ts";
import { findAnalysis, publishWrites } from "./analyses-sql.ts";
import { type EraseFromRuns, eraseAnalysis } from "./erase-sql.ts";

/** What `POST /v1/analyses` was sent. */
type AnalysisBody = {
  /** The text of the member `analysis` as sent; its UTF-8 is what was received, byte for byte. */
  readonly analysis: string;
  /** Empty where there is none: publishing says what is wrong with it. */
  readonly analysisId: string;
  /** Null, too, if missing. */
  readonly webhookUrl: string | null;
};

/**
 * Cuts the analysis out of the body by position, because re-serializing would change it: numbers beyond 2^53,
 * duplicate members, whitespace, escapes.
 *
 * @throws Problem
 */
export function readAnalysisBody(bytes: Uint8Array): AnalysisBody {
  const text = orRefuse(() => utf8.decode(bytes), "The body is not valid UTF-8.");
  // What passes has unambiguous tokens.
  const value: unknown = orRefuse(() => JSON.parse(text), "The body is not valid JSON.");
  if (!text.trimStart().startsWith("{")) {
    throw invalidRequest("body", 'Must be an object with a field "analysis".');
  }
  const found = new Map<string, Member>();
  for (const member of outerMembers(text)) {
    const path = `body.${member.name}`;
    if (!KNOWN.has(member.name)) throw invalidRequest(path.slice(0, 100), "Unknown field.");
    if (found.has(member.name)) throw invalidRequest(path, "Duplicate field.");
    found.set(member.name, member);
  }
  const analysis = found.get("analysis");
  if (analysis === undefined) throw invalidRequest("body.analysis", "Missing.");
  if (analysis.levels > JSON_LEVELS_MAX) {
    const message = `Nested more than ${JSON_LEVELS_MAX} levels deep.`;
    throw new Problem("invalid_analysis", { errors: [{ path: "body.analysis", message }] });
  }
  const members = value as {
    readonly analysis: { readonly id?: unknown } | null;
    readonly webhook_url?: unknown;
  };
  const id = members.analysis?.id;
  const url = members.webhook_url ?? null;
  if (typeof url !== "string" && url !== null) {
    throw invalidRequest("body.webhook_url", "Must be a string or null.");
  }
  return { analysis: analysis.text, analysisId: typeof id === "string" ? id : "", webhookUrl: url };
}

const KNOWN: ReadonlySet<string> = new Set(["analysis", "webhook_url"]);

/** `levels`: nesting depth of the value; 0: neither object nor array. */
type Member = { readonly name: string; readonly text: string; readonly levels: number };

/** The outermost object's members. `text` is known to be valid JSON, and an object. */
function* outerMembers(text: string): Generator<Member> {
  let [level, levels, string, name] = [0, 0, 0, ""];
  let start: number | null = null;
  for (let index = 0; index < text.length; index++) {
    const char = text[index];
    const isClosing = char === "}" || char === "]";
    if (start !== null && level === 1 && (isClosing || char === ",")) {
      yield { name, text: text.slice(start, index).trim(), levels };
      [start, levels] = [null, 0];
    }
    if (isClosing) level--;
    else if (char === "{" || char === "[") levels = Math.max(levels, level++);
    else if (char === '"') {
      string = index;
      index = endOfString(text, index);
    } else if (char === ":" && level === 1) {
      name = JSON.parse(text.slice(string, index));
      start = index + 1;
    }
  }
}

const { batchedWrite, read, write } = operationsOf("Analyses");

/** Room in a request for everything but the analysis: the URL, names, whitespace. */
const ENVELOPE_BYTES = 16_384;

const Analysis = z.looseObject({ id: analysisId, status: z.enum(ANALYSIS_STATUSES) }).meta({
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

const ErasedAnalysis = z
  .object({
    analysis_id: analysisId,
    delivery_id: id
      .nullable()
      .describe("Null: of a run that has published nothing, or not known any more, after a restore."),
    in_flight: z.boolean().describe("An attempt was under way, which may still arrive."),
    came_from: z
      .array(z.string())
      .describe(
        "The cells that the account was in before, or was copied to, the last one last: each may have the text until " +
          "its operator deletes it. `(unnamed)`: one without a name.",
      ),
  })
  .meta({ id: "ErasedAnalysis", description: "The analysis that was erased, and its delivery." });

/**
 * Publishes with what `database` is, knowing which of these (their indices) are not their users' to publish, by their
 * ids. That stays so until it has been committed. @throws what is in the way for longer than `lockWaitMs`
 */
export type GuardPublishing = <T>(
  pool: Pool,
  asked: readonly {
    readonly accountId: string;
    /** Null: for none, who may publish whatever it is called. */
    readonly userId: string | null;
    readonly analysisId: string;
  }[],
  lockWaitMs: number,
  publish: (database: Pool | ClientBase, refused: ReadonlySet<number>) => Promise<T>,
) => Promise<T>;

/** What the operations of analyses, the endpoint and signing secrets depend on. */
export type AnalysisDependencies = {
  readonly pool: Pool;
  /** How long an analysis stays readable after it was published. */
  readonly analysisRetentionMs: number;
  readonly analysisBytesMax: number;
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  /** Opens and seals signing secrets. */
  readonly secretsKey: SecretsKey;
  readonly guardPublishing: GuardPublishing;
  readonly eraseFromRuns: EraseFromRuns;
  readonly seesRun: (database: ClientBase | Pool, reader: Reader, id: string) => Promise<boolean>;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};

/** Of a UUID, with which the id of what one of its nodes waits for begins. */
const RUN_ID_LENGTH = 36;

/** Publishing and reading analyses. */
export function analysisOperations({
  pool,
  analysisRetentionMs,
  analysisBytesMax,
  unsafeAllowedTargets,
  secretsKey,
  guardPublishing,
  eraseFromRuns,
  seesRun,
  now,
}: AnalysisDependencies): readonly Operation[] {
  const isErasable = async (tx: ClientBase, reader: Reader, id: string) =>
    (await findAnalysis(tx, reader, id)) !== null || (await seesRun(tx, reader, id));
  return [
    read({
      key: "analyses.get",
      summary: "Get an analysis",
      description:
        "The analysis exactly as it was published, byte for byte the `data` of its webhook. Readable for 7 days, " +
        "or until it is erased, then 410; 404 until it is published. Where its account has moved to another cell, " +
        "409 once it is deleted here.",
      path: "/v1/analyses/{analysis_id}",
      scope: "analyses:read",
      params: z.strictObject({ analysis_id: analysisId }),
      response: bytesResponse({ mediaType: "application/json", documentedAs: Analysis }),
      errors: ["not_found", "analysis_expired", "analysis_erased", "account_moved"],
      handle: async ({ accountId, reader: readerOf, params, problem }) => {
        const [reader, id] = [await readerOf(), params.analysis_id];
        const found = await findAnalysis(pool, reader, id);
        if (found === null) {
          // A reference from before a move leads here.
          const cell = await findMovedTo(pool, accountId);
          if (cell !== null) throw accountMoved(cell);
          // What a run has not published, nor was given, is in no log that would tell its space.
          const isOfRun =
            reader.spaceIds !== null && (await seesRun(pool, reader, id.slice(0, RUN_ID_LENGTH)));
          const erased = isOfRun ? await findAnalysis(pool, { ...reader, spaceIds: null }, id) : null;
          throw problem(erased?.isErased ? "analysis_erased" : "not_found");
        }
        if (found.isErased) throw problem("analysis_erased");
        const hasExpired = now() >= found.publishedAtMs + analysisRetentionMs;
        if (found.text === null || hasExpired) throw problem("analysis_expired");
        return { bytes: Buffer.from(found.text) };
      },
    }),
    write({
      key: "analyses.erase",
      summary: "Erase an analysis",
      description:
        "Erases the text of an analysis, and what its receivers and workflow runs have left of it, for ever: reading " +
        "it is 410 from now on. Its delivery makes no more attempts; one under way may still arrive (`in_flight`). " +
        "The log keeps the delivery without its text, the feed its place with `data: null`, and the id stays taken: " +
        "publishing it again changes nothing. A run that works with it is cancelled, and what it has published is " +
        "erased, too. With a run's own analysis go those that its nodes were given, and with any of them the input " +
        "of a run that has succeeded; any other keeps it, to be retried. The id of a run that has published nothing " +
        "ends that run, and erases what it holds, its input, too. " +
        "A key that acts for a user needs `can_delete` in the space of the run, or of its analysis.",
      method: "DELETE",
      path: "/v1/analyses/{analysis_id}",
      scope: "analyses:erase",
      risk: "irreversible",
      params: z.strictObject({ analysis_id: analysisId }),
      audit: ({ params }) => ({ analysis_id: params.analysis_id }),
      judgeRepeat: async ({ reader, params }, tx) =>
        (await isErasable(tx, await reader(tx), params.analysis_id)) ? "again" : "gone",
      response: jsonResponse(200, ErasedAnalysis),
      errors: ["not_found", "access_denied"],
      handle: async ({ accountId, reader, caller, params: { analysis_id }, problem }, tx) => {
        const isSeen = await isErasable(tx, await reader(tx), analysis_id);
        const erased = isSeen ? await eraseAnalysis(tx, eraseFromRuns, accountId, analysis_id, caller) : null;
        if (erased === null) throw problem("not_found");
        if (erased === "refused") throw problem("access_denied");
        const { deliveryId, inFlight, cameFrom } = erased;
        const came_from = [...cameFrom];
        return { body: { analysis_id, delivery_id: deliveryId, in_flight: inFlight, came_from } };
      },
    }),
    batchedWrite({
      key: "analyses.publish",
      summary: "Publish a completed analysis",
      description:
        "Stores the analysis byte for byte and delivers it by webhook. Publishing it again returns the same delivery " +
        `and does nothing else. The analysis has at most ${analysisBytesMax} bytes, and its \`id\` and ` +
        "`status` have no escape sequences.",
      method: "POST",
      path: "/v1/analyses",
      scope: "analyses:publish",
      mode: "async",
      body: rawBody({ documentedAs: NewAnalysis, bytesMax: analysisBytesMax + ENVELOPE_BYTES }),
      audit: {
        elsewhere: "the request's log line names key, account and request: there are millions of these",
      },
      response: jsonResponse(202, Published),
      errors: ["analysis_conflict", "target_refused", "invalid_analysis"],
      prepare: ({ body, traceparent }) => {
        const item = { ...readAnalysisBody(body), traceparent };
        // Without an id it is refused, however many there are.
        return { item, name: item.analysisId === "" ? null : item.analysisId };
      },
      handleEach: async (writes, lockWaitMs) => {
        const answerTo = (analysisId: string, deliveryId: string) => ({
          body: { analysis_id: analysisId, delivery_id: deliveryId },
        });
        const named = writes.map(({ claim: { accountId }, userId, item }) => {
          return { accountId, userId, analysisId: item instanceof Problem ? "" : item.analysisId };
        });
        const publishing = guardPublishing(pool, named, lockWaitMs, (database, refused) => {
          const asked = writes.map(({ claim, userId, item, respond }, n) => {
            const refusal = refused.has(n) ? new Problem("analysis_conflict") : item;
            if (refusal instanceof Problem) return { claim, userId, analysis: null, refusal };
            const { analysisId } = refusal;
            const answer = (deliveryId: string) => respond(answerTo(analysisId, deliveryId));
            return { claim, userId, ...refusal, answer };
          });
          return publishWrites(database, asked, { secretsKey, unsafeAllowedTargets, lockWaitMs });
        });
        const results = await publishing.catch((error: unknown) => {
          if (!isTransactionConflict(error)) throwAsProblem(error);
          throw new LockWaitError("another transaction was in the way", { cause: error });
        });
        return results.map((result, n) => {
          if (result instanceof PublishRefusedError) return problemOf(result);
          return "deliveryId" in result ? answerTo(named[n]!.analysisId, result.deliveryId) : result;
        });
      },
    }),
  ];
}

/** What publishing refuses, as the problem that tells of it. */
export function throwAsProblem(error: unknown): never {
  throw error instanceof PublishRefusedError ? problemOf(error) : error;
}

/** The problem, and the part of the request that it is about. Null: no request of ours can cause it. */
const PROBLEMS = {
  invalid_analysis: ["invalid_analysis", "body.analysis"],
  target_refused: ["target_refused", "body.webhook_url"],
  analysis_conflict: ["analysis_conflict", null],
  account_moved: ["account_moved", "account"],
  account_full: ["storage_full", "account"],
  analysis_too_large: ["payload_too_large", null],
  unknown_account: null,
  invalid_request: null,
} as const satisfies Record<PublishRefusalCode, readonly [code: string, path: string | null] | null>;

function problemOf(refusal: PublishRefusedError): Problem {
  const problem = PROBLEMS[refusal.code];
  if (!problem) throw refusal;
  const [code, path] = problem;
  return new Problem(code, { errors: path === null ? [] : [fieldError(path, refusal)], cause: refusal });
}

/** What is wrong and what to do. Publishing words its messages for batches; here there is only one. */
function fieldError(path: string, { message, remedy }: PublishRefusedError): FieldError {
  const fault = message.replace(/^analysis at index 0: (?:its webhook_url is refused: )?/, "");
  const isWhole = fault.endsWith(remedy);
  const sentence = `${fault.charAt(0).toUpperCase()}${fault.slice(1)}`.replace(/[^.]$/, "$&.");
  return { path, message: isWhole ? sentence : `${sentence} ${remedy}` };
}
