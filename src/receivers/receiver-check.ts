import type { Egress } from "../egress/egress.ts";
import { createPoster } from "../egress/post/post.ts";
import { DAY_MS } from "../model/time.ts";
import { type ConnectionFacts, observeConnections } from "./connection-facts.ts";
import { deliveryFaults } from "./delivery-faults.ts";
import { type Fault, SEVERITIES } from "./fault.ts";
import { forgeryFaults } from "./forgery-faults.ts";
import { type Findings, findingsOf } from "./probe-results.ts";
import { sendProbes } from "./probe-sender.ts";
import { type JudgedProbe, judgeProbe } from "./probe-verdict.ts";
import { createProbes } from "./probes.ts";
import {
  type AcceptedSecrets,
  acceptedSecrets,
  createSecretTrials,
  usesDecodedSecret,
} from "./secret-trials.ts";

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
