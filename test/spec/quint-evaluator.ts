// The same specification in Quint's own evaluator, to see that both go to the same states. Nothing is downloaded: what
// Quint's command fetches at its first run is its other evaluator, in Rust.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { QuintEx } from "@informalsystems/quint";
import type { RuntimeValue } from "@informalsystems/quint/dist/src/runtime/impl/runtimeValue.js";
import type { Chance } from "../simulation/chance.ts";
import { everyWay, type Spec } from "./quint.ts";

const load = createRequire(import.meta.url);
const FOLDER = `${import.meta.dirname}/`;
const FILE = "instances.qnt";

type State = readonly RuntimeValue[];

/** Types and effects are checked, too. */
function openEvaluator(instance: string) {
  // A choice that comes to nothing is not replaced by another one behind our back. Read once, as it is loaded.
  process.env.QUINT_RETRY_NONDET_SMALLER_THAN = "0";
  const quint: typeof import("@informalsystems/quint") = load("@informalsystems/quint");
  const runtime = "@informalsystems/quint/dist/src/runtime";
  const { Evaluator }: typeof import("@informalsystems/quint/dist/src/runtime/impl/evaluator.js") = load(
    `${runtime}/impl/evaluator.js`,
  );
  const { rv }: typeof import("@informalsystems/quint/dist/src/runtime/impl/runtimeValue.js") = load(
    `${runtime}/impl/runtimeValue.js`,
  );
  const { noExecutionListener } = load(`${runtime}/trace.js`);
  const { left, right } = load("@sweet-monads/either");

  const ids = quint.newIdGenerator();
  const place = quint.fileSourceResolver().lookupPath(FOLDER, FILE);
  const parsed = quint.parse(ids, FOLDER + FILE, place, readFileSync(FOLDER + FILE, "utf8"));
  const [errors] = quint.analyzeModules(parsed.table, parsed.modules);
  const wrong = [...parsed.errors, ...errors];
  if (wrong.length > 0) throw new Error(wrong.map(({ message }) => message).join("\n"));

  let choose = (_bound: number) => 0;
  const chance = {
    getState: () => 0n,
    setState: () => undefined,
    next: (bound: bigint) => BigInt(choose(Number(bound))),
  };
  const evaluator = new Evaluator(parsed.table, noExecutionListener, chance);
  const storage = evaluator.ctx.varStorage;
  const expressions = new Map<string, QuintEx>();
  const find = (name: string): QuintEx => {
    const found = quint.parseExpressionOrDeclaration(name, "driver", ids, parsed.sourceMap);
    if (found.kind !== "expr") throw new Error(`${name} is no expression`);
    parsed.resolver.switchToModule(instance);
    quint.walkExpression(parsed.resolver, found.expr);
    return found.expr;
  };
  const isTrue = (name: string): boolean => {
    const expression = expressions.get(name) ?? find(name);
    expressions.set(name, expression);
    const value = evaluator.evaluate(expression).unwrap();
    return value.kind === "bool" && value.value;
  };
  const variables = () => [...storage.vars.values()];
  return {
    isTrue,
    take: (action: string, choosing: typeof choose): boolean => {
      choose = choosing;
      const isTaken = isTrue(action);
      if (isTaken) storage.shiftVars();
      return isTaken;
    },
    get state(): State {
      return variables().map(({ value }) => value.unwrap());
    },
    set state(state: State) {
      for (const [n, register] of variables().entries()) register.value = right(state[n]);
      for (const register of storage.nextVars.values())
        register.value = left({ code: "QNT502", message: "" });
      for (const cached of storage.cachesToClear) cached.value = undefined;
    },
    textOf: (state: State): string =>
      textOf(
        Object.fromEntries(
          variables().map(({ name }, n) => [name.split("::").at(-1), plain(rv.toQuintEx(state[n]!))]),
        ),
      ),
  };
}

/**
 * Walks at random through an instance, and compares all that each state leads to, and whether the invariants hold.
 * Returns how many states were compared.
 */
export function compareWithQuint(
  spec: Spec,
  instance: string,
  chance: Chance,
  states: number,
  traceMax: number,
) {
  const theirs = openEvaluator(instance);
  if (!theirs.take("init", () => 0)) throw new Error("there is no first state");
  const first = theirs.state;
  let compared = 0;
  for (let left = 0; compared < states; compared++, left--) {
    if (left === 0) {
      spec.reset();
      theirs.state = first;
      left = traceMax;
    }
    const [ourState, theirState] = [spec.state, theirs.state];
    if (theirs.isTrue("allHolds") !== (spec.violated() === null))
      throw new Error(`differs: ${textOf(ourState)}`);
    const next: (readonly [typeof ourState, State])[] = [];
    for (const action of spec.actions) {
      const ours = new Map([...everyWay(spec, action)].map((after) => [textOf(after), after]));
      const their = new Map([...everyWay(theirs, action)].map((after) => [theirs.textOf(after), after]));
      for (const text of new Set([...ours.keys(), ...their.keys()])) {
        const [our, other] = [ours.get(text), their.get(text)];
        if (our === undefined || other === undefined)
          throw new Error(`${action} is not the same in Quint after ${textOf(ourState)}: ${text}`);
        next.push([our, other]);
      }
    }
    spec.state = ourState;
    theirs.state = theirState;
    const chosen = chance.pick(next);
    if (chosen === undefined) left = 1;
    else [spec.state, theirs.state] = chosen;
  }
  return compared;
}

/** Sets are `{ set: … }` in the order of their texts, as ours are written. */
// biome-ignore lint/suspicious/noExplicitAny: what it is, the specification's types say.
function plain(value: QuintEx): any {
  if (value.kind === "int") return Number(value.value);
  if (value.kind === "bool" || value.kind === "str") return value.value;
  if (value.kind !== "app") throw new Error(`a value is of no known kind: ${value.kind}`);
  const args = value.args.map(plain);
  if (value.opcode === "Map") return Object.fromEntries(args);
  if (value.opcode === "Set") return args.map(textOf).sort();
  if (value.opcode !== "Rec") return args;
  return Object.fromEntries(args.flatMap((arg, n) => (n % 2 === 0 ? [[arg, args[n + 1]]] : [])));
}

/** One text for each value: members in the order of their names. */
function textOf(value: unknown): string {
  return JSON.stringify(value, (_name, member) =>
    typeof member !== "object" || Array.isArray(member) || "items" in member
      ? member
      : Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1))),
  );
}
