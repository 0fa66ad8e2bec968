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
  const numbers = new Map<CountedPolicy, number>();
  const limiters: TurnLimiter[] = [];
  const counted = new TurnCounts(pool);
  // Of all policies together: a request counts towards its key's bucket and its account's.
  const consume = gatherByTurn(async (requests) => {
    const answers = [...requests].map(async ([asked, count]) => {
      const end = asked.indexOf(":");
      const limiter = limiters[Number(asked.slice(0, end))]!;
      return [asked, await consumeOf(limiter, asked.slice(end + 1), count)] as const;
    });
    return new Map(await Promise.all(answers));
  });

  function numberOf(policy: CountedPolicy): number {
    const number = numbers.get(policy) ?? limiters.push(new TurnLimiter(pool, counted, policy)) - 1;
    numbers.set(policy, number);
    return number;
  }

  return async (bucket, policy) => {
    const asked = `${numberOf(policy)}:${bucket.slice(0, KEY_CHARS_MAX)}`;
    const { answer, callers, place } = await consume(asked);
    const { consumedPoints, msBeforeNext: resetMs } = answer!;
    // A bucket that is blocked in memory comes without its count.
    const requests = consumedPoints === 0 ? policy.requestsMax + 1 : consumedPoints - callers + place;
    return { requests, resetMs };
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

/** Of the table; a longer one would be refused, and the others of its turn with it. */
const KEY_CHARS_MAX = 255;

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
select asked.key, asked.points, (extract(epoch from now()) * 1000)::bigint + asked.window_ms
from unnest($1::text[], $2::integer[], $3::bigint[]) as asked (key, points, window_ms)
order by asked.key
on conflict (key) do update set
  points = case when known.expire <= (extract(epoch from now()) * 1000)::bigint
    then excluded.points else known.points + excluded.points end,
  expire = case when known.expire <= (extract(epoch from now()) * 1000)::bigint
    then excluded.expire else known.expire end
returning key, points, expire - (extract(epoch from now()) * 1000)::bigint as "leftMs"`;

type Row = { readonly key: string; readonly points: number; readonly leftMs: string };
type Result = { readonly rows: readonly [Row] };

/** One statement for all buckets that are asked for at once. */
class TurnCounts {
  readonly #pool: Pool;
  #asked = new Map<string, { readonly points: number; readonly windowMs: number }>();
  #counted: Promise<ReadonlyMap<string, Row>> | null = null;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  async add(key: string, points: number, windowMs: number): Promise<Row> {
    this.#asked.set(key, { points: points + (this.#asked.get(key)?.points ?? 0), windowMs });
    this.#counted ??= Promise.resolve().then(() => this.#count());
    const row = (await this.#counted).get(key);
    if (row === undefined) throw new Error("A bucket was not counted.");
    return row;
  }

  async #count(): Promise<ReadonlyMap<string, Row>> {
    const asked = this.#asked;
    [this.#asked, this.#counted] = [new Map(), null];
    const each = [...asked.values()];
    const values = [
      [...asked.keys()],
      each.map(({ points }) => points),
      each.map(({ windowMs }) => windowMs),
    ];
    const { rows } = await this.#pool.query<Row>({ name: "count_requests", text: COUNT, values });
    return new Map(rows.map((row) => [row.key, row]));
  }
}

/** Counts with others of its turn. The library's own store sends a statement for each bucket. */
class TurnLimiter extends RateLimiterPostgres {
  readonly #counts: TurnCounts;

  constructor(pool: Pool, counts: TurnCounts, { requestsMax, windowSeconds }: CountedPolicy) {
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
    this.#counts = counts;
  }

  /** By which the library counts. */
  async _upsert(key: string, points: number, windowMs: number): Promise<Result> {
    return { rows: [await this.#counts.add(key, points, windowMs)] };
  }

  /** The library's own reads this machine's clock, which may be wrong. */
  _getRateLimiterRes(_key: string, added: number, { rows: [{ points, leftMs }] }: Result): RateLimiterRes {
    const left = Math.max(0, this.points - points);
    return new RateLimiterRes(left, Math.max(0, Number(leftMs)), points, points === added);
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
