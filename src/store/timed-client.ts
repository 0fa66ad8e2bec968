import pg from "pg";

/** Told of every statement: how long it took from asking to its answer, and whether that was an error. */
export type OnQuery = (durationMs: number, hasFailed: boolean) => void;

type Callback = (error: unknown, result: unknown) => void;

/**
 * A client whose statements are timed, whoever sends them: ours by promises, the pool's by callbacks, graphile-worker's
 * by either. The driver has neither hooks nor a diagnostics channel for it.
 *
 * It hangs up when an answer did not come in time (the driver's query_timeout): a network that has forgotten the
 * connection never answers again, and graphile-worker would give it back to its pool as a good one.
 */
export function timedClient(onQuery: OnQuery): typeof pg.Client {
  return class TimedClient extends pg.Client {
    // Of the driver's ten overloads only this matters: with a callback, or without one and then a promise.
    override query(...given: unknown[]): never {
      const query = super.query as (...args: unknown[]) => unknown;
      const startedAt = performance.now();
      const told = (error: unknown) => {
        if (isUnanswered(error)) void this.end();
        onQuery(performance.now() - startedAt, error instanceof Error);
      };
      const callback = given.at(-1);
      if (typeof callback === "function") {
        const timed: Callback = (error, result) => {
          told(error);
          (callback as Callback)(error, result);
        };
        return query.call(this, ...given.slice(0, -1), timed) as never;
      }
      const answer = query.call(this, ...given);
      if (answer instanceof Promise) answer.then(() => told(null), told);
      return answer as never;
    }
  };
}

/** The driver gives this error no code of its own. */
function isUnanswered(error: unknown): boolean {
  return error instanceof Error && error.message === "Query read timeout";
}
