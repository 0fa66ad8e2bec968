import type { Egress } from "../egress/egress.ts";
import { createPoster } from "../egress/post/post.ts";
import { type ConnectionFacts, observeConnections } from "./connection-facts.ts";
import { deliveryFaults } from "./delivery-faults.ts";
import { type Fault, SEVERITIES } from "./fault.ts";
import { type Findings, findingsOf } from "./findings.ts";
import { forgeryFaults } from "./forgery-faults.ts";
import { createProbes } from "./probes.ts";
import { sendProbes } from "./probing.ts";
import { type JudgedProbe, judgeProbe } from "./verdict.ts";

/** A whole check takes no longer than this. */
export const CHECK_LIMIT_MS = 20_000;
/** Of that, what the probes may take; the rest is for everything around them. */
const PROBES_LIMIT_MS = 18_500;
/** An attempt waits for 15 s at most; a third of it is a receiver that works before it answers. */
const SLOW_MS = 5_000;
const CERTIFICATE_DAYS_MIN = 14;
const DAY_MS = 86_400_000;

/** `dangerous`: it accepts a forgery. `faulty`: webhooks get lost. `right`: neither; warnings may be left. */
export const CHECK_VERDICTS = ["right", "faulty", "dangerous"] as const;
export type CheckVerdict = (typeof CHECK_VERDICTS)[number];

export type ReceiverReport = {
  readonly verdict: CheckVerdict;
  /** The gravest first. */
  readonly faults: readonly Fault[];
  readonly probes: readonly JudgedProbe[];
  readonly connection: ConnectionFacts & {
    /** Null where none was seen. Negative: it has ended. */
    readonly certificateDaysLeft: number | null;
    /** Of the POSTs that were answered; null when none was. */
    readonly slowestAnswerMs: number | null;
  };
  readonly durationMs: number;
};

export type ReceiverCheckOptions = {
  /**
   * Makes the egress of every delivery. A fresh one for each check, since a connection that resumes a TLS session does
   * not show its certificate.
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
  /** Unix time in milliseconds, of a clock that is right. */
  readonly atMs: number;
};

/** Sends a receiver a set of probes, each with what a right one answers, and judges what it does. */
export type CheckReceiver = (receiver: CheckedReceiver) => Promise<ReceiverReport>;

export function createReceiverCheck(options: ReceiverCheckOptions): CheckReceiver {
  const { now, newId, deadlineMs } = options;
  return async ({ url, secrets, atMs }) => {
    const startedAtMs = now();
    const egress = options.createEgress();
    const { connect, facts } = observeConnections(egress.connect);
    const poster = createPoster({ egress: { ...egress, connect }, now });
    try {
      const probes = createProbes({ secrets, nowMs: atMs, newId });
      const { post } = poster;
      const probed = await sendProbes(probes, { url, post, deadlineMs, limitMs: PROBES_LIMIT_MS, now });
      const findings = findingsOf(probed);
      const connection = describeConnection(facts(), findings, atMs);
      const faults = [
        ...forgeryFaults(findings),
        ...deliveryFaults(findings),
        ...slowFaults(findings),
        ...certificateFaults(connection.certificateDaysLeft),
      ].sort((one, other) => SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity));
      return {
        verdict: verdictOn(faults),
        faults,
        probes: probed.map((one) => judgeProbe(one, findings)),
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
      message: `It takes ${SLOW_MS / 1_000} seconds or more to answer; what is not answered in time counts as failed.`,
      remedy: "Verify, store the event, answer 2xx at once, and do the work afterwards.",
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
      message: `Its certificate ends in ${daysLeft === 1 ? "1 day" : `${daysLeft} days`}; then no webhook arrives.`,
      remedy: "Renew it, and let that happen by itself from now on.",
      probes: [],
    },
  ];
}
