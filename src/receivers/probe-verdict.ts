import { explainErrorCode } from "../model/error-codes.ts";
import { decisiveAnswer, type Findings, isAccepted, isSuccess } from "./probe-results.ts";
import type { ProbeAnswer, Probed } from "./probe-sender.ts";
import type { ProbeName } from "./probes.ts";

/** `not_judged`: the response says nothing about this probe. */
export const VERDICTS = ["right", "wrong", "not_judged"] as const;
export type Verdict = (typeof VERDICTS)[number];

/** A line of the report. */
export type JudgedProbe = {
  readonly name: ProbeName;
  /** In words. */
  readonly sent: string;
  readonly expected: "2xx" | "not 2xx";
  /** The status or statuses, or why there is none. */
  readonly got: string;
  readonly verdict: Verdict;
  /** In plain words. */
  readonly explanation: string;
  /** Of all POSTs of the probe together. */
  readonly durationMs: number;
};

export function judgeProbe(probed: Probed, findings: Findings): JudgedProbe {
  const { probe, answers } = probed;
  const [verdict, explanation] = probe.isGenuine ? judgeGenuine(probed) : judgeForged(probed, findings);
  return {
    name: probe.name,
    sent: probe.sent,
    expected: probe.isGenuine ? "2xx" : "not 2xx",
    got: answers.length === 0 ? "nothing was sent" : answers.map(inWords).join(", then "),
    verdict,
    explanation,
    durationMs: Math.round(answers.reduce((sum, { durationMs }) => sum + durationMs, 0)),
  };
}

type Judgement = readonly [verdict: Verdict, explanation: string];

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
