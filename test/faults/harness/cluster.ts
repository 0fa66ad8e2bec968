// Everything together: a database, dispatchers and an API as real processes, a receiver and a producer.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { createAccount } from "../../../src/accounts/accounts-sql.ts";
import { createApiKey } from "../../../src/app/create-api-key.ts";
import { readConfig } from "../../../src/base/config/config.ts";
import { setEndpoint } from "../../../src/delivery/endpoint-sql.ts";
import { rotateSigningSecret } from "../../../src/delivery/signing-secrets-sql.ts";
import { writeSettings } from "../../../src/publish/publish-call-sql.ts";
import { isComplaint } from "../../support/child-processes.ts";
import { SealpostProcess } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";
import { check, type Verdict } from "./checker.ts";
import { Producer, type Publication } from "./producer.ts";
import { ReceiverProcess } from "./receiver-process.ts";

/** D, the deadline of an attempt: short, so that leases are. */
export const DEADLINE_MS = patience(1_000);
/** L = D + 5 s, how long a killed dispatcher's attempts are nobody else's. */
export const LEASE_MS = DEADLINE_MS + 5_000;
/** S, how often the leader looks; in proportion to the retry window below. */
export const SWEEP_MS = 600;
const RETRY_WINDOW_SECONDS = 60;
const COMPLAINTS_SHOWN = 20;
const SECRETS_KEY = Buffer.alloc(32, 9);

export type ClusterOptions = {
  readonly databaseUrl: string;
  /** The database is empty: who migrates it writes down the limits, too. Default: it is migrated. */
  readonly isEmpty?: boolean;
  readonly dispatchers?: number;
  /** Beyond what every process gets; the same names replace those. */
  readonly env?: Readonly<Record<string, string>>;
  /** Certificates to be trusted besides the receiver's own. */
  readonly caPems?: readonly string[];
  /** `host:port` of other targets on loopback. */
  readonly targets?: readonly string[];
};

export type TestAccount = { readonly accountId: string; readonly secret: string };

export class Cluster {
  readonly databaseUrl: string;
  readonly pool: pg.Pool;
  readonly receiver: ReceiverProcess;
  readonly producer: Producer;
  /** Those that were started, ended ones included. */
  readonly processes: SealpostProcess[] = [];
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #secrets: string[] = [];

  private constructor(options: ClusterOptions, receiver: ReceiverProcess, folder: string) {
    this.databaseUrl = options.databaseUrl;
    this.receiver = receiver;
    this.#folder = folder;
    this.pool = new pg.Pool({
      connectionString: options.databaseUrl,
      max: 3,
      connectionTimeoutMillis: patience(10_000),
    });
    this.pool.on("error", () => undefined);
    this.pool.on("connect", (client) => client.on("error", () => undefined));
    this.producer = new Producer(options.databaseUrl, "a");
    this.#env = {
      DATABASE_URL: options.databaseUrl,
      STATE_DIR: folder,
      SECRETS_KEY: SECRETS_KEY.toString("base64"),
      TARGET_CA_FILE: join(folder, "ca.pem"),
      UNSAFE_ALLOWED_TARGETS: [receiver.unsafeAllowed, ...(options.targets ?? [])].join(","),
      ATTEMPT_DEADLINE_MS: String(DEADLINE_MS),
      RETRY_WINDOW_SECONDS: String(RETRY_WINDOW_SECONDS),
      DISPATCH_IN_FLIGHT_MAX: "100",
      METRICS_PORT: "0",
      PORT: "0",
      LOG_LEVEL: "info",
      ...options.env,
    };
  }

  static async start(options: ClusterOptions): Promise<Cluster> {
    const receiver = await ReceiverProcess.start();
    const folder = await mkdtemp(join(tmpdir(), "sealpost-faults-"));
    await writeFile(join(folder, "ca.pem"), [receiver.caPem, ...(options.caPems ?? [])].join("\n"));
    const cluster = new Cluster(options, receiver, folder);
    if (!options.isEmpty) {
      await writeSettings(cluster.pool, {
        analysisBytesMax: 1_048_576,
        unsafeAllowedTargets: [...receiver.unsafeAllowed.split(","), ...(options.targets ?? [])],
      });
    }
    await Promise.all(Array.from({ length: options.dispatchers ?? 1 }, () => cluster.startDispatcher()));
    return cluster;
  }

  get dispatchers(): SealpostProcess[] {
    return this.processes.filter((one) => !one.hasEnded);
  }

  /** Resolves when it takes part. */
  async startDispatcher(
    env: Readonly<Record<string, string>> = {},
    imports: readonly string[] = [],
  ): Promise<SealpostProcess> {
    const process = this.spawn(["dispatch"], env, imports);
    await process.ready;
    return process;
  }

  /** Resolves with the API's address. */
  async startApi(): Promise<{ readonly process: SealpostProcess; readonly url: string }> {
    const process = this.spawn(["serve"]);
    await process.ready;
    return { process, url: process.url };
  }

  spawn(
    command: readonly string[],
    env: Readonly<Record<string, string>> = {},
    imports: readonly string[] = [],
    main?: string,
  ): SealpostProcess {
    const nodeFlags = imports.flatMap((url) => ["--import", url]);
    const process = new SealpostProcess(command, { ...this.#env, ...env }, { nodeFlags, main });
    this.processes.push(process);
    return process;
  }

  /** An account that can sign, with this path of the receiver, or this address, as its endpoint. */
  async createAccount(pathOrUrl = "/"): Promise<TestAccount> {
    const { accountId, signingSecret } = await createAccount(this.pool, "faults", SECRETS_KEY);
    const url = pathOrUrl.startsWith("/") ? this.receiver.url(pathOrUrl) : pathOrUrl;
    await setEndpoint(this.pool, accountId, url);
    await this.knowSecret(signingSecret);
    return { accountId, secret: signingSecret };
  }

  /** `userId`: for whom it acts; null: for nobody. */
  async createApiKey(
    accountId: string,
    scopes: readonly string[],
    userId: string | null = null,
  ): Promise<string> {
    const asked = { accountId, userId, name: "faults", scopes, expiresInSeconds: null };
    const { apiKey } = await createApiKey(this.pool, readConfig(this.#env), asked);
    return apiKey;
  }

  /** The receiver knows the new secret, too. An older one than the one before it ends. */
  async rotateSecret(accountId: string, overlapSeconds: number): Promise<void> {
    const rotation = { overlapSeconds, endsPrevious: true };
    const rotated = await rotateSigningSecret(this.pool, accountId, rotation, SECRETS_KEY);
    if (rotated === "rotation_in_progress") throw new Error("a rotation that ends others was refused");
    await this.knowSecret(rotated.secret);
  }

  async knowSecret(secret: string): Promise<void> {
    this.#secrets.push(secret);
    await this.receiver.knowSecrets(this.#secrets);
  }

  async countOpen(): Promise<number> {
    const { rows } = await this.pool.query<{ n: number }>(
      "select count(*)::integer as n from sealpost.open_deliveries",
    );
    return rows[0]!.n;
  }

  async countLeased(): Promise<number> {
    const { rows } = await this.pool.query<{ n: number }>(
      "select count(*)::integer as n from sealpost.open_deliveries where lease_until > now()",
    );
    return rows[0]!.n;
  }

  /** Liveness: without any more faults everything ends. Throws when it does not, in time. */
  async drain(timeoutMs: number): Promise<number> {
    const startedAt = performance.now();
    for (;;) {
      const open = await this.countOpen();
      const tookMs = performance.now() - startedAt;
      if (open === 0) return Math.round(tookMs);
      if (tookMs > patience(timeoutMs))
        throw new Error(
          `${open} deliveries are open after ${Math.round(tookMs)} ms:\n${await this.#describeOpen()}`,
        );
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** What the open deliveries wait for, alike ones together; times in seconds from now. */
  async #describeOpen(): Promise<string> {
    const { rows } = await this.pool.query(
      `with open as (
         select lane, attempts_in_run as attempts, coalesce(lease_until > now(), false) as is_leased,
           round(extract(epoch from due_at - now())) as due, round(extract(epoch from wake_at - now())) as wakes
         from sealpost.open_deliveries)
       select count(*)::integer as deliveries, lane, attempts, is_leased,
         array[min(due), max(due)] as due, array[min(wakes), max(wakes)] as wakes
       from open group by lane, attempts, is_leased order by lane, attempts, is_leased limit 20`,
    );
    return rows.map((row) => JSON.stringify(row)).join("\n");
  }

  /** What its processes complained of at last, for whoever has to find out why a scenario failed. */
  troubles(): string {
    const complaints = this.processes.flatMap((process) => {
      const said = process.lines.filter(isComplaint).map((line) => JSON.stringify(line));
      const errors = process.errors === "" ? [] : [process.errors];
      return [...errors, ...said].map((text) => `process ${process.pid}: ${text}`);
    });
    return complaints.slice(-COMPLAINTS_SHOWN).join("\n");
  }

  check(publications: readonly Publication[] = this.producer.publications): Promise<Verdict> {
    return check(this.pool, publications, this.receiver.arrivals);
  }

  async close(): Promise<void> {
    for (const process of this.processes) {
      if (process.hasEnded) continue;
      process.thaw();
      await process.kill();
    }
    await Promise.all([this.producer.close(), this.receiver.close(), this.pool.end()]);
    await rm(this.#folder, { recursive: true, force: true });
  }
}
