import pg from "pg";

/** Called for every statement: how long it took from asking to its answer, and whether that was an error. */
export type OnQuery = (durationMs: number, hasFailed: boolean) => void;

/** The answer is waited for so much longer than the server allows the statement: the server's own error says more. */
export const ANSWER_MARGIN_MS = 1_000;

type Answer = (error: unknown, result?: unknown) => void;

/**
 * The routine in PostgreSQL that warns when a commit's wait for the synchronous standby is cancelled
 * (pg_cancel_backend). The commit may then be on this server alone, and is reported as a success all the same. The
 * warning's text depends on lc_messages, so it is known by its routine.
 */
const NOT_ON_STANDBY = "SyncRepWaitForLSN";

/**
 * A client whose statements are timed, whoever sends them, by promises or callbacks: the driver has no hooks for it.
 *
 * It hangs up when an answer does not come in time: a network that has forgotten the connection never answers again,
 * and graphile-worker would give it back to its pool as a good one. The driver's own query_timeout and promises are not
 * used: both say `query.callback = () => …`, and V8 makes a function that is assigned to a property in the old
 * generation: every row of every answer lived on until the next full collection, 80 % of what was allocated.
 *
 * A commit whose wait for the synchronous standby was cancelled fails: see `NOT_ON_STANDBY`.
 *
 * @param answerMs for a statement's answer, unless the statement brings a `query_timeout` of its own
 * @param onTimeout no answer came in time
 */
export function timedClient(
  answerMs: number,
  onQuery: OnQuery = () => undefined,
  onTimeout: () => void = () => undefined,
): typeof pg.Client {
  return class TimedClient extends pg.Client {
    /** Fails everything that is still to be answered. */
    #notOnStandby: Error | null = null;

    constructor(config?: string | pg.ClientConfig) {
      super(config);
      this.on("notice", ({ routine }) => {
        if (routine !== NOT_ON_STANDBY) return;
        this.#notOnStandby = new Error(
          "Connection terminated: a commit's wait for the synchronous standby was cancelled",
        );
        hangUp(this);
      });
    }

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
      const { ownMs, untimed } = takeOwnTime(statement);
      const startedAtMs = performance.now();
      let isAnswered = false;
      const settle: Answer = (error, result) => {
        if (isAnswered) return;
        isAnswered = true;
        clearTimeout(timer);
        const failure = this.#notOnStandby ?? error;
        onQuery(performance.now() - startedAtMs, failure instanceof Error);
        answer(failure, result);
      };
      const timer = setTimeout(() => {
        hangUp(this);
        onTimeout();
        settle(unanswered(ownMs ?? answerMs));
      }, ownMs ?? answerMs);
      const query = super.query as (...args: readonly unknown[]) => unknown;
      try {
        query.call(this, untimed, ...values, settle);
      } catch (error) {
        clearTimeout(timer);
        throw error;
      }
    }
  };
}

/** A file with certificates or a key, which the driver reads for each connection. */
export class UnreadableFileError extends Error {}

/** The driver reads files when it makes a client. Where that throws a pool ends the process: this fails to connect. */
export function connectable(Client: typeof pg.Client): typeof pg.Client {
  return function client(config: pg.ClientConfig): pg.Client {
    try {
      return new Client(config);
    } catch (cause) {
      const { syscall, message } = cause as NodeJS.ErrnoException;
      const what = `DATABASE_URL names a file for TLS that cannot be read (${message})`;
      const error = syscall
        ? new UnreadableFileError(`${what}: mount it, or correct the path.`, { cause })
        : cause;
      const connect = (callback: (error: unknown) => void) => process.nextTick(callback, error);
      return Object.assign(new pg.Client(), { connect });
    }
  } as unknown as typeof pg.Client;
}

/** Closes the connection now. `end` alone waits for the answers where statements are sent without waiting, for ever. */
export function hangUp(client: pg.Client): void {
  void client.end();
  client.connection.stream.destroy();
}

/** A text has no time of its own, and taking a text apart would be taking it letter by letter. */
function takeOwnTime(statement: unknown): { readonly ownMs: number | undefined; readonly untimed: unknown } {
  if (typeof statement !== "object" || statement === null || !("query_timeout" in statement)) {
    return { ownMs: undefined, untimed: statement };
  }
  const { query_timeout, ...untimed } = statement;
  return { ownMs: query_timeout as number | undefined, untimed };
}

/** Begins with the driver's words, for whoever looks for them. */
function unanswered(ms: number): Error {
  return new Error(`Query read timeout: no answer within ${ms} ms, so the connection was closed`);
}

/** Where a statement was asked says more than which socket brought its answer. */
function tellWhereAsked(error: unknown): never {
  if (error instanceof Error) Error.captureStackTrace(error);
  throw error;
}
