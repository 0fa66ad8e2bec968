import type { Pool } from "pg";
import { RateLimiterPostgres, RateLimiterRes } from "rate-limiter-flexible";
import { gatherByTurn } from "./coalesce.ts";

/** So many requests within so many seconds. */
export type CountedPolicy = { readonly requestsMax: number; readonly windowSeconds: number };

/** Requests of the bucket's window so far, the counted one included, and when that window ends. */
export type Counted = { readonly requests: number; readonly resetMs: number };

/**
 * Counts requests in buckets that all processes beside one database share. A bucket over its limit is not written again
 * until its window ends, so that a flood of refused requests causes no flood of writes. Requests of one turn of the
 * event loop are counted by one statement, each with a number of its own in its bucket; those beyond the limit may only
 * be told that they are.
 *
 * The counting is rate-limiter-flexible's, on our own table.
 */
export function createRequestCounter(
  pool: Pool,
): (bucket: string, policy: CountedPolicy) => Promise<Counted> {
  const counters = new Map<CountedPolicy, Count>();
  return (bucket, policy) => {
    const count = counters.get(policy) ?? createCount(new TurnLimiter(pool, policy), policy);
    counters.set(policy, count);
    return count(bucket);
  };
}

/** Takes back one request from each of these buckets: it was not one of those that are limited. */
export async function uncountRequest(pool: Pool, buckets: readonly string[]): Promise<void> {
  await pool.query(
    `update sealpost.rate_limits set points = points - 1
     where key in (select key from sealpost.rate_limits where key = any ($1::text[]) and points > 0
       order by key for update)`,
    [buckets.map((bucket) => bucket.slice(0, KEY_CHARS_MAX))],
  );
}

type Count = (bucket: string) => Promise<Counted>;

/** Of the table; a longer one would be refused, and the others of its turn with it. */
const KEY_CHARS_MAX = 255;

function createCount(limiter: TurnLimiter, { requestsMax }: CountedPolicy): Count {
  const consume = gatherByTurn(async (requests) => {
    const counted = [...requests].map(
      async ([bucket, count]) => [bucket, await consumeOf(limiter, bucket, count)] as const,
    );
    return new Map(await Promise.all(counted));
  });
  return async (bucket) => {
    const { answer, callers, place } = await consume(bucket.slice(0, KEY_CHARS_MAX));
    const { consumedPoints, msBeforeNext: resetMs } = answer!;
    // A bucket that is blocked in memory comes without its count.
    const requests = consumedPoints === 0 ? requestsMax + 1 : consumedPoints - callers + place;
    return { requests, resetMs };
  };
}

async function consumeOf(limiter: TurnLimiter, bucket: string, requests: number): Promise<RateLimiterRes> {
  try {
    return await limiter.consume(bucket, requests);
  } catch (refusal) {
    if (refusal instanceof RateLimiterRes) return refusal;
    throw refusal;
  }
}

/** In one order everywhere, or two statements might wait for each other. By the database's clock. */
const COUNT = `
insert into sealpost.rate_limits as known (key, points, expire)
select asked.key, asked.points, (extract(epoch from now()) * 1000)::bigint + $3::bigint
from unnest($1::text[], $2::integer[]) as asked (key, points)
order by asked.key
on conflict (key) do update set
  points = case when known.expire <= excluded.expire - $3 then excluded.points else known.points + excluded.points end,
  expire = case when known.expire <= excluded.expire - $3 then excluded.expire else known.expire end
returning key, points, expire - (extract(epoch from now()) * 1000)::bigint as "leftMs"`;

type Row = { readonly key: string; readonly points: number; readonly leftMs: string };
type Result = { readonly rows: readonly [Row] };

/** Counts all buckets that are asked for at once by one statement. The library's own store sends one for each. */
class TurnLimiter extends RateLimiterPostgres {
  readonly #pool: Pool;
  #asked = new Map<string, number>();
  #counted: Promise<ReadonlyMap<string, Row>> | null = null;

  constructor(pool: Pool, { requestsMax, windowSeconds }: CountedPolicy) {
    super({
      storeClient: pool,
      storeType: "pool",
      tableName: "rate_limits",
      schemaName: "sealpost",
      tableCreated: true,
      // The library would delete by this machine's clock, and lock rows in any order; see forgetCounts.
      clearExpiredByTimeout: false,
      keyPrefix: "",
      points: requestsMax,
      duration: windowSeconds,
      inMemoryBlockOnConsumed: requestsMax + 1,
    });
    this.#pool = pool;
  }

  /** By which the library counts. */
  async _upsert(key: string, points: number, windowMs: number): Promise<Result> {
    this.#asked.set(key, points + (this.#asked.get(key) ?? 0));
    this.#counted ??= Promise.resolve().then(() => this.#count(windowMs));
    const row = (await this.#counted).get(key);
    if (row === undefined) throw new Error("A bucket was not counted.");
    return { rows: [row] };
  }

  /** The library's own reads this machine's clock, which may be wrong. */
  _getRateLimiterRes(_key: string, added: number, { rows: [{ points, leftMs }] }: Result): RateLimiterRes {
    const left = Math.max(0, this.points - points);
    return new RateLimiterRes(left, Math.max(0, Number(leftMs)), points, points === added);
  }

  async #count(windowMs: number): Promise<ReadonlyMap<string, Row>> {
    const asked = this.#asked;
    [this.#asked, this.#counted] = [new Map(), null];
    const values = [[...asked.keys()], [...asked.values()], windowMs];
    const { rows } = await this.#pool.query<Row>({ name: "count_requests", text: COUNT, values });
    return new Map(rows.map((row) => [row.key, row]));
  }
}

/**
 * Deletes the counts of windows that ended an hour ago by the database's clock, at most `rowsMax`. Returns how many.
 * It waits for no row: it and a count, each with some of the other's rows, would wait for each other. What is being
 * counted again is not to be deleted anyway.
 */
export async function forgetCounts(pool: Pool, rowsMax: number): Promise<number> {
  const { rowCount } = await pool.query(
    `with old as materialized (
       select key from sealpost.rate_limits
       where expire < (extract(epoch from now() - interval '1 hour') * 1000)::bigint
       limit $1 for update skip locked
     )
     delete from sealpost.rate_limits as counted using old where counted.key = old.key`,
    [rowsMax],
  );
  return rowCount ?? 0;
}
