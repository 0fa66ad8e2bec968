import type { Config } from "./config.ts";
import { ConfigError } from "./config-error.ts";
import { contradictions } from "./contradictions.ts";
import { type Variable, variables } from "./variables.ts";

/**
 * Reads the environment once. An empty variable counts as unset.
 * @throws ConfigError with all mistakes together.
 */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [name, variable] of Object.entries<Variable<unknown>>(variables)) {
    const found = env[name] || variable.fallback;
    const parsed = found === null ? { success: true, data: null } : variable.kind.schema.safeParse(found);
    if (parsed.success) values[camel(name)] = parsed.data;
    else problems.push(`${name} ${shown(variable, found ?? "")}, but must be ${variable.kind.expected}.`);
  }
  problems.push(...contradictions(values as Partial<Config>));
  if (problems.length > 0) throw new ConfigError(problems);
  return Object.freeze(values) as Config;
}

const shownCharactersMax = 60;

function shown(variable: Variable<unknown>, found: string): string {
  if (variable.kind.isSecret) return "is set to a value that is not shown here";
  const isLong = found.length > shownCharactersMax;
  return `is ${JSON.stringify(found.slice(0, shownCharactersMax))}${isLong ? "…" : ""}`;
}

function camel(name: string): string {
  return name.toLowerCase().replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}
