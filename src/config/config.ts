import type { Variable, variables } from "./variables.ts";

type Camel<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Lowercase<Head>}${Capitalize<Camel<Tail>>}`
  : Lowercase<Name>;

type ValueOf<V> = V extends Variable<infer T> ? T : never;

/**
 * The validated environment: one field per variable, its name in camel case (`ATTEMPT_DEADLINE_MS` →
 * `attemptDeadlineMs`); null where the variable is unset and has no default.
 */
export type Config = {
  readonly [Name in keyof typeof variables as Camel<Name>]: ValueOf<(typeof variables)[Name]>;
};

/** The environment is not valid. Holds all problems at once, so that they can be fixed together. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  /** One sentence each: the variable, what was found (never a secret), what is expected. */
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`The configuration is not valid. ${problems.join(" ")}`);
    this.problems = Object.freeze([...problems]);
  }
}
