import type { Pool } from "pg";
import { RateLimiterPostgres, RateLimiterRes } from "rate-limiter-flexible";
import { coalesceByTurn } from "./coalesce.ts";

/** So many requests within so many seconds. */
export type CountedPolicy = { readonly requestsMax: number; readonly windowSeconds: number };

/** Requests of the bucket's window so far, the counted one included, and when that window ends. */
export type Counted = { readonly requests: number; readonly resetMs: number };

/**
 * Counts requests in buckets that all processes beside one database share. A bucket over its limit is not written again
 * until its window ends, so that a flood of refused requests causes no flood of writes. Requests of one bucket in one
 * turn of the event loop are counted by one statement, each with a number of its own; those beyond the limit may only
 * be told that they are.
 *
 * The counting is rate-limiter-flexible's, on our own table; it goes by the clocks of the processes, which may differ
 * by a second without harm.
 */
export function createRequestCounter(
  pool: Pool,
): (bucket: string, policy: CountedPolicy) => Promise<Counted> {
  const counters = new Map<CountedPolicy, Count>();
  return (bucket, policy) => {
    const count = counters.get(policy) ?? createCount(createLimiter(pool, policy), policy);
    counters.set(policy, count);
    return count(bucket);
  };
}

type Count = (bucket: string) => Promise<Counted>;

function createCount(limiter: RateLimiterPostgres, { requestsMax }: CountedPolicy): Count {
  const consume = coalesceByTurn((bucket, requests) =>
    limiter.consume(bucket, requests).catch((refusal: unknown) => {
      if (refusal instanceof RateLimiterRes) return refusal;
      throw refusal;
    }),
  );
  return async (bucket) => {
    const { answer, callers, place } = await consume(bucket);
    const { consumedPoints, msBeforeNext: resetMs } = answer;
    // A bucket that is blocked in memory comes without its count.
    const requests = consumedPoints === 0 ? requestsMax + 1 : consumedPoints - callers + place;
    return { requests, resetMs };
  };
}

function createLimiter(pool: Pool, policy: CountedPolicy): RateLimiterPostgres {
  return new RateLimiterPostgres({
    storeClient: pool,
    storeType: "pool",
    schemaName: "sealpost",
    tableName: "rate_limits",
    tableCreated: true,
    keyPrefix: "",
    points: policy.requestsMax,
    duration: policy.windowSeconds,
    inMemoryBlockOnConsumed: policy.requestsMax + 1,
  });
}
