import { createSecretKey } from "node:crypto";
import { timeTextOrNull } from "../api/fields.ts";
import { explainErrorCode } from "../base/model/error-codes.ts";
import { DAY_MS, isoTime } from "../base/model/time.ts";
import { exampleAnalysis, webhookBody, webhookSignature } from "../delivery/webhook.ts";
import type { Connect, Egress, OpenedConnection } from "../egress/egress.ts";
import { createPoster } from "../egress/post/post.ts";
import { importSigningKey, type SigningKey } from "../signing/index.ts";
import { type Fault, faultsOf } from "./faults.ts";
import {
  createProbes,
  decisiveAnswer,
  type Findings,
  findingsOf,
  isAccepted,
  isMissing,
  isSuccess,
  type ProbeAnswer,
  type Probed,
  type ProbePost,
  type ProbesOptions,
  sendProbes,
} from "./probes.ts";
import type { ReceiverReport } from "./receiver-check-schema.ts";

/** What a check's first connection showed. Null: there was none, or it did not show this. */
type ConnectionFacts = {
  /** `TLSv1.3`, … */
  readonly tls_version: string | null;
  /** Null, too, when a proxy chose the address. */
  readonly remote_address: string | null;
  readonly endsAtMs: number | null;
};

/** Wraps a connector and records what its first connection showed. */
function observeConnections(connect: Connect): {
  readonly connect: Connect;
  readonly facts: () => ConnectionFacts;
} {
  let facts: ConnectionFacts | null = null;
  return {
    connect: async (target, signal) => {
      const connection = await connect(target, signal);
      facts ??= factsOf(connection);
      return connection;
    },
    facts: () => facts ?? { tls_version: null, remote_address: null, endsAtMs: null },
  };
}

function factsOf({ socket, remoteAddress }: OpenedConnection): ConnectionFacts {
  const ends = socket.getPeerX509Certificate()?.validTo;
  const endsAtMs = ends === undefined ? null : Date.parse(ends);
  return { tls_version: socket.getProtocol(), remote_address: remoteAddress, endsAtMs };
}

/**
 * Beside the probes, webhooks that are neither genuine nor forged: they show which secret a receiver has. `decoded` is
 * signed with what the base64 in the secret stands for, in place of its text.
 */
export type SecretTrial = {
  readonly name: "current" | "previous" | "decoded";
  readonly posts: readonly ProbePost[];
};

/** One for each of two secrets while a rotation's overlap lasts; with one secret, the genuine probe shows it. */
function createSecretTrials({ secrets, nowMs, newId }: ProbesOptions): readonly SecretTrial[] {
  const trial = (name: SecretTrial["name"], keys: readonly SigningKey[]): SecretTrial => {
    const analysisText = exampleAnalysis("analysis.succeeded", `example-${newId()}`);
    const body = webhookBody({ id: newId(), event: "analysis.succeeded", createdAtMs: nowMs, analysisText });
    return { name, posts: [{ body, header: webhookSignature(body, keys, nowMs) }] };
  };
  const decoded = trial("decoded", secrets.map(decodedKey));
  const [current, previous] = secrets;
  if (current === undefined || previous === undefined) return [decoded];
  return [
    trial("current", [importSigningKey(current)]),
    trial("previous", [importSigningKey(previous)]),
    decoded,
  ];
}

function decodedKey(secret: string): SigningKey {
  return createSecretKey(Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
}

/** What the trials show; null: there is no such secret, or the responses do not tell. */
function acceptedSecrets(
  trials: readonly Probed<SecretTrial>[],
  { accepted, refused }: Findings,
): ReceiverReport["accepts_secrets"] {
  // It accepts any signature.
  if (accepted("wrong_secret")) return { current: null, previous: null };
  const current = trials.find(({ probe }) => probe.name === "current");
  if (current === undefined) {
    return { current: accepted("genuine") ? true : refused("genuine") ? false : null, previous: null };
  }
  return {
    current: isTaken(current),
    previous: isTaken(trials.find(({ probe }) => probe.name === "previous")),
  };
}

/** It takes what is signed with the decoded secret, and nothing else. */
function usesDecodedSecret(trials: readonly Probed<SecretTrial>[], { refused }: Findings): boolean {
  const decoded = trials.find(({ probe }) => probe.name === "decoded");
  return refused("genuine") && isTaken(decoded) === true;
}

function isTaken(probed: Probed<SecretTrial> | undefined): boolean | null {
  const [answer] = probed?.answers ?? [];
  if (answer === undefined || isMissing(answer)) return null;
  return isSuccess(answer);
}

/** A whole check takes at most this long. */
export const CHECK_LIMIT_MS = 20_000;
/** Of that, what the probes may take; the rest is for everything around them. */
const PROBES_LIMIT_MS = 18_500;
export type ReceiverCheckOptions = {
  /**
   * Creates the egress that deliveries use. A new one per check, because a resumed TLS session does not show its
   * certificate.
   */
  readonly createEgress: () => Egress;
  /** That of an attempt. */
  readonly deadlineMs: number;
  /** Gives a new UUID. */
  readonly newId: () => string;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type CheckedReceiver = {
  /** A URL that the rules for targets allow. */
  readonly url: URL;
  /** The account's valid secrets, the current first. */
  readonly secrets: readonly string[];
  /** Unix time in milliseconds, by a correct clock. */
  readonly atMs: number;
};

/** Sends a receiver a set of probes, each with an expected response, and judges the result. */
export type CheckReceiver = (receiver: CheckedReceiver) => Promise<ReceiverReport>;

export function createReceiverCheck(options: ReceiverCheckOptions): CheckReceiver {
  const { now, newId, deadlineMs } = options;
  return async ({ url, secrets, atMs }) => {
    const startedAtMs = now();
    const egress = options.createEgress();
    const { connect, facts } = observeConnections(egress.connect);
    const poster = createPoster({ egress: { ...egress, connect }, now });
    try {
      const sent = { secrets, nowMs: atMs, newId };
      const sending = { url, post: poster.post, deadlineMs, limitMs: PROBES_LIMIT_MS, now };
      const [probed, trials] = await Promise.all([
        sendProbes(createProbes(sent), sending),
        sendProbes(createSecretTrials(sent), sending),
      ]);
      const findings = findingsOf(probed);
      const connection = describeConnection(facts(), findings, atMs);
      const decodesSecret = usesDecodedSecret(trials, findings);
      const faults = faultsOf(findings, decodesSecret, connection.certificate_days_left);
      return {
        url: url.href,
        checked_at: isoTime(atMs),
        duration_ms: Math.round(now() - startedAtMs),
        verdict: verdictOn(faults),
        faults,
        accepts_secrets: acceptedSecrets(trials, findings),
        connection,
        probes: probed.map((one) => judgeProbe(one, findings)),
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

function describeConnection({ endsAtMs, ...shown }: ConnectionFacts, { all }: Findings, atMs: number) {
  const answered = all.flatMap(({ answers }) => answers).filter(({ statusCode }) => statusCode !== null);
  const slowestMs = Math.max(...answered.map(({ durationMs }) => durationMs));
  return {
    protocol: "HTTP/1.1",
    ...shown,
    certificate_ends_at: timeTextOrNull(endsAtMs),
    certificate_days_left: endsAtMs === null ? null : Math.floor((endsAtMs - atMs) / DAY_MS),
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

type Judgement = readonly [verdict: JudgedProbe["verdict"], explanation: string];

function judgeGenuine(probed: Probed): Judgement {
  const { probe, answers } = probed;
  if (isAccepted(probed)) return ["right", "It accepted a genuine webhook."];
  const decisive = decisiveAnswer(probed);
  if (decisive === null || isSuccess(decisive)) {
    return ["not_judged", "Earlier responses took so long that there was no time left to send it."];
  }
  if (answers.length < probe.posts.length || decisive === answers[0]) {
    if (probe.posts.length > 1) return ["not_judged", "The first of the two was not accepted."];
  }
  return ["wrong", `It did not accept a genuine webhook. ${whyNot(decisive)}`];
}

function judgeForged(probed: Probed, { acceptsSomething }: Findings): Judgement {
  if (isAccepted(probed)) return ["wrong", "It accepted a forgery."];
  const decisive = decisiveAnswer(probed);
  if (decisive === null || decisive.statusCode === null) return ["not_judged", "There was no response."];
  if (!acceptsSomething) {
    return ["not_judged", "It rejects genuine webhooks as well, so this says nothing about forgeries."];
  }
  return ["right", "It rejected a forgery."];
}

function whyNot({ errorCode }: ProbeAnswer): string {
  return errorCode === null ? "" : explainErrorCode(errorCode).message;
}

function inWords({ statusCode, errorCode }: ProbeAnswer): string {
  return statusCode === null ? `no response (${errorCode})` : `${statusCode}`;
}
