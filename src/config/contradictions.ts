import type { Config } from "./config.ts";
import { dayInSeconds } from "./variables.ts";

/** What no variable can be blamed for alone. A field that is wrong by itself is absent, and not judged again. */
export function contradictions(config: Partial<Config>): string[] {
  const problems: string[] = [];
  if (config.environment === "production") {
    if (config.secretsKey === null) {
      problems.push(
        "SECRETS_KEY is unset, but must be given when ENVIRONMENT is production: " +
          "make one with `openssl rand -base64 32`.",
      );
    }
    if (config.unsafeAllowedTargets) {
      problems.push("UNSAFE_ALLOWED_TARGETS is set, but must be unset when ENVIRONMENT is production.");
    }
  }
  if (isAbove(config.connectTimeoutMs, config.attemptDeadlineMs)) {
    problems.push(
      `CONNECT_TIMEOUT_MS is ${config.connectTimeoutMs}, but must be at most ATTEMPT_DEADLINE_MS, ` +
        `which is ${config.attemptDeadlineMs}.`,
    );
  }
  const logRetentionSeconds = config.logRetentionDays && config.logRetentionDays * dayInSeconds;
  if (isAbove(config.analysisRetentionSeconds, logRetentionSeconds)) {
    problems.push(
      `LOG_RETENTION_DAYS is ${config.logRetentionDays}, but must be at least ` +
        `ANALYSIS_RETENTION_SECONDS, which is ${config.analysisRetentionSeconds}.`,
    );
  }
  return problems;
}

function isAbove(left: number | undefined, right: number | undefined): boolean {
  return left !== undefined && right !== undefined && left > right;
}
