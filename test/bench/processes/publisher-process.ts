// The pipeline: publishes as a role that may do nothing else, or over HTTP. Either as fast as it goes, at most a
// bounded number of deliveries ahead of the receivers, or at a given rate.
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { analysisText, SEQUENCE_DIGITS } from "../analysis.ts";
import { answerQuestions, sharedClockMs } from "./answering.ts";
import { type Batch, createPublishCall, type PublishCall, type Via } from "./publish-calls.ts";

type StreamWish = {
  /** Those of the analyses, in turn. */
  readonly accountIds: readonly string[];
  /** Analyses that one transaction publishes. */
  readonly batch: number;
  /** Numbers its analyses, and keeps when each was sent. Streams that are timed share the numbers. */
  readonly isTimed?: boolean;
  readonly via?: Via;
  /** Null or absent: the accounts' endpoints. */
  readonly webhookUrls?: WebhookUrls | null;
};

/** The first `count` of them, in turn: `{n}` in the pattern is the number, from 0. */
export type WebhookUrls = { readonly pattern: string; readonly count: number };

export type AheadWish = StreamWish & {
  /** Transactions, or requests, at a time. */
  readonly clients: number;
  /** Deliveries that may be published and not yet answered. */
  readonly aheadMax: number;
  /** Stops by itself after so many; null: when it is told to. */
  readonly total: number | null;
};

/** The pace is the same whatever the batch. */
export type PacedWish = StreamWish & {
  readonly perSecond: number;
  /** Stops by itself after so many; null or absent: when it is told to. */
  readonly total?: number | null;
};

export type Published = {
  readonly published: number;
  /** Requests that were answered 429. */
  readonly refused: number;
  /** By sequence number, on the shared clock: when COMMIT, or the request, was sent. Empty when nothing was timed. */
  readonly sentAtMs: Float64Array;
  /** By sequence number: which of its stream's accounts it was published for. */
  readonly accountIndexes: Uint32Array;
  /** Analyses a second, from the start of the streams that have been stopped to their last answer. */
  readonly perSecond: number;
  /** The longest time in which no answer came to any of them. */
  readonly longestGapMs: number;
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

let published = 0;
let refused = 0;
let answered = 0;
let unique = 0;
let timed = 0;
let behindMaxMs = 0;
const sentAtMs = new Float64Array(10 ** SEQUENCE_DIGITS);
const accountIndexes = new Uint32Array(10 ** SEQUENCE_DIGITS);
let isStopping = false;
let streams: Promise<unknown>[] = [];
let failure: unknown = null;
/** Since the streams that run now began. */
let since = { atMs: 0, published: 0, lastAnswerAtMs: 0, longestGapMs: 0 };

async function publishBatch(call: PublishCall, wish: StreamWish, next: number): Promise<void> {
  const first = wish.isTimed ? timed + 1 : null;
  if (first !== null) timed += wish.batch;
  const isPublished = await call(batchFor(wish, next, first), () => {
    if (first !== null) sentAtMs.fill(sharedClockMs(), first, first + wish.batch);
  });
  if (isPublished) published += wish.batch;
  else refused += wish.batch;
  const nowMs = sharedClockMs();
  since.longestGapMs = Math.max(since.longestGapMs, nowMs - since.lastAnswerAtMs);
  since.lastAnswerAtMs = nowMs;
}

/** `first`: the sequence number of the first of them; null: they are not timed. */
function batchFor(wish: StreamWish, next: number, first: number | null): Batch {
  const accountIds: string[] = [];
  const ids: string[] = [];
  const texts: string[] = [];
  const webhookUrls: (string | null)[] = [];
  for (let n = 0; n < wish.batch; n++) {
    const account = (next + n) % wish.accountIds.length;
    const id = `a-${process.pid}-${unique++}`;
    if (first !== null) accountIndexes[first + n] = account;
    accountIds.push(wish.accountIds[account] ?? "");
    ids.push(id);
    texts.push(analysisText(id, first === null ? 0 : first + n));
    webhookUrls.push(webhookUrlFor(wish, next + n));
  }
  return { accountIds, ids, texts, webhookUrls };
}

function webhookUrlFor({ webhookUrls }: StreamWish, n: number): string | null {
  return webhookUrls ? webhookUrls.pattern.replace("{n}", String(n % webhookUrls.count)) : null;
}

async function publishAhead(wish: AheadWish): Promise<void> {
  const call = createPublishCall(wish.via ?? { kind: "statement" }, pool);
  let next = 0;
  const client = async () => {
    while (!isStopping && (wish.total === null || next < wish.total)) {
      if (published - answered > wish.aheadMax) {
        await wait(5);
        continue;
      }
      const from = next;
      next += wish.batch;
      await publishBatch(call, wish, from);
    }
  };
  await Promise.all(Array.from({ length: wish.clients }, client));
}

/** Transactions begin at their moments, whether or not those before them have ended. */
async function publishPaced(wish: PacedWish): Promise<void> {
  const call = createPublishCall(wish.via ?? { kind: "transaction" }, pool);
  const everyMs = (wish.batch * 1000) / wish.perSecond;
  const underWay = new Set<Promise<void>>();
  const startedAtMs = performance.now();
  const transactionsMax = (wish.total ?? Number.POSITIVE_INFINITY) / wish.batch;
  for (let transactions = 0; !isStopping && transactions < transactionsMax; transactions++) {
    const dueAtMs = startedAtMs + transactions * everyMs;
    const earlyMs = dueAtMs - performance.now();
    if (earlyMs > 0.5) await wait(earlyMs);
    behindMaxMs = Math.max(behindMaxMs, performance.now() - dueAtMs);
    const publishing = publishBatch(call, wish, transactions * wish.batch).finally(() =>
      underWay.delete(publishing),
    );
    underWay.add(publishing);
    if (underWay.size > 10 * CONNECTIONS) await Promise.race(underWay);
  }
  await Promise.all(underWay);
}

function start(begin: () => Promise<void>): void {
  if (streams.length === 0) {
    const atMs = sharedClockMs();
    since = { atMs, published, lastAnswerAtMs: atMs, longestGapMs: 0 };
    behindMaxMs = 0;
    isStopping = false;
  }
  streams.push(
    begin().catch((error: unknown) => {
      failure = error;
      isStopping = true;
    }),
  );
}

answerQuestions({
  publishAhead: (wish: AheadWish) => start(() => publishAhead(wish)),
  publishPaced: (wish: PacedWish) => start(() => publishPaced(wish)),
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
    return {
      published,
      refused,
      sentAtMs: sentAtMs.slice(0, timed + 1),
      accountIndexes: accountIndexes.slice(0, timed + 1),
      perSecond: ((published - since.published) * 1000) / (since.lastAnswerAtMs - since.atMs),
      longestGapMs: since.longestGapMs,
      behindMaxMs,
    };
  },
});
