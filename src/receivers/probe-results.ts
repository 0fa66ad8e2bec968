import type { ProbeAnswer, Probed } from "./probe-sender.ts";
import type { ProbeName } from "./probes.ts";

/** The results of a check, by probe name. */
export type Findings = {
  /** For a genuine probe: every POST got a 2xx. For a forged one: any did. */
  accepted(name: ProbeName): boolean;
  /** It got a response, and the receiver was neither busy nor down: the response is about what was sent. */
  refused(name: ProbeName): boolean;
  /** The decisive response: the first that is no 2xx, else the last. Null: nothing was sent. */
  decisive(name: ProbeName): ProbeAnswer | null;
  /** At least one genuine POST got a 2xx, so a forgery that did not was recognized. */
  readonly acceptsSomething: boolean;
  readonly all: readonly Probed[];
};

export function findingsOf(probed: readonly Probed[]): Findings {
  const byName = new Map(probed.map((one) => [one.probe.name, one]));
  const find = (name: ProbeName): Probed => {
    const found = byName.get(name);
    if (found === undefined) throw new Error(`The probe ${name} was not made.`);
    return found;
  };
  return {
    accepted: (name) => isAccepted(find(name)),
    refused: (name) => {
      const answer = decisiveAnswer(find(name));
      return answer !== null && !isSuccess(answer) && !isMissing(answer);
    },
    decisive: (name) => decisiveAnswer(find(name)),
    acceptsSomething: probed.some(({ probe, answers }) => probe.isGenuine && answers.some(isSuccess)),
    all: probed,
  };
}

export function isAccepted({ probe, answers }: Probed): boolean {
  if (!probe.isGenuine) return answers.some(isSuccess);
  return answers.length === probe.posts.length && answers.every(isSuccess);
}

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

export function isRedirect({ statusCode }: ProbeAnswer): boolean {
  return statusCode !== null && statusCode >= 300 && statusCode < 400;
}
