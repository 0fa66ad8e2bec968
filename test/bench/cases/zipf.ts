import { ACCOUNTS, type Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, percentile } from "../figures.ts";
import { costFigures, publishWatched, warmUp } from "../flat-out.ts";
import { withApi } from "../installation.ts";

const WARM_UP = 500;
const DURATION_MS = 8_000;
const REQUESTS_IN_FLIGHT = 32;
const CONNECTIONS = 12;
/** The account of rank n makes n^-1.2 of what the first makes: the first ten 57 %, the last 900 together 17 %. */
const EXPONENT = 1.2;
const LARGE_ACCOUNTS = 100;
const DRAWS = 50_000;
const SEED = 17;

export const zipf: BenchCase<Bench> = {
  name: "zipf",
  says:
    "1,000 accounts with an endpoint each, of which ten make 57 % (Zipf, 1.2), over HTTP (32 in flight) and by SQL " +
    "(12 connections, one a transaction) at once, for 8 s and until the last has arrived. Small ones are the last " +
    `900, which make 17 %.`,
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const draws = drawRanks();
    const found = await deliver(bench, database, draws, tell);
    await database.drop();
    const isSmall = (index: number) => (draws[found.accountIndexes[index] ?? 0] ?? 0) >= LARGE_ACCOUNTS;
    const small = found.latenciesMs.filter((_, index) => isSmall(index));
    return [
      { name: "published", value: found.publishedPerSecond, unit: "/s" },
      { name: "delivered", value: found.deliveredPerSecond, unit: "/s" },
      { name: "delivered ÷ published", value: found.deliveredPerSecond / found.publishedPerSecond, unit: "" },
      ...latencyFigures("all accounts", found.latenciesMs),
      ...latencyFigures("small accounts", small),
      { name: "deliveries of small accounts", value: (100 * small.length) / found.count, unit: "%" },
      ...costFigures(found, null),
      { name: "processors busy until the last", value: 100 * found.busyShare, unit: "%" },
    ];
  },
};

function latencyFigures(name: string, latenciesMs: Float64Array): Figure[] {
  return [
    { name: `${name}: p50`, value: percentile(latenciesMs, 0.5), unit: "ms" },
    { name: `${name}: p99`, value: percentile(latenciesMs, 0.99), unit: "ms" },
  ];
}

async function deliver(
  bench: Bench,
  database: BenchDatabase,
  draws: readonly number[],
  tell: (line: string) => void,
) {
  const { accountIds: all } = bench.server;
  return await withApi(bench, database, all, tell, async ({ api, dispatcher, publisher, http }) => {
    const accountIds = draws.map((rank) => all[rank] ?? "");
    const overHttp = { accountIds, batch: 1, clients: REQUESTS_IN_FLIGHT, total: null, via: http };
    const bySql = { accountIds, batch: 1, clients: CONNECTIONS, total: null };
    await warmUp(bench, publisher, database, [overHttp, bySql], WARM_UP * bench.scale);
    const watched = { database, dispatcherPids: [dispatcher.pid], apiPid: api.pid };
    const wish = { streams: [overHttp, bySql], durationMs: DURATION_MS * bench.scale };
    return await publishWatched(bench, publisher, wish, watched, tell);
  });
}

/** From 0, the same in every run. */
function drawRanks(): number[] {
  const sums: number[] = [];
  let sum = 0;
  for (let rank = 1; rank <= ACCOUNTS; rank++) {
    sum += rank ** -EXPONENT;
    sums.push(sum);
  }
  const random = seededRandom(SEED);
  return Array.from({ length: DRAWS }, () => {
    const drawn = random() * sum;
    return sums.findIndex((upTo) => drawn < upTo);
  });
}

/** The generator of Park and Miller: in (0, 1), good enough to draw accounts. */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}
