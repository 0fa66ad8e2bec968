import { TemporarilyUnavailable } from "../api/problems.ts";
import { isDatabaseAway } from "../store/availability.ts";

/** Passes a result on; where the database is away, rejects with what makes the answer a 503. */
export type OutageAs503 = <T>(work: Promise<T>) => Promise<T>;

const SAID_EVERY_MS = 1_000;

/** @param onAway told of it at most once a second: every request of an outage would have something to say */
export function createOutageAs503(onAway: (error: unknown) => void): OutageAs503 {
  let saidAtMs = Number.NEGATIVE_INFINITY;
  return async (work) => {
    try {
      return await work;
    } catch (error) {
      if (!isDatabaseAway(error)) throw error;
      const nowMs = performance.now();
      if (nowMs - saidAtMs >= SAID_EVERY_MS) {
        saidAtMs = nowMs;
        onAway(error);
      }
      throw new TemporarilyUnavailable("the database is away", { cause: error });
    }
  };
}
