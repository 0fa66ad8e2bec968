/** The environment cannot be used. Holds every mistake at once, so that nobody mends them one start at a time. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  /** One sentence each: the variable, what was found (never a secret), what is expected. */
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`The configuration cannot be used. ${problems.join(" ")}`);
    this.problems = Object.freeze([...problems]);
  }
}
