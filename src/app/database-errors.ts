import pg from "pg";
import type { Logger } from "pino";
import { KEY_REVOKED_STATE } from "../base/database/idempotency.ts";
import { SecretsKeyError } from "../base/database/sealing.ts";
import { storageRefusalOf } from "../base/database/storage.ts";
import { isDatabaseAway } from "../base/database/transaction.ts";
import { refusalOf } from "../base/model/storage.ts";
import { Problem, TemporarilyUnavailable, type TranslateError } from "../http/problems.ts";

const REPORT_EVERY_MS = 1_000;

/** Calls `report` at most once a second, however many requests an outage fails. */
export function throttled<Reported>(report: (reported: Reported) => void): (reported: Reported) => void {
  let reportedAtMs = Number.NEGATIVE_INFINITY;
  return (reported) => {
    const nowMs = performance.now();
    if (nowMs - reportedAtMs < REPORT_EVERY_MS) return;
    reportedAtMs = nowMs;
    report(reported);
  };
}

/**
 * 503 where the database is unreachable, or holds secrets of another key; a problem where it refuses to store more for
 * the account, or the caller's key is revoked.
 */
export function createTranslateError(log: Pick<Logger, "warn">): TranslateError {
  const report = throttled((err: unknown) => log.warn({ err }, "the database does not answer"));
  const reportKey = throttled((err: Error) => log.warn({ err }, "a secret was not stored"));
  return (error) => {
    const refusal = storageRefusalOf(error);
    if (refusal !== null) {
      const { code, message } = refusalOf(refusal);
      return new Problem(code, { errors: [{ path: "account", message }], cause: error });
    }
    if (error instanceof pg.DatabaseError && error.code === KEY_REVOKED_STATE)
      return new Problem("unauthorized", { cause: error });
    if (error instanceof SecretsKeyError) {
      reportKey(error);
      return new TemporarilyUnavailable(error.message, { cause: error });
    }
    if (!isDatabaseAway(error)) return error;
    report(error);
    return new TemporarilyUnavailable("the database is unavailable", { cause: error });
  };
}
