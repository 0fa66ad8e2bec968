// One database and one receiver, and processes of two versions on them: the version before and the working copy.
import { fileURLToPath } from "node:url";
import { Cluster } from "../faults/harness/cluster.ts";
import { until } from "../faults/harness/scenario.ts";
import type { LogLine } from "../support/child-processes.ts";
import { createEmptyDatabase, type TestDatabase } from "../support/database.ts";
import type { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { Pipeline } from "./pipeline.ts";
import { openRelease, type Release } from "./release.ts";

/** All that the version before knows; it refuses others. */
const OLD_SCOPES =
  "analyses:publish,analyses:read,operations:read,webhooks:read,webhooks:replay,webhooks:secrets,webhooks:write";

export type Version = "old" | "new";
export type Api = { readonly process: SealpostProcess; readonly url: string };
export type Tenant = { readonly accountId: string; readonly apiKey: string };

/** Paths of the receiver, each under a host of its own and so a lane of its own. */
const ROOMS = { slow: { delayMs: 700 }, down: { status: 503 }, silent: { isSilent: true } } as const;
export type Room = keyof typeof ROOMS;

/** All of it is over in seconds, unless the machine has much else to do. */
export const PATIENCE_MS = 60_000;

/**
 * Long enough that nobody is cut off who only waits for a busy machine: what the receiver has accepted by then is sent
 * again. Silent receivers take all of it.
 */
const DEADLINE_MS = Math.max(8_000, patience(3_000));

/** Of the version that is upgraded to: the working copy's, or an image in its place (.ci/image). */
const { SEALPOST_IMAGE } = process.env;
const CONTAINED = fileURLToPath(new URL("../deploy/in-container.ts", import.meta.url));
const NEW_MAIN = SEALPOST_IMAGE === undefined ? undefined : CONTAINED;

const ENV = {
  // A line for each attempt.
  LOG_LEVEL: "debug",
  ...(SEALPOST_IMAGE !== undefined && { SEALPOST_IMAGE }),
  ATTEMPT_DEADLINE_MS: String(DEADLINE_MS),
  RATE_LIMIT_REQUESTS: "100000",
};

export class Installation {
  readonly cluster: Cluster;
  readonly #database: TestDatabase;
  readonly #release: Release;

  private constructor(cluster: Cluster, database: TestDatabase, release: Release) {
    this.cluster = cluster;
    this.#database = database;
    this.#release = release;
  }

  static async create(): Promise<Installation> {
    const [database, release] = await Promise.all([createEmptyDatabase(), openRelease()]);
    const options = { databaseUrl: database.url, isEmpty: true, dispatchers: 0, env: ENV };
    const cluster = await Cluster.start(options);
    for (const [room, behaviour] of Object.entries(ROOMS))
      await cluster.receiver.behave(`/${room}`, behaviour);
    return new Installation(cluster, database, release);
  }

  spawn(version: Version, ...command: readonly string[]): SealpostProcess {
    return this.cluster.spawn(command, {}, [], version === "old" ? this.#release.main : NEW_MAIN);
  }

  /** Resolves when it answers, and says that it is ready. */
  async serve(version: Version): Promise<Api> {
    const process = this.spawn(version, "serve");
    const url = String((await process.ready).listening);
    await until(async () => (await fetch(new URL("/readyz", url))).ok);
    return { process, url };
  }

  async dispatch(version: Version): Promise<SealpostProcess> {
    const process = this.spawn(version, "dispatch");
    await process.ready;
    return process;
  }

  /** A command that answers and ends. */
  async run(version: Version, ...command: readonly string[]): Promise<LogLine> {
    return await answerOf(this.spawn(version, ...command));
  }

  /** By the old command line. */
  async createTenant(): Promise<Tenant> {
    const account = await this.run("old", "account", "create", "--name", "tenant");
    const accountId = String(account.account_id);
    await this.cluster.knowSecret(String(account.signing_secret));
    const key = ["key", "create", "--account", accountId, "--scopes", OLD_SCOPES];
    const { api_key } = await this.run("old", ...key);
    return { accountId, apiKey: String(api_key) };
  }

  async setEndpoint({ accountId }: Tenant, path: string): Promise<void> {
    const url = this.cluster.receiver.url(path);
    await this.run("old", "endpoint", "set", "--account", accountId, "--url", url);
  }

  urlOf(room: Room): string {
    return this.cluster.receiver.url(`/${room}`, `${room}.localhost`);
  }

  /** From now on it accepts everything at once. */
  async mend(room: Room): Promise<void> {
    await this.cluster.receiver.behave(`/${room}`, {});
  }

  createPipeline({ accountId, apiKey }: Tenant): Pipeline {
    const webhookUrls = [null, null, null, this.urlOf("slow")];
    return new Pipeline({ databaseUrl: this.#database.url, accountId, apiKey, webhookUrls });
  }

  /** How many deliveries stand where, and how many replays are going on. */
  async countStates(): Promise<Readonly<Record<string, number>>> {
    const { rows } = await this.cluster.pool.query(STATES);
    return rows[0];
  }

  async untilSucceeded(deliveryIds: readonly string[]): Promise<void> {
    const left = "select from sealpost.deliveries where id = any($1) and status <> 'succeeded'";
    await until(async () => (await this.cluster.pool.query(left, [deliveryIds])).rowCount === 0, PATIENCE_MS);
  }

  /** Resolves when none of these is in flight that has not failed yet. */
  async untilNoFirstAttempt(deliveryIds: readonly string[]): Promise<void> {
    const inFlight = `select from sealpost.deliveries join sealpost.open_deliveries on delivery_id = id
      where id = any($1) and deliveries.status = 'pending' and lease_token is not null`;
    await until(
      async () => (await this.cluster.pool.query(inFlight, [deliveryIds])).rowCount === 0,
      PATIENCE_MS,
    );
  }

  /** Resolves when nothing is to come any more: deliveries that a replay has not reached yet are not open. */
  async drain(): Promise<void> {
    await until(async () => (await this.countStates()).replays === 0, PATIENCE_MS);
    await this.cluster.drain(PATIENCE_MS);
  }

  async close(): Promise<void> {
    await this.cluster.close();
    await this.#database.drop();
  }
}

/** What a command answers that ends. */
export async function answerOf(command: SealpostProcess): Promise<LogLine> {
  const { code } = await command.ended;
  if (code !== 0) throw new Error(`a command ended with ${code}: ${command.errors}`);
  const [answer] = command.lines;
  if (answer === undefined) throw new Error(`a command answered nothing: ${command.errors}`);
  return answer;
}

const STATES = `
select
  (count(*) filter (where d.status = 'pending' and o.lease_token is null))::integer as pending,
  (count(*) filter (where o.lease_until > now()))::integer as leased,
  (count(*) filter (where d.status = 'failed' and o.due_at <= now() + interval '2 seconds'))::integer as due_soon,
  (count(*) filter (where d.status = 'failed' and o.due_at > now() + interval '2 seconds'))::integer as due_later,
  (count(*) filter (where d.status = 'succeeded'))::integer as succeeded,
  (count(*) filter (where d.status = 'abandoned'))::integer as abandoned,
  (select count(*) from sealpost.replays where status = 'running')::integer as replays
from sealpost.deliveries d left join sealpost.open_deliveries o on o.delivery_id = d.id`;
