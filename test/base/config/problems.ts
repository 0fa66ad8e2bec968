import { ConfigError, readConfig } from "../../../src/base/config/config.ts";

/** What is wrong with an environment; empty: nothing. */
export function problemsOf(env: Record<string, string>): readonly string[] {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}
