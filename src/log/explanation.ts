import { type Answer, explainAnswer } from "../base/model/answered-by.ts";
import { explainEndReason, explainErrorCode } from "../base/model/error-codes.ts";
import { type Explanation, hasNothingLeft } from "../base/model/statuses.ts";
import { timeInWords } from "../base/model/time.ts";
import { parseRetryAfterMs } from "../delivery/schedule/retry-schedule.ts";
import type { LoggedAttempt, LoggedDelivery } from "./deliveries-sql.ts";

/** The fields of a logged delivery that its explanation depends on. */
export type Explainable = Omit<LoggedDelivery, "id" | "event" | "analysis_id" | "replay_id" | "target_url">;

/** What an explanation says more of where it is known. */
export type ExplanationContext = {
  /** Ms since the epoch; null: it never was. */
  readonly secretRotatedAtMs?: number | null;
  readonly lastAttempt?: (Pick<LoggedAttempt, "ended_at"> & Answered) | undefined;
};

/** What an attempt got in return; without it, its error code is all that is known. */
type Answered = Partial<
  Pick<LoggedAttempt, "error_code" | "status_code" | "response_headers" | "response_excerpt">
>;

/** What an explanation's sentences are about: what happened, what happens next and until when, what to do about it. */
const PARTS = ["cause", "next", "remedy"] as const;
type Said = readonly [part: (typeof PARTS)[number], text: string];

/**
 * A delivery in plain words, for readers of the log: what happened, what happens next and when, and what the customer
 * can do about it. Times are absolute, so that the text stays true as long as the row does not change.
 *
 * @param analysisRetentionMs how long a delivery can be replayed, and its analysis read, after it was published
 */
export function explainDelivery(
  delivery: Explainable,
  analysisRetentionMs: number,
  known: ExplanationContext = {},
): string {
  return sentences(...saidOf(delivery, analysisRetentionMs, known).map(([, text]) => text));
}

/** The same sentences by what they are about; null: nothing is said of that. */
export function explainInParts(
  delivery: Explainable,
  analysisRetentionMs: number,
  known: ExplanationContext,
): Readonly<Record<Said[0], string | null>> {
  const said = saidOf(delivery, analysisRetentionMs, known);
  const about = (part: Said[0]) =>
    sentences(...said.filter(([of]) => of === part).map(([, text]) => text)) || null;
  return { cause: about("cause"), next: about("next"), remedy: about("remedy") };
}

function saidOf(
  delivery: Explainable,
  analysisRetentionMs: number,
  known: ExplanationContext,
): readonly Said[] {
  const { status } = delivery;
  const mark: Said = ["next", delivery.is_example ? "This is a test event; its analysis is an example." : ""];
  switch (status) {
    case "pending":
      return [
        mark,
        ["cause", delivery.run === 1 ? "The event has not been delivered yet." : "A replay was requested."],
        ["next", whatIsNext(delivery, "The attempt")],
        // Of an earlier run: why there is another.
        ["next", delivery.last_error_code === null ? "" : `Before that: ${lastFailure(delivery, known)}`],
      ];
    case "failed":
      return [
        mark,
        ["cause", lastFailure(delivery, known)],
        ["next", whatIsNext(delivery, "The next attempt")],
        ["next", effectOfRetryAfter(delivery, known)],
        ["remedy", lastRemedy(delivery, known)],
        ["remedy", lastRotation(delivery, known)],
        [
          "next",
          delivery.in_flight || delivery.held || delivery.waits_for_proof
            ? ""
            : "To retry at once, replay it.",
        ],
      ];
    case "succeeded":
      return [
        mark,
        ["cause", `The receiver accepted the event${withStatus(delivery)}.`],
        ["next", "No action is needed."],
      ];
    case "abandoned":
      return [
        mark,
        ...whyAbandoned(delivery, known),
        ["remedy", lastRotation(delivery, known)],
        ["next", untilWhen(delivery, analysisRetentionMs)],
      ];
    default:
      throw new Error(`Unknown status ${status satisfies never}`);
  }
}

/** Whether its explanation depends on the signing secret. */
export function concernsSecret({ last_error_code }: Pick<Explainable, "last_error_code">): boolean {
  return last_error_code !== null && explainErrorCode(last_error_code).concernsSecret === true;
}

/** One attempt in plain words: what happened and what can be done; null for one that succeeded. */
export function explainAttempt(
  attempt: Pick<LoggedAttempt, "error_code" | "started_at"> & Answered,
  { secretRotatedAtMs }: ExplanationContext = {},
): string | null {
  const { error_code, started_at } = attempt;
  if (error_code === null) return null;
  const { message, remedy, concernsSecret } = explainAnswer(answerOf(attempt), explainErrorCode(error_code));
  if (concernsSecret !== true) return sentences(message, remedy);
  const when = secretRotatedAtMs == null || secretRotatedAtMs > Date.parse(started_at) ? "after" : "before";
  return sentences(message, remedy, rotationInWords(secretRotatedAtMs, `, ${when} this attempt`));
}

/** For whoever wants to know who gave it. */
export function answerOf({ status_code, response_headers, response_excerpt }: Answered): Answer {
  return {
    statusCode: status_code ?? null,
    headers: response_headers ?? null,
    excerpt: response_excerpt ?? null,
  };
}

/** What there is to say of the error of the last attempt; null: there is none. */
function lastError({ last_error_code: code }: Explainable, { lastAttempt }: ExplanationContext) {
  if (code === null) return null;
  const explained = explainErrorCode(code);
  // A URL that is refused for its text ends a run after attempts that were answered.
  return lastAttempt?.error_code === code ? explainAnswer(answerOf(lastAttempt), explained) : explained;
}

/** A wrong secret is what a rotation brings. */
function lastRotation(delivery: Explainable, known: ExplanationContext): string {
  return lastError(delivery, known)?.concernsSecret === true ? rotationInWords(known.secretRotatedAtMs) : "";
}

function rotationInWords(rotatedAtMs: number | null | undefined, more = ""): string {
  if (rotatedAtMs === undefined) return "";
  if (rotatedAtMs === null) return "The secret has never been rotated.";
  return `The secret was last rotated at ${timeInWords(rotatedAtMs)}${more}.`;
}

/** Times of the database that are further apart differ. */
const SAME_TIME_MS = 1_000;

function effectOfRetryAfter({ next_attempt_at }: Explainable, { lastAttempt }: ExplanationContext): string {
  const header = lastAttempt?.response_headers?.["retry-after"];
  if (lastAttempt === undefined || header === undefined || next_attempt_at === null) return "";
  const endedAtMs = Date.parse(lastAttempt.ended_at);
  const askedMs = parseRetryAfterMs(header, endedAtMs);
  const sent = `Retry-After: ${header}`;
  if (askedMs === null) return `The response's "${sent}" names no future time, and changed nothing.`;
  const earlyMs = Date.parse(next_attempt_at) - (endedAtMs + askedMs);
  if (Math.abs(earlyMs) <= SAME_TIME_MS) return `The receiver asked for that time with "${sent}".`;
  if (earlyMs > 0) return `The receiver's "${sent}" asks for no longer wait than that.`;
  return `The receiver's "${sent}" asks for a longer wait than the retry schedule allows; this is the longest.`;
}

function whatIsNext(delivery: Explainable, attempt: string): string {
  const { in_flight, held, waits_for_earlier_run, waits_for_proof, next_attempt_at } = delivery;
  if (waits_for_earlier_run) {
    return "It starts when the attempt in progress has ended, and is dropped if that one succeeds.";
  }
  if (in_flight) return `${attempt} is in progress.`;
  if (held) return HELD;
  if (waits_for_proof) return sentences(`${attempt} waits.`, UNPROVEN.message, UNPROVEN.remedy);
  if (next_attempt_at === null) return `${attempt} is due shortly.`;
  return `${attempt} is due at ${timeInWords(Date.parse(next_attempt_at))}.`;
}

const UNPROVEN = explainErrorCode("not_proven");

const HELD =
  "It is held because the endpoint is paused, or has only just been resumed. After it is resumed, what was held is " +
  "delivered oldest first, with all the attempts and time that were left.";

function lastFailure(delivery: Explainable, known: ExplanationContext): string {
  return lastError(delivery, known)?.message ?? "The last attempt failed.";
}

function lastRemedy(delivery: Explainable, known: ExplanationContext): string {
  const explained = lastError(delivery, known);
  return explained === null ? "" : remedyFor(delivery, explained);
}

function remedyFor({ target_source }: Explainable, { remedy, concernsUrl }: Explanation): string {
  return concernsUrl === true && target_source === "request" ? sentences(remedy, URL_STAYS) : remedy;
}

const URL_STAYS =
  "The URL came with the request and cannot be changed: to use another, publish the result under a new analysis id.";

function withStatus({ last_status_code }: Explainable): string {
  return last_status_code === null ? "" : ` with status ${last_status_code}`;
}

function whyAbandoned(delivery: Explainable, known: ExplanationContext): readonly Said[] {
  const { reason } = delivery;
  if (reason === null)
    return [
      ["cause", lastFailure(delivery, known)],
      ["remedy", lastRemedy(delivery, known)],
    ];
  const ended = explainEndReason(reason);
  const { message, remedy } = ended;
  switch (reason) {
    // The reason only says that it ended; the last attempt says why.
    case "attempts_exhausted":
    case "window_ended":
      if (delivery.attempts_count > 0 && delivery.last_error_code !== null)
        return [
          ["next", message],
          ["cause", lastFailure(delivery, known)],
          ["remedy", lastRemedy(delivery, known)],
        ];
      return [
        ["cause", message],
        ["remedy", delivery.attempts_count === 0 ? NONE_MADE : remedy],
      ];
    // The code says which rule the URL breaks.
    case "target_refused":
      return [
        ["cause", delivery.last_error_code === null ? message : lastFailure(delivery, known)],
        [
          "remedy",
          delivery.last_error_code === null ? remedyFor(delivery, ended) : lastRemedy(delivery, known),
        ],
      ];
    case "no_target":
      return [
        ["cause", delivery.attempts_count === 0 ? message : ENDPOINT_REMOVED],
        ["next", delivery.attempts_count === 0 ? "" : `Before that: ${lastFailure(delivery, known)}`],
        ["remedy", remedy],
      ];
    case "refused_by_receiver":
    case "analysis_expired":
    case "analysis_erased":
    case "interrupted":
      return [
        ["cause", message],
        ["remedy", remedyFor(delivery, ended)],
      ];
    default:
      throw new Error(`Unknown reason ${reason satisfies never}`);
  }
}

const NONE_MADE =
  "No attempt could be made in that time, which is not the receiver's fault: replay the delivery.";

const ENDPOINT_REMOVED =
  "The account's endpoint was removed, and the request had no webhook URL, so the next attempt had no target.";

/** From then on, replaying the delivery and reading the analysis return 410. */
function untilWhen(delivery: Explainable, analysisRetentionMs: number): string {
  const { created_at, reason } = delivery;
  if (hasNothingLeft(reason)) return "";
  const until = timeInWords(Date.parse(created_at) + analysisRetentionMs);
  if (isRefusedForGood(delivery)) return `The analysis can be read until ${until}.`;
  return `It can be replayed, and its analysis read, until ${until}.`;
}

/** The URL breaks a rule and a replay would not change it. */
function isRefusedForGood({ reason, target_source, last_error_code }: Explainable): boolean {
  if (reason !== "target_refused" || target_source !== "request") return false;
  return last_error_code === null || explainErrorCode(last_error_code).concernsUrl === true;
}

/** Joined, not concatenated: V8 keeps concatenated strings as ropes, which put JSON.stringify on its slow path. */
function sentences(...parts: readonly string[]): string {
  const said: string[] = [];
  for (const part of parts) if (part !== "") said.push(part);
  return said.join(" ");
}
