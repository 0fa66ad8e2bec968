import type { Variable, variables } from "./variables.ts";

type Camel<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Lowercase<Head>}${Capitalize<Camel<Tail>>}`
  : Lowercase<Name>;

type ValueOf<V> = V extends Variable<infer T> ? T : never;

/**
 * What the environment says, checked. A field per variable, its name in camel case with the unit last
 * (`ATTEMPT_DEADLINE_MS` → `attemptDeadlineMs`); null where the variable is unset and has no default.
 */
export type Config = {
  readonly [Name in keyof typeof variables as Camel<Name>]: ValueOf<(typeof variables)[Name]>;
};
