// Looks through an instance of the specification: at random, and exhaustively.
import { hash } from "node:crypto";
import type { Chance } from "../simulation/chance.ts";
import type { Spec, State, Value } from "./quint.ts";

/** An invariant that does not hold, and the steps to where it does not. */
export class Violation extends Error {
  override readonly name = "Violation";
  readonly invariant: string;

  constructor(invariant: string, steps: readonly string[], state: State) {
    super(`${invariant} is violated after ${steps.join(", ")}\n${JSON.stringify(state, null, 1)}`);
    this.invariant = invariant;
  }
}

/** How often a step is tried, where that is not once: what makes attempts often, what prevents them seldom. */
const WEIGHTS: Readonly<Record<string, number>> = {
  publish: 2,
  claim: 8,
  start: 8,
  finish: 8,
  promote: 3,
  tick: 2,
  replay: 3,
  askInVain: 0.5,
  forget: 0.5,
  pause: 0.5,
  begin: 0.5,
  callOff: 0.3,
  callOffWithoutTarget: 0.3,
};

export type Step = {
  readonly action: string;
  readonly picks: Readonly<Record<string, Value>>;
  readonly state: State;
};

/** Plays one trace of at most so many steps. */
export function* playTrace(spec: Spec, chance: Chance, stepsMax: number): Generator<Step> {
  const choose = (bound: number) => chance.below(bound);
  const lots = spec.actions.flatMap((action) => Array<string>((WEIGHTS[action] ?? 1) * 10).fill(action));
  spec.reset();
  // A state in which nothing is enabled is the last.
  for (let steps = 0, tries = 0; steps < stepsMax && tries < 10_000; tries++) {
    const action = chance.pick(lots);
    if (!spec.take(action, choose)) continue;
    tries = 0;
    steps++;
    yield { action, picks: spec.picks, state: spec.state };
  }
}

export type Tally = Map<string, number>;

/**
 * Plays traces until there are so many steps, and looks at every state. After each trace nothing breaks any more, and
 * nobody helps: then every delivery has to come to its end.
 * @throws Violation
 */
export function simulate(spec: Spec, chance: Chance, stepsMin: number, stepsOfTrace: number): Tally {
  const tally: Tally = new Map();
  const count = (name: string, by = 1) => tally.set(name, (tally.get(name) ?? 0) + by);
  for (let left = stepsMin; left > 0; ) {
    const steps: string[] = [];
    const look = (action: string) => {
      left--;
      count(action);
      steps.push(`${action} ${JSON.stringify(spec.picks)}`);
      const violated = spec.violated();
      if (violated !== null) throw new Violation(violated, steps, spec.state);
    };
    count("traces");
    for (const { action } of playTrace(spec, chance, chance.between(10, stepsOfTrace))) look(action);
    const calm = { succeeds: chance.isTrue(0.5), resumes: chance.isTrue(0.5) };
    if (!playCalmly(spec, calm, look)) throw new Violation("everything ends", steps, spec.state);
  }
  return tally;
}

const CALM_TICKS_MAX = 200;

type Calm = { readonly succeeds: boolean; readonly resumes: boolean };

/**
 * False: something neither ended nor is held. What was in anybody's memory is gone. `succeeds`: what attempts come to;
 * `resumes`: what is paused is resumed.
 */
function playCalmly(spec: Spec, { succeeds, resumes }: Calm, look: (action: string) => void): boolean {
  const first = (
    action: string,
    wanted: (picks: Readonly<Record<string, Value>>) => boolean = () => true,
  ) => {
    for (const after of spec.ways(action)) {
      if (!wanted(spec.picks)) continue;
      spec.state = after;
      look(action);
      return true;
    }
    return false;
  };
  const all = (...[action, wanted]: Parameters<typeof first>) => {
    while (first(action, wanted));
  };
  all("forget");
  all("drop");
  for (let ticks = 0; ticks < CALM_TICKS_MAX; ticks++) {
    // A move that has begun is completed.
    for (const action of ["close", "park", "still", "announce", "open", "finishMove"]) first(action);
    if (resumes) first("resume");
    for (const action of ["advanceHolds", "promote"]) first(action);
    all("lease", ({ isAlone, dies }) => isAlone && !dies);
    all("end");
    all("start");
    all("finish", ({ outcome }) => outcome === (succeeds ? "succeeded" : "rejected"));
    all("release");
    all("drop");
    if (spec.isTrue("isOver")) return true;
    spec.take("pass", () => 0);
    look("pass");
  }
  return false;
}

export type Explored = { readonly states: number; readonly steps: number; readonly depth: number };

/** From every such state on, everything has to come to its end when nothing breaks any more. */
const CALM_EVERY = 50;

/**
 * Reaches every state of the instance, the nearest first. In each all invariants must hold.
 * @throws Violation
 */
export function explore(spec: Spec, tell: (line: string) => void = () => undefined): Explored {
  /** By what the state's text comes to, which takes a hundredth of the memory. */
  const known = new Set<string>();
  const ways: (readonly [number, string])[] = [];
  const pathTo = (n: number): string[] => {
    const [before, action] = ways[n]!;
    return before < 0 ? [action] : [...pathTo(before), action];
  };
  const isNew = (state: State, before: number, action: string): boolean => {
    const digest = hash("sha1", JSON.stringify(state), "base64");
    if (known.has(digest)) return false;
    known.add(digest);
    ways.push([before, action]);
    const path = () => pathTo(ways.length - 1);
    const look = () => {
      const violated = spec.violated();
      if (violated !== null) throw new Violation(violated, path(), spec.state);
    };
    spec.state = state;
    look();
    if (ways.length % CALM_EVERY === 0 && !playCalmly(spec, { succeeds: true, resumes: true }, look))
      throw new Violation("everything ends", path(), spec.state);
    return true;
  };
  spec.reset();
  let level: (readonly [number, State])[] = [[0, spec.state]];
  isNew(spec.state, -1, "init");
  let steps = 0;
  let depth = 0;
  while (level.length > 0) {
    const next: (readonly [number, State])[] = [];
    for (const [n, state] of level) {
      for (const action of spec.actions) {
        spec.state = state;
        for (const after of spec.ways(action)) {
          steps++;
          if (isNew(after, n, action)) next.push([ways.length - 1, after]);
        }
      }
    }
    level = next;
    if (level.length > 0) tell(`${++depth} steps: ${ways.length} states`);
  }
  return { states: ways.length, steps, depth };
}
