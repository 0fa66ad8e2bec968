import type { ProbeAnswer, Probed } from "./probe-sender.ts";
import type { ProbeName } from "./probes.ts";

/** What the answers say, by the probes' names. */
export type Findings = {
  /** For a genuine probe: every POST was answered 2xx. For a forged one: any was. */
  accepted(name: ProbeName): boolean;
  /** It was answered, and the receiver was neither busy nor away: the answer is about what was sent. */
  refused(name: ProbeName): boolean;
  /** The answer that decided: the first that is no 2xx, else the last. Null: nothing was sent. */
  decisive(name: ProbeName): ProbeAnswer | null;
  /** At least one genuine POST was answered 2xx: a forgery that is not was told apart. */
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

/** No answer, or one with which a receiver that gets too much at once, or the proxy before it, puts us off. */
export function isMissing({ statusCode }: ProbeAnswer): boolean {
  return statusCode === null || PUTS_OFF.has(statusCode);
}

const PUTS_OFF: ReadonlySet<number> = new Set([429, 502, 503, 504]);

export function isRedirect({ statusCode }: ProbeAnswer): boolean {
  return statusCode !== null && statusCode >= 300 && statusCode < 400;
}
