import { createSecretKey, randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { z } from "zod";
import { AnsweredBy, time } from "../api/fields.ts";
import { answeredBy } from "../base/model/answered-by.ts";
import { DAY_MS, isoTime } from "../base/model/time.ts";
import { type EndpointHeader, hidingSecrets, sentHeaders } from "../delivery/endpoint-headers.ts";
import type { ReceiverTurn } from "../delivery/receiver-turns.ts";
import {
  challengeBody,
  confirmsChallenge,
  importWebhookKey,
  signedHeaders,
  type WebhookKey,
  webhookId,
  webhookSignature,
} from "../delivery/webhook.ts";
import type { Connect, Egress, OpenedConnection } from "../egress/egress.ts";
import type { SigningKey } from "../signing/index.ts";
import { Fault, faultsOf } from "./faults.ts";
import {
  answerOf,
  createProbes,
  decisiveAnswer,
  exampleBody,
  explainProbe,
  type Findings,
  findingsOf,
  isAccepted,
  isMissing,
  isSuccess,
  PROBE_NAMES,
  PROBES_LIMIT_MS,
  type ProbeAnswer,
  type Probed,
  type ProbePost,
  type Probe as ProbeSent,
  type ProbesOptions,
  type ProbingOptions,
  sendProbes,
} from "./probes.ts";

const Probe = z
  .object({
    name: z.enum(PROBE_NAMES),
    sent: z.string(),
    expected: z.enum(["2xx", "not 2xx"]),
    got: z.string().describe("The status, or why there is none; both if the probe has two POSTs."),
    duration_ms: z.int(),
    verdict: z
      .enum(["right", "wrong", "not_judged"])
      .describe("`not_judged`: the response says nothing about this."),
    explanation: z.string().describe("The verdict in a sentence."),
  })
  .meta({
    id: "ReceiverProbe",
    description: "What was sent, what a correct receiver responds, and what this one did.",
  });

const Connection = z.object({
  protocol: z.literal("HTTP/1.1"),
  tls_version: z.string().nullable(),
  remote_address: z.string().nullable(),
  certificate_ends_at: time.nullable(),
  certificate_days_left: z.int().nullable(),
  slowest_answer_ms: z.int().nullable(),
});

export const ReceiverCheck = z
  .object({
    url: z.string(),
    checked_at: time,
    duration_ms: z.int(),
    verdict: z
      .enum(["right", "faulty", "dangerous"])
      .describe("`dangerous`: it accepts forgeries; `faulty`: webhooks get lost; `right`: neither."),
    faults: z.array(Fault).describe("Most severe first; empty for a correct receiver."),
    accepts_secrets: z
      .object({ current: z.boolean().nullable(), previous: z.boolean().nullable() })
      .describe(
        "Which of the account's signing secrets it accepts: during a rotation, whether it has the new one yet. Null: " +
          "there is no such secret, or its responses do not tell.",
      ),
    answers_challenge: z
      .boolean()
      .nullable()
      .describe("Whether it answers a challenge with its text. Null: its response does not tell."),
    answered_by: AnsweredBy.nullable().describe(
      "Who answered a genuine webhook in place of the receiver's application; null: it did, or that is not plain.",
    ),
    connection: Connection.describe("Null: there was no connection, or it did not show this."),
    probes: z.array(Probe).describe("Only what was sent, if the receiver is `unproven`."),
  })
  .meta({ id: "ReceiverCheck", description: "What a receiver does right and wrong, as probes have shown." });

/** What a check has found. */
export type ReceiverReport = z.output<typeof ReceiverCheck>;

/** What a check's first connection showed; null: it did not show this. A proxy that chose the address shows none. */
function factsOf({ socket, remoteAddress }: OpenedConnection) {
  const ends = socket.getPeerX509Certificate()?.validTo;
  return {
    tls_version: socket.getProtocol(),
    remote_address: remoteAddress,
    certificate_ends_at: ends === undefined ? null : isoTime(Date.parse(ends)),
  };
}

/**
 * Beside the probes, webhooks that are neither genuine nor forged: they show which secret a receiver has. `decoded` is
 * signed with what the base64 in the secret stands for, in place of its text.
 */
type SecretTrial = {
  readonly name: "current" | "previous" | "decoded";
  readonly posts: readonly ProbePost[];
};

/** One for each of two secrets while a rotation's overlap lasts; with one secret, the genuine probe shows it. */
function createSecretTrials({ secrets, signsStandard, nowMs }: ProbesOptions): readonly SecretTrial[] {
  const trial = (name: SecretTrial["name"], key: WebhookKey): SecretTrial => {
    const body = exampleBody(nowMs);
    return {
      name,
      posts: [{ body, ...signedHeaders(body, [key], nowMs, signsStandard ? webhookId(body) : null) }],
    };
  };
  const body = exampleBody(nowMs);
  const signature = webhookSignature(body, secrets.map(decodedKey), nowMs);
  const decoded: SecretTrial = { name: "decoded", posts: [{ body, signature }] };
  const [current, previous] = secrets.map(importWebhookKey);
  if (current === undefined || previous === undefined) return [decoded];
  return [trial("current", current), trial("previous", previous), decoded];
}

function decodedKey(secret: string): SigningKey {
  return createSecretKey(Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
}

/** Asks whether it wants webhooks, as deliveries do where TARGET_CONSENT says so. */
function createChallenge({ secrets, signsStandard, nowMs }: ProbesOptions) {
  const text = randomUUID();
  const body = challengeBody(text);
  const id = signsStandard ? randomUUID() : null;
  const signed = signedHeaders(body, secrets.map(importWebhookKey), nowMs, id);
  return { text, posts: [{ body, ...signed }] };
}

/** What the trials show; null: there is no such secret, or the responses do not tell. */
function acceptedSecrets(
  trials: readonly Probed<SecretTrial>[],
  { accepted, refused }: Findings,
): ReceiverReport["accepts_secrets"] {
  // It accepts any signature.
  if (accepted("wrong_secret")) return { current: null, previous: null };
  if (trials.length > 1) return { current: takes(trials, "current"), previous: takes(trials, "previous") };
  return { current: accepted("genuine") ? true : refused("genuine") ? false : null, previous: null };
}

/** Whether it accepts what a trial sent; null: the response does not tell. */
function takes(trials: readonly Probed<SecretTrial>[], name: SecretTrial["name"]): boolean | null {
  const [answer] = trials.find(({ probe }) => probe.name === name)?.answers ?? [];
  return answer === undefined || isMissing(answer) ? null : isSuccess(answer);
}

/** `refused`: what to throw if it cannot be had, for so many milliseconds. */
export type CheckTurn = ReceiverTurn & { readonly refused: (restMs: number) => Error };

/** What a check waits for its turn at most, so that time is left for its probes. */
const TURN_WITHIN_MS = 8_000;

/** The first POST of all to a receiver that has proven nothing. */
async function sendFirst(
  probe: Pick<ProbeSent, "posts">,
  isProof: (answer: ProbeAnswer) => boolean,
  turn: CheckTurn,
  sending: ProbingOptions,
) {
  const startedAtMs = performance.now();
  while (true) {
    const [sent] = await sendProbes([probe], { ...sending, admit: turn.admit });
    const [answer] = sent!.answers;
    const restMs = (await turn.end(isProof(answer!)))?.restMs;
    if (answer!.errorCode !== "not_proven") return { ...sent!, isLast: restMs !== null };
    if (performance.now() - startedAtMs + restMs! > TURN_WITHIN_MS) throw turn.refused(restMs!);
    await wait(restMs!);
  }
}

/** A whole check takes at most this long: that of its probes, and what is around them. */
export const CHECK_LIMIT_MS = 20_000;

/**
 * Sends a receiver a set of probes, each with an expected response, and judges the result.
 * @param receiver `url`: one that the rules for targets allow
 */
export type CheckReceiver = (
  receiver: ProbesOptions & {
    readonly url: URL;
    /** The endpoint's own. */
    readonly headers?: readonly EndpointHeader[];
    /** Absent: it is proven, or need not be. Else nothing follows the first POST unless its answer proves it. */
    readonly turn?: CheckTurn | undefined;
    /** It wants nothing more from this account at this URL. */
    readonly onRefusal?: () => Promise<void>;
  },
) => Promise<ReceiverReport>;

/**
 * @param createEgress creates the egress that deliveries use. A new one per check, because a resumed TLS session does
 *   not show its certificate
 * @param deadlineMs that of an attempt
 */
export function createReceiverCheck({
  createEgress,
  deadlineMs,
  publicUrl,
  challenges,
}: Pick<ProbingOptions, "deadlineMs" | "publicUrl"> & {
  readonly createEgress: () => Egress;
  /** Whether a receiver has to answer one before it gets webhooks. */
  readonly challenges: boolean;
}): CheckReceiver {
  const now = () => performance.now();
  return async ({ url, headers = [], turn, onRefusal, ...sent }) => {
    const startedAtMs = now();
    const egress = createEgress();
    let facts: ReturnType<typeof factsOf> | null = null;
    const connect: Connect = async (target, signal) => {
      const connection = await egress.connect(target, signal);
      facts ??= factsOf(connection);
      return connection;
    };
    // Imported here: most API processes check no receiver, and the HTTP client takes 20 MiB.
    const { createPoster } = await import("../egress/post/post.ts");
    const poster = createPoster({ egress: { ...egress, connect }, now });
    try {
      const added = sentHeaders(headers);
      const endsAtMs = now() + PROBES_LIMIT_MS;
      const hide = hidingSecrets(headers);
      const sending = { url, post: poster.post, deadlineMs, publicUrl, added, hide, endsAtMs };
      const probes = createProbes(sent);
      const challenge = createChallenge(sent);
      const isConfirmed = (answer: ProbeAnswer) => confirmsChallenge(challenge.text, answer);
      const [proof, isProof] = challenges ? [challenge, isConfirmed] : [probes[0]!, isSuccess];
      const first = turn && (await sendFirst(proof, isProof, turn, sending));
      const [probed, trials, [challenged]] = await Promise.all([
        sendProbes(probes, { ...sending, first }),
        sendProbes(createSecretTrials(sent), { ...sending, first }),
        sendProbes([challenge], { ...sending, first }),
      ]);
      const [asked] = challenged!.answers;
      const everything = [...probed, challenged!].flatMap(({ answers }) => answers);
      if (everything.some(({ isRefusal }) => isRefusal)) await onRefusal?.();
      const findings = findingsOf(probed);
      const connection = describeConnection(facts, everything, sent.nowMs);
      // It takes what is signed with the decoded secret, and nothing else.
      const decodesSecret = findings.refused("genuine") && takes(trials, "decoded") === true;
      const consent = {
        isUnproven: first?.isLast === true,
        unconfirmed: challenges && asked !== undefined && !isConfirmed(asked) ? asked : null,
      };
      const genuine = findings.decisive("genuine") ?? asked;
      const faults = faultsOf(findings, decodesSecret, connection.certificate_days_left, consent);
      return {
        url: url.href,
        checked_at: isoTime(sent.nowMs),
        duration_ms: Math.round(now() - startedAtMs),
        verdict: verdictOn(faults),
        faults,
        accepts_secrets: acceptedSecrets(trials, findings),
        answers_challenge: asked === undefined || isMissing(asked) ? null : isConfirmed(asked),
        answered_by: genuine === undefined || isSuccess(genuine) ? null : answeredBy(answerOf(genuine)),
        connection,
        probes: probed
          .filter(({ answers }) => !consent.isUnproven || answers.length > 0)
          .map((one) => judgeProbe(one, findings)),
      };
    } finally {
      await poster.close();
    }
  };
}

function verdictOn(faults: readonly Fault[]): ReceiverReport["verdict"] {
  if (faults.some(({ severity }) => severity === "danger")) return "dangerous";
  return faults.some(({ severity }) => severity === "fault") ? "faulty" : "right";
}

function describeConnection(
  facts: ReturnType<typeof factsOf> | null,
  answers: readonly ProbeAnswer[],
  atMs: number,
) {
  const answered = answers.filter(({ statusCode }) => statusCode !== null);
  const endsAt = facts?.certificate_ends_at ?? null;
  const slowestMs = Math.max(...answered.map(({ durationMs }) => durationMs));
  return {
    protocol: "HTTP/1.1",
    ...(facts ?? { tls_version: null, remote_address: null, certificate_ends_at: null }),
    certificate_days_left: endsAt === null ? null : Math.floor((Date.parse(endsAt) - atMs) / DAY_MS),
    slowest_answer_ms: answered.length === 0 ? null : Math.round(slowestMs),
  } as const;
}

type JudgedProbe = ReceiverReport["probes"][number];

function judgeProbe(probed: Probed, findings: Findings): JudgedProbe {
  const { probe, answers } = probed;
  const [verdict, explanation] = probe.isGenuine ? judgeGenuine(probed) : judgeForged(probed, findings);
  return {
    name: probe.name,
    sent: probe.sent,
    expected: probe.isGenuine ? "2xx" : "not 2xx",
    got: answers.length === 0 ? "nothing was sent" : answers.map(inWords).join(", then "),
    verdict,
    explanation,
    duration_ms: Math.round(answers.reduce((sum, { durationMs }) => sum + durationMs, 0)),
  };
}

const NO_TIME = "Earlier responses took so long that there was no time left to send it.";

type Judgement = readonly [verdict: JudgedProbe["verdict"], explanation: string];

function judgeGenuine(probed: Probed): Judgement {
  const { probe, answers } = probed;
  if (isAccepted(probed)) return ["right", "It accepted a genuine webhook."];
  const decisive = decisiveAnswer(probed);
  if (decisive === null || isSuccess(decisive)) return ["not_judged", NO_TIME];
  if (probe.posts.length > 1 && (answers.length < probe.posts.length || decisive === answers[0])) {
    return ["not_judged", "The first of the two was not accepted."];
  }
  return ["wrong", `It did not accept a genuine webhook. ${explainProbe(decisive).message}`];
}

function judgeForged(probed: Probed, { acceptsSomething }: Findings): Judgement {
  if (isAccepted(probed)) return ["wrong", "It accepted a forgery."];
  const decisive = decisiveAnswer(probed);
  if (decisive === null) return ["not_judged", NO_TIME];
  if (decisive.statusCode === null) return ["not_judged", "There was no response."];
  if (!acceptsSomething) {
    return ["not_judged", "It rejects genuine webhooks as well, so this says nothing about forgeries."];
  }
  return ["right", "It rejected a forgery."];
}

function inWords({ statusCode, errorCode }: ProbeAnswer): string {
  return statusCode === null ? `no response (${errorCode})` : `${statusCode}`;
}
