// The pipeline: publishes as a role that may do nothing else. Either a bounded number of deliveries ahead of the
// receivers, or at a given rate.
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { analysisText, SEQUENCE_DIGITS } from "../analysis.ts";
import { answerQuestions, sharedClockMs } from "./answering.ts";

export type AheadWish = {
  readonly accountIds: readonly string[];
  /** Analyses of one call of publish_analyses. */
  readonly batch: number;
  readonly clients: number;
  /** Deliveries that may be published and not yet answered. */
  readonly aheadMax: number;
  /** Stops by itself after so many; null: when it is told to. */
  readonly total: number | null;
};

export type PacedWish = {
  readonly accountIds: readonly string[];
  readonly perSecond: number;
  /** Analyses that one transaction publishes; the pace stays. */
  readonly batch: number;
  /** Numbers its analyses, and keeps when each was committed. At most one stream at a time is timed. */
  readonly isTimed: boolean;
};

export type Published = {
  readonly published: number;
  /** By sequence number, on the shared clock: when COMMIT was sent. Empty when nothing was timed. */
  readonly commitsAtMs: Float64Array;
  /** The furthest that a paced stream was behind its pace: what is late here is not the dispatcher's. */
  readonly behindMaxMs: number;
};

const CONNECTIONS = 24;
const { databaseUrl } = JSON.parse(process.env.BENCH_INPUT ?? "") as { databaseUrl: string };
const pool = new pg.Pool({
  connectionString: databaseUrl,
  max: CONNECTIONS,
  // A pipeline keeps its connections. One that is opened for a burst plans everything first, and makes it longer.
  idleTimeoutMillis: 0,
  application_name: "publisher",
});
pool.on("error", () => undefined);

const PUBLISH = {
  name: "publish",
  text: "select sealpost.publish_analyses($1::uuid[], $2::json[], $3::text[])",
};

let published = 0;
let answered = 0;
let unique = 0;
let timed = 0;
let behindMaxMs = 0;
const commitsAtMs = new Float64Array(10 ** SEQUENCE_DIGITS);
let isStopping = false;
let streams: Promise<unknown>[] = [];
let failure: unknown = null;

/** `first`: the sequence number of the first of them; null: they are not timed. */
function valuesFor(
  accountIds: readonly string[],
  next: number,
  count: number,
  first: number | null,
): unknown[] {
  const ids: (string | undefined)[] = [];
  const texts: string[] = [];
  for (let n = 0; n < count; n++) {
    ids.push(accountIds[(next + n) % accountIds.length]);
    texts.push(analysisText(`a-${process.pid}-${unique++}`, first === null ? 0 : first + n));
  }
  return [ids, texts, new Array(count).fill(null)];
}

async function publishAhead(wish: AheadWish): Promise<void> {
  let next = 0;
  const client = async () => {
    const connection = await pool.connect();
    while (!isStopping && (wish.total === null || next < wish.total)) {
      if (published - answered > wish.aheadMax) {
        await wait(5);
        continue;
      }
      const values = valuesFor(wish.accountIds, next, wish.batch, null);
      next += wish.batch;
      await connection.query({ ...PUBLISH, values });
      published += wish.batch;
    }
    connection.release();
  };
  await Promise.all(Array.from({ length: wish.clients }, client));
}

/** Transactions begin at their moments, whether or not those before them have ended. */
async function publishPaced(wish: PacedWish): Promise<void> {
  const everyMs = (wish.batch * 1000) / wish.perSecond;
  const underWay = new Set<Promise<void>>();
  const startedAtMs = performance.now();
  for (let transactions = 0; !isStopping; transactions++) {
    const dueAtMs = startedAtMs + transactions * everyMs;
    const earlyMs = dueAtMs - performance.now();
    if (earlyMs > 0.5) await wait(earlyMs);
    behindMaxMs = Math.max(behindMaxMs, performance.now() - dueAtMs);
    const publishing = publishOnce(wish, transactions * wish.batch).finally(() =>
      underWay.delete(publishing),
    );
    underWay.add(publishing);
    if (underWay.size > 10 * CONNECTIONS) await Promise.race(underWay);
  }
  await Promise.all(underWay);
}

async function publishOnce(wish: PacedWish, next: number): Promise<void> {
  const first = wish.isTimed ? timed + 1 : null;
  if (wish.isTimed) timed += wish.batch;
  const values = valuesFor(wish.accountIds, next, wish.batch, first);
  const connection = await pool.connect();
  // Not awaited one by one: the pipeline's transaction has its own statements here, and COMMIT follows at once.
  const begun = connection.query("begin");
  await Promise.all([begun, connection.query({ ...PUBLISH, values })]);
  if (first !== null) commitsAtMs.fill(sharedClockMs(), first, first + wish.batch);
  await connection.query("commit");
  connection.release();
  published += wish.batch;
}

function start(stream: Promise<void>): void {
  isStopping = false;
  streams.push(
    stream.catch((error: unknown) => {
      failure = error;
      isStopping = true;
    }),
  );
}

answerQuestions({
  publishAhead: (wish: AheadWish) => start(publishAhead(wish)),
  publishPaced: (wish: PacedWish) => start(publishPaced(wish)),
  /** What the receivers have answered so far, of what this process published. */
  answered: (count: number) => {
    if (failure !== null) throw failure;
    answered = count;
    return published;
  },
  /** Sequence numbers given so far. */
  timed: () => timed,
  /** Resolves when every stream has reached its total. */
  finish: async () => {
    await Promise.all(streams);
    if (failure !== null) throw failure;
    return published;
  },
  stop: async (): Promise<Published> => {
    isStopping = true;
    await Promise.all(streams);
    streams = [];
    if (failure !== null) throw failure;
    return { published, commitsAtMs: commitsAtMs.slice(0, timed + 1), behindMaxMs };
  },
});
