import type { Pool } from "pg";
import { RateLimiterPostgres, RateLimiterRes } from "rate-limiter-flexible";

/** So many requests within so many seconds. */
export type CountedPolicy = { readonly requestsMax: number; readonly windowSeconds: number };

/** Requests of the bucket's window so far, the counted one included, and when that window ends. */
export type Counted = { readonly requests: number; readonly resetMs: number };

/**
 * Counts requests in buckets that all processes beside one database share. A bucket that is over its limit is not
 * written again until its window ends, so that a flood of refused requests is none of writes.
 *
 * The counting is rate-limiter-flexible's, on our own table; it goes by the clocks of the processes, which may differ
 * by a second without harm.
 */
export function createRequestCounter(
  pool: Pool,
): (bucket: string, policy: CountedPolicy) => Promise<Counted> {
  const limiters = new Map<CountedPolicy, RateLimiterPostgres>();
  return async (bucket, policy) => {
    const limiter = limiters.get(policy) ?? createLimiter(pool, policy);
    limiters.set(policy, limiter);
    try {
      return countedOf(await limiter.consume(bucket));
    } catch (refusal) {
      if (!(refusal instanceof RateLimiterRes)) throw refusal;
      // A bucket that is blocked in memory comes without its count.
      const { requests, resetMs } = countedOf(refusal);
      return { requests: Math.max(requests, policy.requestsMax + 1), resetMs };
    }
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

function countedOf({ consumedPoints, msBeforeNext }: RateLimiterRes): Counted {
  return { requests: consumedPoints, resetMs: msBeforeNext };
}
