import pg from "pg";

/** Told of every statement: how long it took from asking to its answer, and whether that was an error. */
export type OnQuery = (durationMs: number, hasFailed: boolean) => void;

export type TimedClientOptions = {
  /** For a statement's answer, unless the statement brings a `query_timeout` of its own. */
  readonly answerMs: number;
  readonly onQuery: OnQuery;
};

type Answer = (error: unknown, result?: unknown) => void;

/** In the driver's words, for whoever looks for them. */
const UNANSWERED = "Query read timeout";

/**
 * A client whose statements are timed, whoever sends them: ours by promises, the pool's by callbacks, graphile-worker's
 * by either. The driver has neither hooks nor a diagnostics channel for it.
 *
 * It hangs up when an answer does not come in time: a network that has forgotten the connection never answers again,
 * and graphile-worker would give it back to its pool as a good one. The driver's own query_timeout and its own promises
 * are left alone, because both say `query.callback = () => …`, and V8 makes a function that is assigned to a property
 * in the old generation: every row of every answer lived on until the next full collection, 80 % of what was allocated.
 */
export function timedClient({ answerMs, onQuery }: TimedClientOptions): typeof pg.Client {
  return class TimedClient extends pg.Client {
    // Of the driver's ten overloads only this matters: with a callback, or without one and then a promise.
    override query(...given: unknown[]): never {
      const callback = given.at(-1);
      if (typeof callback === "function") {
        this.#ask(given.slice(0, -1), callback as Answer);
        return undefined as never;
      }
      return new Promise((resolve, reject) => {
        this.#ask(given, (error, result) => (error ? reject(error) : resolve(result)));
      }).catch(tellWhereAsked) as never;
    }

    #ask([statement, ...values]: readonly unknown[], answer: Answer): void {
      const { query_timeout: ownMs, ...untimed } = (statement ?? {}) as { readonly query_timeout?: number };
      const startedAtMs = performance.now();
      let isAnswered = false;
      const settle: Answer = (error, result) => {
        if (isAnswered) return;
        isAnswered = true;
        clearTimeout(timer);
        onQuery(performance.now() - startedAtMs, error instanceof Error);
        answer(error, result);
      };
      const timer = setTimeout(() => {
        void this.end();
        settle(new Error(UNANSWERED));
      }, ownMs ?? answerMs);
      const query = super.query as (...args: readonly unknown[]) => unknown;
      query.call(this, ownMs === undefined ? statement : untimed, ...values, settle);
    }
  };
}

/** Where a statement was asked says more than which socket brought its answer. */
function tellWhereAsked(error: unknown): never {
  if (error instanceof Error) Error.captureStackTrace(error);
  throw error;
}
