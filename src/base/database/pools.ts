import pg from "pg";
import { requireCell } from "./cells.ts";
import { connectable, type OnQuery, timedClient } from "./timed-client.ts";
import { onConnection } from "./transaction.ts";

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
/** Opening an account puts back perhaps a million rows; one database's transaction waits for the other's statement. */
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

/** Generic plans without these. */
export function generic(...paths: readonly string[]): readonly string[] {
  return ["plan_cache_mode=force_generic_plan", ...paths.map((path) => `enable_${path}=off`)];
}

/** For claims and records, small batches by ids over indexes: planned for an empty table they would stay scans. */
export function createDispatchPool(options: PoolOptions): pg.Pool {
  return createPool(options, generic("seqscan", "hashjoin", "mergejoin"));
}

/** Tells soon that the database is away. Its clients send without waiting for answers: see `inPipelinedTransaction`. */
export function createApiPool(options: PoolOptions): pg.Pool {
  return createPool({ ...options, isPipelined: true }, [], API_TIMEOUTS);
}

/**
 * For pages of the log, which are read along an index until they are full: the planner would assume an average account,
 * and sort all of its deliveries. Making a custom plan for 40 days takes longer than running it. Figures:
 * test/bench/README.md.
 */
const LOG_SETTINGS = generic("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin");

/** Reads the log on the connections of another pool. */
export function readingLog(pool: pg.Pool, onQuery?: OnQuery): pg.Pool {
  return planning(pool, LOG_SETTINGS, onQuery);
}

/** Reads the log on a standby. What is promoted unnoticed is not written to either. */
export function createStandbyPool(options: PoolOptions): pg.Pool {
  return createPool(options, [...LOG_SETTINGS, "default_transaction_read_only=on"], STANDBY_TIMEOUTS);
}

/** Reads gauges on the connections of another pool: the beginning of a long queue along its index, not all of it. */
export function readingGauges(pool: pg.Pool): pg.Pool {
  return planning(pool, ["enable_seqscan=off", "enable_bitmapscan=off"]);
}

/**
 * The pool, where `query` runs each statement with these settings of the planner: in a transaction of its own, sent in
 * one go where the pool's clients send without waiting. So what is planned in different ways shares connections.
 *
 * @param onQuery told of each statement, the transaction around it included
 */
function planning(pool: pg.Pool, settings: readonly string[], onQuery: OnQuery = () => undefined): pg.Pool {
  const begin = ["begin", ...settings.map((setting) => `set local ${setting}`)].join("; ");
  const sendsAhead = pool.options.pipeline;
  const ask = async (statement: pg.QueryConfig, values?: unknown[]) =>
    await onConnection(pool, async (client) => {
      const startedAtMs = performance.now();
      let hasFailed = true;
      try {
        const begun = client.query(begin);
        if (!sendsAhead) await begun;
        const asked = client.query(statement, values);
        if (!sendsAhead) await asked;
        const [, answer] = await Promise.all([begun, asked, client.query("commit")]);
        hasFailed = false;
        return answer;
      } finally {
        onQuery(performance.now() - startedAtMs, hasFailed);
      }
    });
  const planned: pg.Pool = Object.create(pool);
  planned.query = ask as typeof planned.query;
  return planned;
}

/** Lends at most `connectionsMax` of the pool's connections at a time, for what may take long; the others stay free. */
export function shareOf(pool: pg.Pool, connectionsMax: number): pg.Pool {
  let free = connectionsMax;
  const waiting = new Set<() => void>();

  /** To who has waited longest. */
  function giveBack(): void {
    const [next] = waiting;
    if (next === undefined) free++;
    else {
      waiting.delete(next);
      next();
    }
  }

  async function untilGiven(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    waiting.add(resolve);
    const timer = setTimeout(() => {
      waiting.delete(resolve);
      reject(new Error("timeout exceeded when trying to connect: the pool's share is lent out"));
    }, pool.options.connectionTimeoutMillis);
    await promise.finally(() => clearTimeout(timer));
  }

  async function connect(): Promise<pg.PoolClient> {
    if (free > 0) free--;
    else await untilGiven();
    const client = await pool.connect().catch((error: unknown) => {
      giveBack();
      throw error;
    });
    const { release } = client;
    client.release = (error) => {
      release(error);
      giveBack();
    };
    return client;
  }

  const share: pg.Pool = Object.create(pool);
  share.connect = connect as typeof share.connect;
  share.query = (async (statement: pg.QueryConfig, values?: unknown[]) =>
    await onConnection(share, (client) => client.query(statement, values))) as typeof share.query;
  return share;
}

/** For moving an account: long pages along an index, as text that says the same wherever it is read. */
export function createMovePool(options: PoolOptions): pg.Pool {
  const settings = ["bytea_output=hex", "extra_float_digits=1", "timezone=UTC", "synchronous_commit=on"];
  return createPool(options, ["enable_seqscan=off", ...settings], MOVE_TIMEOUTS);
}

/** For everything else: the command line, the leader's work. */
export function createGeneralPool(options: PoolOptions): pg.Pool {
  return createPool(options, []);
}

/**
 * The settings our statements are written for, whatever the database's owner has set. search_path: others may create a
 * closer fitting function, operator or type in `public`; pg_temp stands last by name, because unnamed it is searched
 * first. jit: before PostgreSQL 18 a scan that is switched off but needed would cost so much that it is compiled.
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
    Client: connectable(timedClient(timeouts.answerMs, options.onQuery, () => dropIdle())),
  });
  const dropIdle = idleDropper(pool);
  pool.on("error", options.onError);
  // A connection that breaks while it is lent out rejects its query; without this listener it would end the process
  // too.
  pool.on("connect", (client) => client.on("error", () => undefined));
  return pool;
}

/**
 * Returns what closes all idle connections. When a network has dropped one without a word, it has dropped the others,
 * too, and each would have to time out by itself.
 */
function idleDropper(pool: pg.Pool): () => void {
  const idle = new Set<pg.PoolClient>();
  pool.on("acquire", (client) => idle.delete(client));
  pool.on("release", (_error, client) => idle.add(client));
  pool.on("remove", (client) => idle.delete(client));
  return () => {
    const error = new Error("Connection terminated: another one of its pool timed out");
    for (const { connection } of idle) connection.stream.destroy(error);
  };
}

/** The data itself was refused, and would be again: invalid (class 22), against a constraint (23), too large (54). */
export function isRefusedData(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:22|23|54)/.test(error.code ?? "");
}

/** Refused, or stored data that cannot be read (58, XX). For a write the latter two may be transient. */
export function isUnreadableData(error: unknown): boolean {
  return isRefusedData(error) || (error instanceof pg.DatabaseError && /^(?:58|XX)/.test(error.code ?? ""));
}
