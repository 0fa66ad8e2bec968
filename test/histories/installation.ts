// What histories are recorded on: one PostgreSQL server with two cells, real processes of both, and what is done to
// them meanwhile.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { Agent, request } from "undici";
import { createAccount } from "../../src/accounts/accounts-sql.ts";
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { migrate } from "../../src/base/database/migrate.ts";
import { createMovePool } from "../../src/base/database/pools.ts";
import { scopes as everyScope, userScopes } from "../../src/base/model/api-keys.ts";
import type { Cell } from "../../src/cells/move.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { writeSettings } from "../../src/publish/publish-call-sql.ts";
import { OwnPostgres } from "../faults/harness/own-postgres.ts";
import type { Chance } from "../simulation/chance.ts";
import { createTestUser } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

export type CellName = "source" | "target";
const KEYS = { source: Buffer.alloc(32, 7), target: Buffer.alloc(32, 8) };

export const DEADLINE_MS = 1_000;
const RETRY_WINDOW_SECONDS = 60;
/** At most; half of that at least. */
const SESSIONS_END_EVERY_MS = 1_000;
const KILL_EVERY_MS = 8_000;
/** Of the kills, those of the whole database. */
const RESTARTS = 0.1;
const PROCESSES = [
  ["source", "serve"],
  ["source", "serve"],
  ["source", "dispatch"],
  ["target", "serve"],
] as const;

export type Told = {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly text: string;
  readonly isReplayed: boolean;
};

/** On the monotonic clock that all processes of a machine share. */
export const now = () => Number(process.hrtime.bigint());

export type Asking = {
  readonly key: string;
  readonly body?: unknown;
  readonly idempotencyKey?: string;
  readonly cell?: CellName;
};

type Running = { readonly cell: CellName; readonly command: "serve" | "dispatch"; process: SealpostProcess };

export class Installation {
  readonly chance: Chance;
  readonly #postgres: OwnPostgres;
  readonly #folder: string;
  readonly #urls: Readonly<Record<CellName, string>>;
  readonly #pools: Readonly<Record<CellName, pg.Pool>>;
  readonly #movers: Readonly<Record<CellName, pg.Pool>>;
  readonly #receiver: Receiver;
  readonly #arrivals: Map<string, (id: string, at: number) => number>;
  readonly #agent = new Agent({ connections: 200, pipelining: 1 });
  #running: Running[] = [];
  #tree: string | undefined;
  /** What was killed, and does not run again yet. */
  #victim: Running | null = null;
  #isUp: Promise<unknown> = Promise.resolve();
  readonly faults = { "processes killed": 0, "sessions ended": 0, "database restarts": 0 };

  private constructor(
    chance: Chance,
    postgres: OwnPostgres,
    folder: string,
    receiver: Receiver,
    arrivals: Arrivals,
  ) {
    this.chance = chance;
    this.#postgres = postgres;
    this.#folder = folder;
    this.#receiver = receiver;
    this.#arrivals = arrivals;
    const url = (name: CellName) => Object.assign(new URL(postgres.url), { pathname: name }).href;
    this.#urls = { source: url("source"), target: url("target") };
    const each = (open: (url: string) => pg.Pool) => ({
      source: open(this.#urls.source),
      target: open(this.#urls.target),
    });
    this.#pools = each((connectionString) => quiet(new pg.Pool({ connectionString, max: 40 })));
    const options = { connectionsMax: 24, applicationName: "histories move", onError: () => undefined };
    this.#movers = each((databaseUrl) => createMovePool({ ...options, databaseUrl }));
  }

  static async start(chance: Chance): Promise<Installation> {
    const postgres = await OwnPostgres.start({ settings: { max_connections: "300" } });
    const arrivals: Arrivals = new Map();
    const receiver = await startReceiver({
      records: false,
      handler: ({ path, body }) => {
        const at = now();
        const { data } = JSON.parse(body.toString()) as { readonly data: { readonly id: string } };
        return { status: arrivals.get(path)?.(data.id, at) ?? 200 };
      },
    });
    const folder = await mkdtemp(join(tmpdir(), "sealpost-histories-"));
    await writeFile(join(folder, "ca.pem"), receiver.caPem);
    const installation = new Installation(chance, postgres, folder, receiver, arrivals);
    await installation.#prepare();
    await installation.run();
    return installation;
  }

  async #prepare(): Promise<void> {
    const admin = new pg.Client({ connectionString: this.#postgres.url });
    await admin.connect();
    await admin.query("create database source");
    await migrate({ databaseUrl: this.#urls.source });
    await admin.query("create database target template source");
    await admin.end();
    const settings = {
      analysisBytesMax: 1_048_576,
      unsafeAllowedTargets: [`localhost:${this.#receiver.port}`],
    };
    for (const pool of Object.values(this.#pools)) await writeSettings(pool, settings);
  }

  /** The processes of this tree (default: this project), in place of those that run. */
  async run(tree?: string): Promise<void> {
    await Promise.all(this.#running.map(({ process }) => process.killAll()));
    const start = async ([cell, command]: (typeof PROCESSES)[number]): Promise<Running> => {
      return { cell, command, process: await this.#spawn(cell, command, tree) };
    };
    this.#tree = tree;
    this.#running = await Promise.all(PROCESSES.map(start));
  }

  #spawn(cell: CellName, command: "serve" | "dispatch", tree: string | undefined): Promise<SealpostProcess> {
    const env = {
      DATABASE_URL: this.#urls[cell],
      SECRETS_KEY: KEYS[cell].toString("base64"),
      STATE_DIR: this.#folder,
      TARGET_CA_FILE: join(this.#folder, "ca.pem"),
      UNSAFE_ALLOWED_TARGETS: `localhost:${this.#receiver.port}`,
      ATTEMPT_DEADLINE_MS: String(DEADLINE_MS),
      RETRY_WINDOW_SECONDS: String(RETRY_WINDOW_SECONDS),
      RATE_LIMIT_REQUESTS: "1000000",
      PUBLISH_RATE_PER_SECOND: "1000000",
      NODE_COMPILE_CACHE: join(this.#folder, "compiled"),
      LOG_LEVEL: "warn",
    };
    return startProcess(command, env, { main: tree && join(tree, "src/main.ts") });
  }

  pool(cell: CellName = "source"): pg.Pool {
    return this.#pools[cell];
  }

  cell(name: CellName): Cell {
    return { pool: this.#movers[name], secretsKey: KEYS[name] };
  }

  /** Resolves when the database is there, as far as is known. */
  up(): Promise<unknown> {
    return this.#isUp;
  }

  /** `path`: of the receiver, as its endpoint; null: it has none. Its key acts for no user. */
  async newAccount(
    path: string | null = null,
  ): Promise<{ readonly accountId: string; readonly key: string }> {
    const { accountId } = await createAccount(this.pool(), "histories", KEYS.source);
    if (path !== null) await setEndpoint(this.pool(), accountId, this.receiverUrl(path));
    const asked = { accountId, name: null, scopes: everyScope, expiresInSeconds: null };
    return { accountId, key: (await createApiKey(this.pool(), readConfig({}), asked)).apiKey };
  }

  /** The key of a user of the account. */
  async newUser(accountId: string): Promise<string> {
    const { id: userId } = await createTestUser(this.pool(), accountId);
    const asked = { accountId, userId, name: null, scopes: userScopes, expiresInSeconds: null };
    return (await createApiKey(this.pool(), readConfig({}), asked)).apiKey;
  }

  receiverUrl(path: string): string {
    return this.#receiver.url(path).href;
  }

  /** `heard`: an analysis arrived there; it says with which status it is answered. */
  hear(path: string, heard: (analysisId: string, at: number) => number): void {
    this.#arrivals.set(path, heard);
  }

  /** Null: there was no answer, or one that says nothing of what has become of it. */
  async ask(
    method: "GET" | "POST" | "PUT",
    path: string,
    { key, body, idempotencyKey, cell = "source" }: Asking,
  ): Promise<Told | null> {
    const headers = {
      authorization: `Bearer ${key}`,
      ...(idempotencyKey !== undefined && { "idempotency-key": idempotencyKey }),
      ...(body !== undefined && { "content-type": "application/json" }),
    };
    const sent = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    for (;;) {
      const apis = this.#running.filter(
        (one) => one.cell === cell && one.command === "serve" && !one.process.hasEnded,
      );
      if (apis.length > 0) {
        const { url } = this.chance.pick(apis).process;
        try {
          const options = {
            method,
            headers,
            body: sent ?? null,
            dispatcher: this.#agent,
            bodyTimeout: 0,
            headersTimeout: patience(30_000),
          };
          const answer = await request(new URL(path, url), options);
          const text = await answer.body.text();
          if (answer.statusCode >= 500) return null;
          const isReplayed = answer.headers["idempotent-replayed"] === "true";
          return { status: answer.statusCode, body: JSON.parse(text), text, isReplayed };
        } catch (error) {
          // Where nobody listens nothing was sent.
          if ((error as NodeJS.ErrnoException).code !== "ECONNREFUSED") return null;
        }
      }
      this.#requireAlive();
      await wait(20);
    }
  }

  /** Kills, ends and restarts until the signal. @throws Error if a process has ended by itself meanwhile */
  async trouble(signal: AbortSignal): Promise<void> {
    const over = async (restMs: number, act: () => Promise<void>) => {
      for (;;) {
        await wait(this.chance.between(restMs / 2, restMs), null, { signal }).catch(() => undefined);
        if (signal.aborted) return;
        await act();
      }
    };
    await Promise.all([
      over(SESSIONS_END_EVERY_MS, () => this.#endSessions()),
      over(KILL_EVERY_MS, () => (this.chance.isTrue(RESTARTS) ? this.#restart() : this.#killOne())),
    ]);
    this.#requireAlive();
  }

  #requireAlive(): void {
    const ended = this.#running.find((one) => one.process.hasEnded && one !== this.#victim);
    if (ended) throw new Error(`a ${ended.command} has ended by itself: ${ended.process.output()}`);
  }

  async #killOne(): Promise<void> {
    this.#requireAlive();
    const victim = this.chance.pick(this.#running);
    this.#victim = victim;
    await victim.process.killAll();
    this.faults["processes killed"]++;
    // A session that is ended may be the one that a process has just begun with.
    const spawn = () => this.#spawn(victim.cell, victim.command, this.#tree);
    victim.process = await spawn().catch(spawn);
    this.#victim = null;
  }

  /** Whoever is at work on the database in these is cut off, before or after the commit. */
  async #endSessions(): Promise<void> {
    const { rowCount } = await this.pool()
      .query(
        `select pg_terminate_backend(pid) from (
           select pid from pg_stat_activity
           where datname in ('source', 'target') and pid <> pg_backend_pid() and state <> 'idle'
           order by random() limit 2) as chosen`,
      )
      .catch(() => ({ rowCount: 0 }));
    this.faults["sessions ended"] += rowCount ?? 0;
  }

  async #restart(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#isUp = promise;
    await this.#postgres.end(this.chance.pick(["immediate", "kill"] as const));
    await this.#postgres.startAgain();
    this.faults["database restarts"]++;
    resolve();
  }

  async close(): Promise<void> {
    await Promise.all(this.#running.map(({ process }) => process.killAll()));
    await Promise.all(
      [...Object.values(this.#pools), ...Object.values(this.#movers)].map((pool) => pool.end()),
    );
    await Promise.all([this.#receiver.close(), this.#agent.destroy(), this.#postgres.close()]);
    await rm(this.#folder, { recursive: true, force: true });
  }
}

type Arrivals = Map<string, (id: string, at: number) => number>;

function quiet(pool: pg.Pool): pg.Pool {
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
  return pool;
}
