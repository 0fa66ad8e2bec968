import { importSigningKey, type SigningKey } from "../signing/index.ts";
import { exampleAnalysis, webhookBody } from "../webhook/envelope.ts";
import { webhookSignature } from "../webhook/headers.ts";

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

/** One POST of a probe. `header` null: sent without a signature header. */
export type ProbePost = { readonly body: Buffer; readonly header: string | null };

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
  /** Unix time in milliseconds. */
  readonly nowMs: number;
  /** Gives a new UUID. */
  readonly newId: () => string;
};

/** All probes of a check. The forged ones are real events too: whoever accepts one would have acted on it. */
export function createProbes({ secrets, nowMs, newId }: ProbesOptions): readonly Probe[] {
  const keys = secrets.map(importSigningKey);
  const stranger = importSigningKey(`whsec_${newId()}${newId()}`);
  const nowSeconds = Math.floor(nowMs / 1_000);

  const newBody = (more?: string) => {
    const analysisText = exampleAnalysis("analysis.succeeded", `example-${newId()}`, more);
    return webhookBody({ id: newId(), event: "analysis.succeeded", createdAtMs: nowMs, analysisText });
  };
  const sign = (body: Buffer, by: readonly SigningKey[] = keys, atMs = nowMs): ProbePost => ({
    body,
    header: webhookSignature(body, by, atMs),
  });
  const unsigned = (header: string | null): ProbePost => ({ body: newBody(), header });

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
    forged("changed_body", "a webhook that was modified after signing", {
      body: changed,
      header: sign(before).header,
    }),
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
    forged("header_missing", "a webhook without the signature header", unsigned(null)),
    forged("header_malformed", "a malformed signature header", unsigned("not a signature")),
    forged("signature_missing", "a signature header with only a timestamp", unsigned(`t=${nowSeconds}`)),
    forged("signature_empty", "a signature header with an empty signature", unsigned(`t=${nowSeconds},v1=`)),
  ];
}

function genuine(name: ProbeName, sent: string, ...posts: readonly ProbePost[]): Probe {
  return { name, sent, isGenuine: true, posts };
}

function forged(name: ProbeName, sent: string, ...posts: readonly ProbePost[]): Probe {
  return { name, sent, isGenuine: false, posts };
}
