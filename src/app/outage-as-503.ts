import { TemporarilyUnavailable } from "../api/problems.ts";
import { isDatabaseAway } from "../store/availability.ts";

/** Passes a result through; when the database is unreachable, rejects with an error that is answered as 503. */
export type OutageAs503 = <T>(work: Promise<T>) => Promise<T>;

const REPORT_EVERY_MS = 1_000;

/** @param onOutage called at most once a second, however many requests an outage fails */
export function createOutageAs503(onOutage: (error: unknown) => void): OutageAs503 {
  let reportedAtMs = Number.NEGATIVE_INFINITY;
  return async (work) => {
    try {
      return await work;
    } catch (error) {
      if (!isDatabaseAway(error)) throw error;
      const nowMs = performance.now();
      if (nowMs - reportedAtMs >= REPORT_EVERY_MS) {
        reportedAtMs = nowMs;
        onOutage(error);
      }
      throw new TemporarilyUnavailable("the database is away", { cause: error });
    }
  };
}
