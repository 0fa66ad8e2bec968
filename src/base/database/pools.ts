import pg from "pg";
import { requireCell } from "./cells.ts";

/** Called for every statement: how long it took from asking to its answer, and whether that was an error. */
export type OnQuery = (durationMs: number, hasFailed: boolean) => void;

export type TimedClientOptions = {
  /** For a statement's answer, unless the statement brings a `query_timeout` of its own. */
  readonly answerMs: number;
  readonly onQuery: OnQuery;
};

/** The answer is waited for so much longer than the server allows the statement: the server's own error says more. */
export const ANSWER_MARGIN_MS = 1_000;

type Answer = (error: unknown, result?: unknown) => void;

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
      const { ownMs, untimed } = takeOwnTime(statement);
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
        hangUp(this);
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

/**
 * Closes the connection now, whatever is under way. `end` alone waits for the answers to come where statements are sent
 * without waiting (`pipeline`): for one that never comes, for ever.
 */
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

type Timeouts = {
  /** How long a statement may take before the server ends it, and before we give up waiting for it. */
  readonly statementMs: number;
  readonly answerMs: number;
  /** How long a connection may take, a free one of a busy pool included. */
  readonly connectMs: number;
  /** How long a transaction may wait for its next statement; 10 s when left out. */
  readonly idleMs?: number;
};

const TIMEOUTS: Timeouts = { statementMs: 5_000, answerMs: 6_000, connectMs: 5_000 };
/** The API has its answer out within 5 s, so it has to know before that. */
const API_TIMEOUTS: Timeouts = { statementMs: 3_000, answerMs: 3_500, connectMs: 2_000 };
/**
 * Opening an account puts back all that is parked of it, perhaps a million rows. A transaction of one database waits
 * for a statement of the other, and for a connection to it.
 */
const MOVE_TIMEOUTS: Timeouts = {
  statementMs: 120_000,
  answerMs: 121_000,
  connectMs: 5_000,
  idleMs: 130_000,
};

/** Connecting, catching up and a statement take less than a second together: then the primary is asked. */
const STANDBY_TIMEOUTS: Timeouts = { statementMs: 400, answerMs: 450, connectMs: 300 };

const IDLE_MS = 10_000;
const CONNECTION_LIFETIME_SECONDS = 3_600;

export type PoolOptions = {
  readonly databaseUrl: string;
  readonly connectionsMax: number;
  readonly applicationName: string;
  /** Each connection is refused unless its database is of this cell. Null: whatever cell, or none. */
  readonly cell?: string | null;
  /** Connections that break while idle; the pool replaces them by itself. */
  readonly onError: (error: Error) => void;
  readonly onQuery?: OnQuery | undefined;
  /** Statements are sent as they come, not each when the one before it is answered. */
  readonly isPipelined?: boolean;
};

/**
 * For claims and records, whose plans must not depend on what the tables held when they were made. A small batch by ids
 * must be a nested loop over indexes; planned for an empty table it would stay a scan.
 */
export function createDispatchPool(options: PoolOptions): pg.Pool {
  const off = ["seqscan", "hashjoin", "mergejoin"];
  return createPool(options, [
    "plan_cache_mode=force_generic_plan",
    ...off.map((path) => `enable_${path}=off`),
  ]);
}

/**
 * For the API, which has to tell its callers soon that the database is away. Its clients send without waiting for
 * answers: see `inPipelinedTransaction`.
 */
export function createApiPool(options: PoolOptions): pg.Pool {
  return createPool({ ...options, isPipelined: true }, [], API_TIMEOUTS);
}

/**
 * For pages of the log, which are read along an index until they are full. By itself the planner assumes an average
 * account, and reads and sorts all of its deliveries. Custom plans would be right, too, but making one for 40 days
 * takes longer than running it. Figures: test/bench/README.md.
 */
export function createLogPool(options: PoolOptions): pg.Pool {
  return createPool(options, LOG_SETTINGS, API_TIMEOUTS);
}

const LOG_PATHS_OFF = ["seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin"];
const LOG_SETTINGS = [
  "plan_cache_mode=force_generic_plan",
  ...LOG_PATHS_OFF.map((path) => `enable_${path}=off`),
];

/** The same on a standby. What is promoted unnoticed is not written to either. */
export function createStandbyPool(options: PoolOptions): pg.Pool {
  return createPool(options, [...LOG_SETTINGS, "default_transaction_read_only=on"], STANDBY_TIMEOUTS);
}

/**
 * For metrics and probes, whose readers wait for them. They read the beginning of a long queue along the index: a
 * planner that expects most rows to be due would rather read and sort them all.
 */
export function createGaugePool(options: PoolOptions): pg.Pool {
  return createPool(options, ["enable_seqscan=off", "enable_bitmapscan=off"], API_TIMEOUTS);
}

/**
 * For moving an account: pages are read along an index, however many of an account there are. A page may take longer
 * than a statement of anybody else's, and is written as text, which has to say the same wherever it is read.
 */
export function createMovePool(options: PoolOptions): pg.Pool {
  const settings = ["bytea_output=hex", "extra_float_digits=1", "timezone=UTC", "synchronous_commit=on"];
  return createPool(options, ["enable_seqscan=off", ...settings], MOVE_TIMEOUTS);
}

/** For everything else: the command line, the leader's work. */
export function createGeneralPool(options: PoolOptions): pg.Pool {
  return createPool(options, []);
}

/**
 * The settings our statements are written for, whatever the database's owner has set. search_path: PostgreSQL prefers a
 * function, an operator or a type that fits more closely in whatever schema it searches, and others may create some in
 * `public`; pg_temp stands last by name, because unnamed it is searched first. jit: before PostgreSQL 18 a scan that is
 * switched off but needed all the same costs so much that the statement would be compiled.
 */
const OUR_SETTINGS = [
  "search_path=pg_catalog, pg_temp",
  "default_transaction_isolation=read committed",
  "standard_conforming_strings=on",
  "datestyle=ISO",
  "jit=off",
];

/** Where to connect, and the settings: first those that the address brings along, then ours. */
export function addressOf(
  databaseUrl: string,
  settings: readonly string[],
): Pick<pg.PoolConfig, "connectionString" | "options"> {
  const url = new URL(databaseUrl);
  const given = url.searchParams.get("options");
  url.searchParams.delete("options");
  const ours = [...OUR_SETTINGS, ...settings].map((setting) => `-c ${setting.replaceAll(" ", "\\ ")}`);
  // Left in the address they would replace ours.
  return given === null
    ? { connectionString: databaseUrl, options: ours.join(" ") }
    : { connectionString: url.href, options: [given, ...ours].join(" ") };
}

export function createPool(options: PoolOptions, settings: readonly string[], timeouts = TIMEOUTS): pg.Pool {
  const { cell = null } = options;
  const pool = new pg.Pool({
    ...addressOf(options.databaseUrl, settings),
    max: options.connectionsMax,
    application_name: options.applicationName,
    connectionTimeoutMillis: timeouts.connectMs,
    statement_timeout: timeouts.statementMs,
    idle_in_transaction_session_timeout: timeouts.idleMs ?? IDLE_MS,
    keepAlive: true,
    pipeline: options.isPipelined ?? false,
    // Each day's statements stay with their connection, 0.6 MB of the server's memory for every day.
    maxLifetimeSeconds: CONNECTION_LIFETIME_SECONDS,
    // Not only at the start: a name that leads elsewhere after a failover leads new connections there.
    ...(cell !== null && { onConnect: (client) => requireCell(client, cell) }),
    Client: timedClient({ answerMs: timeouts.answerMs, onQuery: options.onQuery ?? (() => undefined) }),
  });
  pool.on("error", options.onError);
  // A connection that breaks while it is lent out rejects its query; without this listener it would end the process
  // too.
  pool.on("connect", (client) => client.on("error", () => undefined));
  return pool;
}

/**
 * The database refused the data itself: invalid (class 22), against a constraint (23) or too large (54). A retry would
 * be refused again, while other rows may be fine.
 */
export function isRefusedData(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:22|23|54)/.test(error.code ?? "");
}

/** Refused, or stored data that cannot be read (58, XX). For a write the latter two may be transient. */
export function isUnreadableData(error: unknown): boolean {
  return isRefusedData(error) || (error instanceof pg.DatabaseError && /^(?:58|XX)/.test(error.code ?? ""));
}
