import { createSecretKey } from "node:crypto";
import { DAY_MS } from "../base/model/time.ts";
import { exampleAnalysis, webhookBody, webhookSignature } from "../delivery/webhook.ts";
import type { Connect, Egress, OpenedConnection } from "../egress/egress.ts";
import { createPoster } from "../egress/post/post.ts";
import { importSigningKey, type SigningKey } from "../signing/index.ts";
import { deliveryFaults, type Fault, forgeryFaults, SEVERITIES } from "./faults.ts";
import {
  createProbes,
  type Findings,
  findingsOf,
  isMissing,
  isSuccess,
  type JudgedProbe,
  judgeProbe,
  type Probed,
  type ProbePost,
  type ProbesOptions,
  sendProbes,
} from "./probes.ts";

/** What a check's connections showed. Null: there was none, or it did not show this. */
export type ConnectionFacts = {
  /** `TLSv1.3`, … */
  readonly tlsVersion: string | null;
  readonly certificateEndsAt: Date | null;
  /** Null, too, when a proxy chose the address. */
  readonly remoteAddress: string | null;
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
    facts: () => facts ?? { tlsVersion: null, certificateEndsAt: null, remoteAddress: null },
  };
}

function factsOf({ socket, remoteAddress }: OpenedConnection): ConnectionFacts {
  const ends = socket.getPeerX509Certificate()?.validTo;
  return {
    tlsVersion: socket.getProtocol(),
    certificateEndsAt: ends === undefined ? null : new Date(ends),
    remoteAddress,
  };
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
export type AcceptedSecrets = { readonly current: boolean | null; readonly previous: boolean | null };

function acceptedSecrets(
  trials: readonly Probed<SecretTrial>[],
  { accepted, refused }: Findings,
): AcceptedSecrets {
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
/** A third of an attempt's 15 s: such a receiver does its work before it responds. */
const SLOW_MS = 5_000;
const CERTIFICATE_DAYS_MIN = 14;
/** `dangerous`: it accepts a forgery. `faulty`: webhooks get lost. `right`: neither; there may be warnings. */
export const CHECK_VERDICTS = ["right", "faulty", "dangerous"] as const;
export type CheckVerdict = (typeof CHECK_VERDICTS)[number];

export type ReceiverReport = {
  readonly verdict: CheckVerdict;
  /** Most severe first. */
  readonly faults: readonly Fault[];
  readonly probes: readonly JudgedProbe[];
  readonly acceptedSecrets: AcceptedSecrets;
  readonly connection: ConnectionFacts & {
    /** Null if none was seen. Negative: it has expired. */
    readonly certificateDaysLeft: number | null;
    /** Of the POSTs that got a response; null if none did. */
    readonly slowestAnswerMs: number | null;
  };
  readonly durationMs: number;
};

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
      const faults = [
        ...forgeryFaults(findings),
        ...deliveryFaults(findings, usesDecodedSecret(trials, findings)),
        ...slowFaults(findings),
        ...certificateFaults(connection.certificateDaysLeft),
      ].sort((one, other) => SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity));
      return {
        verdict: verdictOn(faults),
        faults,
        probes: probed.map((one) => judgeProbe(one, findings)),
        acceptedSecrets: acceptedSecrets(trials, findings),
        connection,
        durationMs: Math.round(now() - startedAtMs),
      };
    } finally {
      await poster.close();
    }
  };
}

function verdictOn(faults: readonly Fault[]): CheckVerdict {
  if (faults.some(({ severity }) => severity === "danger")) return "dangerous";
  return faults.some(({ severity }) => severity === "fault") ? "faulty" : "right";
}

function describeConnection(facts: ConnectionFacts, { all }: Findings, atMs: number) {
  const { certificateEndsAt } = facts;
  const answered = all.flatMap(({ answers }) => answers).filter(({ statusCode }) => statusCode !== null);
  return {
    ...facts,
    certificateDaysLeft:
      certificateEndsAt === null ? null : Math.floor((certificateEndsAt.getTime() - atMs) / DAY_MS),
    slowestAnswerMs:
      answered.length === 0 ? null : Math.round(Math.max(...answered.map(({ durationMs }) => durationMs))),
  };
}

function slowFaults({ all }: Findings): readonly Fault[] {
  const slow = all.filter(({ answers }) =>
    answers.some(({ statusCode, durationMs }) => statusCode !== null && durationMs >= SLOW_MS),
  );
  if (slow.length === 0) return [];
  return [
    {
      code: "slow",
      severity: "fault",
      message: `It takes ${SLOW_MS / 1_000} seconds or more to respond; no response in time counts as a failure.`,
      remedy: "Verify, store the event, respond with 2xx at once, and do the work afterwards.",
      probes: slow.map(({ probe }) => probe.name),
    },
  ];
}

function certificateFaults(daysLeft: number | null): readonly Fault[] {
  if (daysLeft === null || daysLeft >= CERTIFICATE_DAYS_MIN) return [];
  return [
    {
      code: "certificate_ends_soon",
      severity: "warning",
      message:
        `Its certificate expires in ` +
        `${daysLeft === 1 ? "1 day" : `${daysLeft} days`}; after that no webhook arrives.`,
      remedy: "Renew it, and automate its renewal.",
      probes: [],
    },
  ];
}
