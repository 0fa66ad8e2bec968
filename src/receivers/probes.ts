import { randomBytes, randomUUID } from "node:crypto";
import { type Answer, explainAnswer } from "../base/model/answered-by.ts";
import { explainErrorCode } from "../base/model/error-codes.ts";
import type { Explanation } from "../base/model/statuses.ts";
import {
  exampleAnalysis,
  importWebhookKey,
  signedHeaders,
  type WebhookHeaders,
  type WebhookKey,
  webhookBody,
  webhookHeaders,
  webhookId,
} from "../delivery/webhook.ts";
import type { Poster, PostRequest } from "../egress/post/post.ts";
import type { PostResult } from "../egress/post/result.ts";

/** The probes' names in reports; stable. */
export const PROBE_NAMES = [
  "genuine",
  "odd_spacing",
  "odd_number",
  "two_signatures_right_first",
  "two_signatures_right_last",
  "same_delivery_again",
  "wrong_secret",
  "changed_body",
  "too_old",
  "too_far_ahead",
  "header_missing",
  "header_malformed",
  "signature_missing",
  "signature_empty",
] as const;

export type ProbeName = (typeof PROBE_NAMES)[number];

/** One POST of a probe, and the headers that sign it. */
export type ProbePost = { readonly body: Buffer } & Pick<WebhookHeaders, "signature" | "standard">;

export type Probe = {
  readonly name: ProbeName;
  /** What is sent, in words. */
  readonly sent: string;
  /** Whether a correct receiver responds with 2xx. */
  readonly isGenuine: boolean;
  /** Sent one after the other. */
  readonly posts: readonly ProbePost[];
};

/** Twice the tolerance: a receiver whose clock is slightly off still rejects it. */
const OUT_OF_TIME_SECONDS = 600;

export type ProbesOptions = {
  /** The account's valid secrets, the current first. */
  readonly secrets: readonly string[];
  /** Whether the account's webhooks have the headers of Standard Webhooks, too. */
  readonly signsStandard?: boolean | undefined;
  /** Unix time in milliseconds, by a correct clock. */
  readonly nowMs: number;
};

/** All probes of a check. The forged ones are real events too: whoever accepts one would have acted on it. */
export function createProbes({ secrets, signsStandard, nowMs }: ProbesOptions): readonly Probe[] {
  const keys = secrets.map(importWebhookKey);
  const stranger = importWebhookKey(`whsec_${randomBytes(32).toString("base64")}`);
  const nowSeconds = Math.floor(nowMs / 1_000);

  const newBody = (more?: string) => exampleBody(nowMs, more);
  const sign = (body: Buffer, by: readonly WebhookKey[] = keys, atMs = nowMs): ProbePost => ({
    body,
    ...signedHeaders(body, by, atMs, signsStandard ? webhookId(body) : null),
  });
  /** @param standard in place of Standard Webhooks' signature; null: without its header */
  const unsigned = (signature: string, standard: string | null): ProbePost => {
    const signed = sign(newBody()).standard;
    const { "webhook-signature": _, ...rest } = signed ?? {};
    const other = standard === null ? rest : { ...rest, "webhook-signature": standard };
    return { body: newBody(), signature, ...(signed && { standard: other }) };
  };

  const again = sign(newBody());
  const before = newBody('"pages":3');
  const changed = Buffer.from(before.toString().replace('"pages":3', '"pages":4'));
  return [
    genuine("genuine", "a webhook as it is delivered", sign(newBody())),
    genuine(
      "odd_spacing",
      "the same with unusual whitespace and \\u00e9 in its JSON",
      sign(newBody('"note" :  "caf\\u00e9" ,\t"pages": [ ]')),
    ),
    genuine("odd_number", "the same with the number 1E400 in its JSON", sign(newBody('"ratio":1E400'))),
    genuine(
      "two_signatures_right_first",
      "two signatures, as during a secret's rotation: the valid one first",
      sign(newBody(), [...keys, stranger]),
    ),
    genuine(
      "two_signatures_right_last",
      "two signatures, as during a secret's rotation: the valid one last",
      sign(newBody(), [stranger, ...keys]),
    ),
    genuine("same_delivery_again", "one delivery twice, as when a response gets lost", again, again),
    forged("wrong_secret", "a webhook signed with another secret", sign(newBody(), [stranger])),
    forged("changed_body", "a webhook that was modified after signing", { ...sign(before), body: changed }),
    forged(
      "too_old",
      `a webhook signed ${OUT_OF_TIME_SECONDS} seconds ago`,
      sign(newBody(), keys, nowMs - OUT_OF_TIME_SECONDS * 1_000),
    ),
    forged(
      "too_far_ahead",
      `a webhook with a timestamp ${OUT_OF_TIME_SECONDS} seconds in the future`,
      sign(newBody(), keys, nowMs + OUT_OF_TIME_SECONDS * 1_000),
    ),
    forged("header_missing", "a webhook without the signature header", { body: newBody(), signature: null }),
    forged("header_malformed", "a malformed signature header", unsigned("not a signature", "no signature")),
    forged(
      "signature_missing",
      "a signature header with only a timestamp",
      unsigned(`t=${nowSeconds}`, null),
    ),
    forged(
      "signature_empty",
      "a signature header with an empty signature",
      unsigned(`t=${nowSeconds},v1=`, "v1,"),
    ),
  ];
}

/** @param more members of the analysis, as they are sent */
export function exampleBody(createdAtMs: number, more?: string): Buffer {
  const analysisText = exampleAnalysis("analysis.succeeded", `example-${randomUUID()}`, more);
  return webhookBody({ id: randomUUID(), event: "analysis.succeeded", createdAtMs, analysisText });
}

function genuine(name: ProbeName, sent: string, ...posts: readonly ProbePost[]): Probe {
  return { name, sent, isGenuine: true, posts };
}

function forged(name: ProbeName, sent: string, ...posts: readonly ProbePost[]): Probe {
  return { name, sent, isGenuine: false, posts };
}

/** The outcome of a probe's POST, as far as a verdict needs it. */
export type ProbeAnswer = Pick<
  PostResult,
  "statusCode" | "errorCode" | "durationMs" | "responseHeaders" | "responseExcerpt" | "isRefusal"
>;

/** A probe with the responses to its POSTs: fewer than POSTs if time ran out. */
export type Probed<Sent = Probe> = { readonly probe: Sent; readonly answers: readonly ProbeAnswer[] };

/** The deadline is each POST's. */
export type ProbingOptions = Pick<PostRequest, "url" | "deadlineMs" | "admit" | "hide"> &
  Pick<Poster, "post"> &
  Pick<WebhookHeaders, "publicUrl" | "added"> & {
    /** On the monotonic clock: those of all probes. */
    readonly endsAtMs: number;
    /** What was sent before all others; `isLast`: nothing else is. */
    readonly first?: (Probed<unknown> & { readonly isLast: boolean }) | undefined;
  };

/** For all together. */
export const PROBES_LIMIT_MS = 18_500;
/** Beside twice the previous response time: with less, a POST could fail for lack of time. */
const SPARE_MS = 2_000;

/** Sends all probes side by side; the POSTs of one go out one after the other. */
export async function sendProbes<Sent extends Pick<Probe, "posts">>(
  probes: readonly Sent[],
  { url, post, deadlineMs, publicUrl, added, hide, admit, endsAtMs, first }: ProbingOptions,
): Promise<readonly Probed<Sent>[]> {
  const send = async (probe: Sent): Promise<Probed<Sent>> => {
    if (probe === first?.probe) return { probe, answers: first.answers };
    const answers: ProbeAnswer[] = [];
    if (first?.isLast) return { probe, answers };
    for (const { body, ...signed } of probe.posts) {
      const leftMs = endsAtMs - performance.now();
      const before = answers.at(-1) ?? first?.answers[0];
      if (before !== undefined && (before.isRefusal || leftMs < 2 * before.durationMs + SPARE_MS)) break;
      const headers = webhookHeaders({ ...signed, added, traceparent: null, publicUrl, isProbe: true });
      answers.push(await post({ url, headers, body, admit, hide, deadlineMs: Math.min(deadlineMs, leftMs) }));
    }
    return { probe, answers };
  };
  return await Promise.all(probes.map(send));
}

export type Findings = ReturnType<typeof findingsOf>;

/** The results of a check, of all its probes, by name. */
export function findingsOf(probed: readonly Probed[]) {
  const byName = new Map(probed.map((one) => [one.probe.name, one]));
  const find = (name: ProbeName) => byName.get(name)!;
  return {
    accepted: (name: ProbeName) => isAccepted(find(name)),
    /** It got a response, and the receiver was neither busy nor down: the response is about what was sent. */
    refused: (name: ProbeName) => {
      const answer = decisiveAnswer(find(name));
      return answer !== null && !isSuccess(answer) && !isMissing(answer);
    },
    decisive: (name: ProbeName) => decisiveAnswer(find(name)),
    /** At least one genuine POST got a 2xx, so a forgery that did not was recognized. */
    acceptsSomething: probed.some(({ probe, answers }) => probe.isGenuine && answers.some(isSuccess)),
    all: probed,
  };
}

/** A genuine probe: every POST got a 2xx. A forged one: any did. */
export function isAccepted({ probe, answers }: Probed): boolean {
  if (!probe.isGenuine) return answers.some(isSuccess);
  return answers.length === probe.posts.length && answers.every(isSuccess);
}

/** The first that is no 2xx, else the last. Null: nothing was sent. */
export function decisiveAnswer({ answers }: Probed): ProbeAnswer | null {
  return answers.find((answer) => !isSuccess(answer)) ?? answers.at(-1) ?? null;
}

export function isSuccess({ statusCode }: ProbeAnswer): boolean {
  return statusCode !== null && statusCode >= 200 && statusCode < 300;
}

/** No response, or one by which an overloaded receiver, or the proxy in front of it, sheds load. */
export function isMissing({ statusCode }: ProbeAnswer): boolean {
  return statusCode === null || PUTS_OFF.has(statusCode);
}

const PUTS_OFF: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** For whoever wants to know who gave it. */
export function answerOf({ statusCode, responseHeaders, responseExcerpt }: ProbeAnswer): Answer {
  return { statusCode, headers: responseHeaders, excerpt: responseExcerpt };
}

/** Of one that is no success. */
export function explainProbe(answer: ProbeAnswer): Explanation {
  return explainAnswer(answerOf(answer), explainErrorCode(answer.errorCode ?? "unexpected_failure"));
}

export function isRedirect({ statusCode }: ProbeAnswer): boolean {
  return statusCode !== null && statusCode >= 300 && statusCode < 400;
}
