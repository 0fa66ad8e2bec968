// What every case works with: one receiver, one PostgreSQL, the limit loop, and how to start the rest.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { proveFromLog } from "../../src/delivery/receivers-sql.ts";
import type { SealpostProcess } from "../support/sealpost-process.ts";
import { type BenchDatabase, type BenchServer, startBenchServer } from "./database.ts";
import { type AskedProcess, startAsked } from "./processes/asking.ts";
import { RAISED_RATE_LIMIT, startApi, startDispatcher } from "./processes/commands.ts";
import type { LimitMeasured, LimitWay, LimitWish } from "./processes/limit-process.ts";
import type { Received, ReceiverManners } from "./processes/receiver-process.ts";

export const ACCOUNTS = 1_000;
export const HOSTS = 200;
const IN_FLIGHT_TRIED = [16, 64, 256] as const;
const POLL_MS = 20;
/** Nothing has come for so long: it never will. What a dispatcher lets go comes back after 15 s. */
const GIVE_UP_AFTER_MS = 60_000;

/** Of DISPATCH_IN_FLIGHT_MAX. */
const DEFAULT_IN_FLIGHT_MAX = 1_000;

/** What an operator is told to give a dispatcher's Node; measured, see the README. */
const NODE_FLAGS = ["--max-semi-space-size=32", "--max-old-space-size=512"] as const;

export type BenchOptions = {
  /** 1 is what the goals are for; less runs shorter. */
  readonly scale: number;
  /** With how many cells the case `cells` measures. */
  readonly cellCounts: readonly number[];
  /** DISPATCH_IN_FLIGHT_MAX; null: where the limit is best. */
  readonly inFlightMax: number | null;
  /** Flags of Node for the dispatchers, in place of the recommended ones. */
  readonly nodeFlags: readonly string[] | null;
  /** Whether receivers have to be proven, as everybody's that are not on loopback; then all are. */
  readonly consents: boolean;
  /** PostgreSQL settings besides the recommended ones. */
  readonly settings: Readonly<Record<string, string>>;
};

export type Bench = BenchOptions & {
  readonly server: BenchServer;
  readonly receiverPid: number;
  readonly receiverPort: number;
  /** At a host of that label, which may hold the `{n}` of a pattern; those that begin with `silent-` never answer. */
  webhookUrl(label: string): string;
  behave(manners: Partial<ReceiverManners>): Promise<void>;
  received(): Promise<Received>;
  /** On the shared clock, by sequence number below `count`; 0: has not come. */
  firstBytesAtMs(count: number): Promise<Float64Array>;
  limit(way: LimitWay): Promise<Limit>;
  startDispatcher(database: BenchDatabase, options: DispatcherWish): Promise<SealpostProcess>;
  /** The real `dispatch` with its own defaults, logging to a file. */
  startDefaultDispatcher(database: BenchDatabase): Promise<SealpostProcess>;
  /** The real `serve`, logging to a file, with its rate limit raised … */
  startApi(database: BenchDatabase, env?: Readonly<Record<string, string>>): Promise<SealpostProcess>;
  /** … and with its own defaults, but for the limit on publishing, which would be what is measured. */
  startDefaultApi(database: BenchDatabase, env?: Readonly<Record<string, string>>): Promise<SealpostProcess>;
  startPublisher(database: BenchDatabase): AskedProcess;
  startBareFastify(database: BenchDatabase): AskedProcess;
  /** Ends what a case that failed has left running. */
  endLeftovers(): Promise<void>;
  /** What the case of that name has found, for those after it: posts per second by `client.request`. Null: not yet. */
  limitPerSecond: number | null;
  stop(): Promise<void>;
};

export type DispatcherWish = {
  readonly inFlightMax: number;
  /** True: it meets its receivers, and none has to be proven. */
  readonly meets?: boolean;
  readonly env?: Readonly<Record<string, string>>;
  /** Flags of Node besides the others. */
  readonly execArgv?: readonly string[];
  /** In place of the real command. */
  readonly program?: string;
  readonly outputFile?: string;
  readonly scrapeEveryMs?: number;
};

/** The best of the numbers in flight. */
export type Limit = LimitMeasured & {
  readonly inFlight: number;
  /** The largest number in flight that is all but as good: within a tenth of the best. */
  readonly inFlightMax: number;
};

const ALL_BUT_AS_GOOD = 0.9;

const DOMAIN = "many.localhost";
/** The endpoint of account `index`: five accounts share a host. */
const hostOf = (index: number) => `h${index % HOSTS}.${DOMAIN}`;

export async function openBench(options: BenchOptions): Promise<Bench> {
  const folder = await mkdtemp(join(tmpdir(), "sealpost-bench-"));
  const receiver = startAsked("receiver-process.ts", {});
  const { port, caPem } = await receiver.ask<{ port: number; caPem: string }>("address");
  const caFile = join(folder, "ca.pem");
  await writeFile(caFile, caPem);
  const server = await startBenchServer(
    {
      count: ACCOUNTS,
      endpointUrl: (index) => `https://${hostOf(index)}:${port}/hook/${index}`,
      allowedTarget: `*.${DOMAIN}:${port}`,
    },
    options.settings,
  );

  const logFile = join(folder, "log");
  const started: (() => Promise<void>)[] = [];
  const endLeftovers = async () => {
    for (const end of started.splice(0)) await end();
  };
  const startCommand = async (database: BenchDatabase, wish: DispatcherWish) => {
    const consents = options.consents && !wish.meets;
    if (consents) await proveAll(database);
    const dispatcher = await startDispatcher({
      ...wish,
      databaseUrl: database.url,
      receiverPort: port,
      caFile,
      env: { ...wish.env, ...(consents && { TARGET_CONSENT: "success" }) },
      execArgv: [...(options.nodeFlags ?? NODE_FLAGS), ...(wish.execArgv ?? [])],
    });
    started.push(() => dispatcher.kill());
    return dispatcher;
  };
  const startServe = async ({ url }: BenchDatabase, env: Readonly<Record<string, string>>) => {
    const api = await startApi({ databaseUrl: url, logFile, env });
    started.push(async () => void (await api.stop()));
    return api;
  };
  const keepTrack = (asked: AskedProcess) => {
    started.push(asked.stop);
    return asked;
  };
  return {
    ...options,
    endLeftovers,
    limitPerSecond: null,
    server,
    receiverPid: receiver.pid,
    receiverPort: port,
    webhookUrl: (label) => `https://${label}.${DOMAIN}:${port}/hook`,
    behave: (manners) => receiver.ask("behave", { delayMs: 0, silentHosts: 0, isTiming: false, ...manners }),
    received: () => receiver.ask<Received>("received"),
    firstBytesAtMs: (count) => receiver.ask<Float64Array>("firstBytes", { count }),
    limit: (way) => findLimit({ port, caPem, hosts: HOSTS }, way, Math.max(300, 1_500 * options.scale)),
    startDispatcher: startCommand,
    startDefaultDispatcher: (database) =>
      startCommand(database, {
        inFlightMax: options.inFlightMax ?? DEFAULT_IN_FLIGHT_MAX,
        env: { LOG_LEVEL: "info" },
        outputFile: logFile,
      }),
    startApi: (database, env = {}) =>
      startServe(database, { RATE_LIMIT_REQUESTS: String(RAISED_RATE_LIMIT), ...env }),
    startDefaultApi: (database, env = {}) =>
      startServe(database, { PUBLISH_RATE_PER_SECOND: String(RAISED_RATE_LIMIT), ...env }),
    startPublisher: ({ publisherUrl }) =>
      keepTrack(startAsked("publisher-process.ts", { databaseUrl: publisherUrl })),
    startBareFastify: ({ publisherUrl }) =>
      keepTrack(startAsked("bare-fastify-process.ts", { databaseUrl: publisherUrl })),
    stop: async () => {
      await endLeftovers();
      await receiver.stop();
      await server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** As an upgrade does: whoever has succeeded is proven; and so is every endpoint. */
async function proveAll({ pool }: BenchDatabase): Promise<void> {
  await pool.query(
    `insert into sealpost.receivers (account_id, origin, proven_at)
     select account_id, sealpost.origin(url), now() from sealpost.endpoints on conflict do nothing`,
  );
  await pool.query("update sealpost.settings set proven_from = null");
  await proveFromLog(pool);
}

async function findLimit(input: unknown, way: LimitWay, durationMs: number): Promise<Limit> {
  const loop = startAsked("limit-process.ts", input);
  const measure = (wish: LimitWish) => loop.ask<LimitMeasured>("measure", wish);
  const limits: (LimitMeasured & { readonly inFlight: number })[] = [];
  for (const inFlight of IN_FLIGHT_TRIED) {
    await measure({ inFlight, durationMs: durationMs / 2, way });
    limits.push({ inFlight, ...(await measure({ inFlight, durationMs, way })) });
  }
  await loop.stop();
  const best = limits.reduce((best, limit) => (limit.perSecond > best.perSecond ? limit : best));
  const good = limits.filter((limit) => limit.perSecond >= ALL_BUT_AS_GOOD * best.perSecond);
  return { ...best, inFlightMax: Math.max(...good.map((limit) => limit.inFlight)) };
}

/**
 * Resolves once the receivers have answered `count` POSTs; tells the publisher meanwhile how far they are.
 * @throws Error when nothing has come for a minute
 */
export async function untilAnswered(
  bench: Bench,
  count: number,
  publisher: AskedProcess | null = null,
  base = 0,
): Promise<number> {
  let last = { answered: -1, atMs: 0 };
  for (;;) {
    const { answered } = await bench.received();
    await publisher?.ask("answered", answered - base);
    if (answered - base >= count) return answered - base;
    if (answered > last.answered) last = { answered, atMs: performance.now() };
    if (performance.now() - last.atMs > GIVE_UP_AFTER_MS) {
      throw new Error(`Of ${count} deliveries ${answered - base} have arrived, and no more come.`);
    }
    await wait(POLL_MS);
  }
}

/** Resolves once no delivery has an attempt to come. */
export async function untilNoneOpen({ pool }: BenchDatabase): Promise<void> {
  for (;;) {
    const { rowCount } = await pool.query("/* bench */ select from sealpost.open_deliveries limit 1");
    if (rowCount === 0) return;
    await wait(POLL_MS);
  }
}

/** A fast path that loses or doubles deliveries is worth nothing. */
export async function checkEachOnce(
  database: BenchDatabase,
  published: number,
  answered: number,
  before: Logged = { succeeded: 0, attempts: 0 },
): Promise<void> {
  const logged = await countLogged(database);
  const [succeeded, attempts] = [logged.succeeded - before.succeeded, logged.attempts - before.attempts];
  if (succeeded === published && attempts === published && answered === published) return;
  throw new Error(
    `Of ${published} published deliveries ${succeeded} succeeded, with ${attempts} attempts, ${answered} answered.`,
  );
}

export type Logged = { readonly succeeded: number; readonly attempts: number };

export async function countLogged({ pool }: BenchDatabase): Promise<Logged> {
  const { rows } = await pool.query<Logged>(
    `/* bench */ select (select count(*) from sealpost.deliveries where status = 'succeeded')::integer as succeeded,
       (select count(*) from sealpost.attempts)::integer as attempts`,
  );
  return rows[0]!;
}
