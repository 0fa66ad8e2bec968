// The specification, compiled from Quint's own syntax tree to JavaScript: Quint's evaluator takes milliseconds for a
// step, and a search takes millions of them. `compareWithQuint` plays the same steps with both.
import { readFileSync } from "node:fs";
import { newIdGenerator, parsePhase1fromText, type QuintEx, type QuintModule } from "@informalsystems/quint";

type Def = { readonly name: string; readonly expr: QuintEx; readonly qualifier: string };

/** Numbers, truths, texts, sets, and records and maps as objects. None is ever changed. */
// biome-ignore lint/suspicious/noExplicitAny: what it is, the specification's types say.
export type Value = any;
/** The variables, by name. */
export type State = Readonly<Record<string, Value>>;
/** One of `bound` possibilities, from 0. */
export type Choose = (bound: number) => number;

/** Its items in the order in which they came; each is in it once. */
class QuintSet {
  readonly items: readonly Value[];

  constructor(items: readonly Value[]) {
    this.items = items;
  }

  static of(items: readonly Value[]): QuintSet {
    const once: Value[] = [];
    for (const item of items) if (!once.some((one) => isEqual(one, item))) once.push(item);
    return new QuintSet(once);
  }

  has(item: Value): boolean {
    return this.items.some((one) => isEqual(one, item));
  }

  without(other: QuintSet): QuintSet {
    return new QuintSet(this.items.filter((item) => !other.has(item)));
  }

  /** In one order, so that equal sets have equal texts. */
  toJSON(): readonly string[] {
    return this.items.map((item) => JSON.stringify(item)).sort();
  }
}

function isEqual(a: Value, b: Value): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object") return false;
  if (a instanceof QuintSet) return a.items.length === b.items.length && a.items.every((item) => b.has(item));
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => isEqual(a[name], b[name]));
}

/** What Quint's operators are in JavaScript, as far as the specification uses them. */
const OPERATORS: Readonly<Record<string, (a: string, b: string, c: string) => string>> = {
  not: (a) => `!${a}`,
  and: (...all) => `(${all.join(" && ")})`,
  actionAll: (...all) => `(${all.join(" && ")})`,
  or: (...all) => `(${all.join(" || ")})`,
  implies: (a, b) => `(!${a} || ${b})`,
  ite: (a, b, c) => `(${a} ? ${b} : ${c})`,
  eq: (a, b) => `isEqual(${a}, ${b})`,
  neq: (a, b) => `!isEqual(${a}, ${b})`,
  ilt: (a, b) => `(${a} < ${b})`,
  ilte: (a, b) => `(${a} <= ${b})`,
  igt: (a, b) => `(${a} > ${b})`,
  igte: (a, b) => `(${a} >= ${b})`,
  iadd: (a, b) => `(${a} + ${b})`,
  isub: (a, b) => `(${a} - ${b})`,
  iuminus: (a) => `(-${a})`,
  field: (record, name) => `${record}[${name}]`,
  with: (record, name, value) => `{ ...${record}, [${name}]: ${value} }`,
  Tup: (...all) => `[${all}]`,
  item: (tuple, n) => `${tuple}[${n} - 1]`,
  Map: (...pairs) => `Object.fromEntries([${pairs}])`,
  get: (map, key) => `${map}[${key}]`,
  set: (map, key, value) => `{ ...${map}, [${key}]: ${value} }`,
  mapBy: (set, f) => `Object.fromEntries(${set}.items.map((item) => [item, ${f}(item)]))`,
  Set: (...all) => `QuintSet.of([${all}])`,
  contains: (set, item) => `${set}.has(${item})`,
  union: (a, b) => `QuintSet.of([...${a}.items, ...${b}.items])`,
  exclude: (a, b) => `${a}.without(${b})`,
  filter: (set, f) => `new QuintSet(${set}.items.filter(${f}))`,
  forall: (set, f) => `${set}.items.every(${f})`,
  exists: (set, f) => `${set}.items.some(${f})`,
  fold: (set, first, f) => `${set}.items.reduce((folded, item) => ${f}(folded, item), ${first})`,
  tuples: (a, b) => `new QuintSet(${a}.items.flatMap((x) => ${b}.items.map((y) => [x, y])))`,
  size: (set) => `${set}.items.length`,
};

/** `state` and `after`: the variables before and after a step. */
type Machine = { state: State; after: Record<string, Value>; picks: Record<string, Value>; choose: Choose };

/** Local names, and whether each is read by calling it. */
type Scope = ReadonlyMap<string, boolean>;

/** The module as the text of an object with a function for each definition. */
class Translator {
  readonly #variables: ReadonlySet<string>;
  readonly #constants: ReadonlySet<string>;

  constructor({ declarations }: QuintModule) {
    this.#variables = new Set(declarations.flatMap((one) => (one.kind === "var" ? [one.name] : [])));
    this.#constants = new Set(declarations.flatMap((one) => (one.kind === "const" ? [one.name] : [])));
  }

  definition({ name, expr, qualifier }: Def): string {
    const text = this.expression(expr, new Map());
    if (expr.kind === "lambda") return `${name}: ${text}`;
    return qualifier === "pureval" ? `${name}: once(() => ${text})` : `${name}: () => ${text}`;
  }

  expression(expression: QuintEx, scope: Scope): string {
    switch (expression.kind) {
      case "int":
        return String(expression.value);
      case "bool":
        return String(expression.value);
      case "str":
        return JSON.stringify(expression.value);
      case "name": {
        const { name } = expression;
        if (scope.has(name)) return scope.get(name) ? `$${name}()` : `$${name}`;
        if (this.#variables.has(name)) return `machine.state.${name}`;
        return this.#constants.has(name) ? `constants.${name}` : `all.${name}()`;
      }
      case "lambda": {
        const names = expression.params.map(({ name }) => name);
        const inner = new Map([...scope, ...names.map((name) => [name, false] as const)]);
        return `((${names.map((name) => `$${name}`)}) => ${this.expression(expression.expr, inner)})`;
      }
      case "let":
        return this.#let(expression.opdef, expression.expr, scope);
      case "app":
        return this.#application(expression.opcode, expression.args, scope);
    }
  }

  #let({ name, expr, qualifier }: Def, body: QuintEx, scope: Scope): string {
    if (qualifier !== "nondet") {
      // Evaluated when it is first used, as most of a step is not when a guard before it does not hold.
      const inner = this.expression(body, new Map(scope).set(name, true));
      return `(($${name}) => ${inner})(once(() => ${this.expression(expr, scope)}))`;
    }
    if (expr.kind !== "app" || expr.opcode !== "oneOf") throw new Error(`${name} is not one of a set`);
    const inner = this.expression(body, new Map(scope).set(name, false));
    return `pick("${name}", ${this.expression(expr.args[0]!, scope)}.items, ($${name}) => ${inner})`;
  }

  #application(opcode: string, args: readonly QuintEx[], scope: Scope): string {
    if (opcode === "assign") {
      const [variable, value] = args as [QuintEx & { kind: "name" }, QuintEx];
      return `assign("${variable.name}", ${this.expression(value, scope)})`;
    }
    const texts = args.map((arg) => this.expression(arg, scope));
    if (opcode === "Rec") {
      const fields = texts.flatMap((text, n) => (n % 2 === 0 ? [`${text}: ${texts[n + 1]}`] : []));
      return `({ ${fields.sort()} })`;
    }
    const operator = OPERATORS[opcode];
    if (operator === undefined) return `${scope.has(opcode) ? `$${opcode}()` : `all.${opcode}`}(${texts})`;
    const text = operator(...(texts as [string, string, string]));
    return text.startsWith("{") ? `(${text})` : text;
  }
}

/** The definitions as functions, which read and write `machine`. */
function compile(
  protocol: QuintModule,
  constants: Readonly<Record<string, Value>>,
  machine: Machine,
): Readonly<Record<string, (...args: Value[]) => Value>> {
  const translator = new Translator(protocol);
  const texts = protocol.declarations.flatMap((one) =>
    one.kind === "def" && one.name !== "step" ? [translator.definition(one)] : [],
  );
  const given = {
    machine,
    constants,
    isEqual,
    QuintSet,
    once: (evaluate: () => Value) => {
      let value: Value;
      return () => {
        if (value === undefined) value = evaluate();
        return value;
      };
    },
    pick: (name: string, items: readonly Value[], body: (item: Value) => boolean) => {
      if (items.length === 0) return false;
      const picked = items[machine.choose(items.length)];
      machine.picks[name] = picked;
      return body(picked);
    },
    assign: (name: string, value: Value) => {
      machine.after[name] = value;
      return true;
    },
  };
  const build = new Function(...Object.keys(given), `const all = { ${texts.join(",\n")} };\nreturn all;`);
  return build(...Object.values(given));
}

/** What has a state, and steps that depend on choices. */
type Steps<S> = { state: S; readonly take: (action: string, choose: Choose) => boolean };

/** Takes an action in every way that there is, and yields the states after it; then the state is the one before. */
export function* everyWay<S>(steps: Steps<S>, action: string): Generator<S> {
  const before = steps.state;
  const choices: number[] = [];
  const bounds: number[] = [];
  do {
    let at = 0;
    const isTaken = steps.take(action, (bound) => {
      if (at === choices.length) choices.push(0);
      bounds[at] = bound;
      return choices[at++]!;
    });
    if (isTaken) yield steps.state;
    steps.state = before;
    while (choices.length > 0 && choices.at(-1)! + 1 >= bounds[choices.length - 1]!) choices.pop();
    if (choices.length > 0) choices.push(choices.pop()! + 1);
  } while (choices.length > 0);
}

const read = (name: string) => {
  const path = `${import.meta.dirname}/${name}`;
  const { modules, errors } = parsePhase1fromText(newIdGenerator(), readFileSync(path, "utf8"), path);
  if (errors.length > 0) throw new Error(errors.map(({ message }) => message).join("\n"));
  return modules;
};
let parsed: { readonly protocol: QuintModule; readonly instances: readonly QuintModule[] } | null = null;

/** A whole number, or a set of some. */
function constantOf(value: QuintEx): Value {
  if (value.kind === "int") return Number(value.value);
  return value.kind === "app" ? QuintSet.of(value.args.map(constantOf)) : value;
}

/** An instance of the specification, in one of its states. */
export class Spec {
  /** The steps of `step`, in its order. */
  readonly actions: readonly string[];
  /** The parts of `allHolds`. */
  readonly invariants: readonly string[];
  readonly constants: Readonly<Record<string, Value>>;
  readonly #all: ReturnType<typeof compile>;
  readonly #machine: Machine = { state: {}, after: {}, picks: {}, choose: () => 0 };
  readonly #initial: State;

  /** @param without the guards that are taken out of it */
  constructor(instance: string, without: readonly string[] = []) {
    parsed ??= { protocol: read("protocol.qnt")[0]!, instances: read("instances.qnt") };
    const { protocol, instances } = parsed;
    const imported = instances.find(({ name }) => name === instance)?.declarations[0];
    if (imported?.kind !== "instance") throw new Error(`there is no instance ${instance}`);
    const constants = imported.overrides.map(([{ name }, value]) => [name, constantOf(value)] as const);
    this.constants = { ...Object.fromEntries(constants), WITHOUT: new QuintSet(without) };
    this.#all = compile(protocol, this.constants, this.#machine);
    const partsOf = (name: string) => {
      const found = protocol.declarations.find((one) => one.kind === "def" && one.name === name);
      if (found?.kind !== "def" || found.expr.kind !== "app") throw new Error(`${name} is no list`);
      return found.expr.args.map((part) => (part.kind === "name" ? part.name : ""));
    };
    this.actions = partsOf("step");
    this.invariants = partsOf("allHolds");
    this.take("init", () => 0);
    this.#initial = this.state;
  }

  get state(): State {
    return this.#machine.state;
  }

  set state(state: State) {
    this.#machine.state = state;
  }

  reset(): void {
    this.state = this.#initial;
  }

  /** What was chosen in the last step, by name. */
  get picks(): Readonly<Record<string, Value>> {
    return this.#machine.picks;
  }

  /** False: it is not enabled, or not with these choices, and nothing has changed. */
  take(action: string, choose: Choose): boolean {
    const machine = this.#machine;
    machine.choose = choose;
    machine.picks = {};
    machine.after = {};
    if (!this.isTrue(action)) return false;
    machine.state = machine.after;
    return true;
  }

  /** Every way to take the action here: the states after it. In between, the state is the one after the last. */
  *ways(action: string): Generator<State> {
    yield* everyWay(this, action);
  }

  isTrue(name: string): boolean {
    return this.#all[name]!();
  }

  /** The invariant that does not hold; null: all do. */
  violated(): string | null {
    return this.invariants.find((name) => !this.isTrue(name)) ?? null;
  }
}
