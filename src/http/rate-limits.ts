import { networkOf } from "../base/model/addresses.ts";
import { TtlMap } from "../base/model/caches.ts";
import { withDeadline } from "./deadline.ts";
import { REFUSED_EVERY_MS, REFUSED_WITHIN_MS, REMEMBERED_BUCKETS_MAX } from "./limits.ts";

/** At most `requestsMax` requests per window. `name`, of letters, appears in the headers. */
export type RateLimitPolicy = {
  readonly name: string;
  readonly requestsMax: number;
  readonly windowSeconds: number;
};

/** Requests in a bucket's window, the counted one included, and the milliseconds until the window ends. */
type Counted = { readonly requests: number; readonly resetMs: number };

/** Counts a request in `bucket`. Shared by all API processes. */
export type CountRequest = (bucket: string, policy: RateLimitPolicy) => Promise<Counted>;

/** What a request came to. */
export type RateLimitState = ReturnType<typeof countedState>;

/** What a request counts towards. */
export type Bucket = { readonly bucket: string; readonly policy: RateLimitPolicy };

export type Counting = () => Promise<RateLimitState>;
export type RateLimits = ReturnType<typeof createRateLimits>;

export type RateLimitOptions = {
  readonly countRequest: CountRequest;
  /** A request was counted by this process alone, because the store failed. */
  readonly onRateLimitFailure: (error: unknown) => void;
};

// Not @fastify/rate-limit, which writes the three old headers and counts in memory or Redis.
export function createRateLimits({ countRequest, onRateLimitFailure }: RateLimitOptions) {
  const known = new TtlMap<string, { readonly requests: number; readonly endsAtMs: number }>(
    REMEMBERED_BUCKETS_MAX,
  );

  function knownOf({ bucket, policy }: Bucket): Counted {
    const last = known.get(bucket);
    if (last === undefined) return { requests: 0, resetMs: policy.windowSeconds * 1_000 };
    return { requests: last.requests, resetMs: last.endsAtMs - performance.now() };
  }

  /** The last known state, without counting: for responses sent before the request could be counted. */
  const lastKnown = (bucket: Bucket) => countedState(bucket.policy, knownOf(bucket));

  function learn({ bucket, policy }: Bucket, { requests, resetMs }: Counted): RateLimitState {
    known.set(bucket, { requests, endsAtMs: performance.now() + resetMs }, resetMs);
    return countedState(policy, { requests, resetMs });
  }

  function countHere(bucket: Bucket): RateLimitState {
    const { requests, resetMs } = knownOf(bucket);
    return learn(bucket, { requests: requests + 1, resetMs });
  }

  const countIn = async (asked: Bucket) => learn(asked, await countRequest(asked.bucket, asked.policy));

  /**
   * Counts the request in each bucket, but in none behind one that is known to be full: what a key is refused uses up
   * nothing of its account's. It counts at once, and says what that came to when it is asked: the state is that of
   * the bucket that refuses it, else of the one with the least left. If the store fails or takes longer than `waitMs`,
   * it is counted here alone, by what was last known of the first: where nothing is known of it, it is let through.
   */
  function startCounting(buckets: readonly Bucket[], waitMs: number): Counting {
    const full = buckets.findIndex((bucket) => lastKnown(bucket).remaining === 0);
    const counted = full < 0 ? buckets : buckets.slice(0, full + 1);
    const counting = withDeadline(waitMs, "the rate limiter", Promise.all(counted.map(countIn)));
    // Perhaps nobody asks.
    counting.catch(() => undefined);
    return async () => {
      try {
        const states = await counting;
        const refusal = states.find(({ isAllowed }) => !isAllowed);
        return (
          refusal ?? states.reduce((least, state) => (state.remaining < least.remaining ? state : least))
        );
      } catch (error) {
        onRateLimitFailure(error);
        return countHere(buckets[0]!);
      }
    };
  }

  let nextRefusalMs = 0;

  /** In how many milliseconds a refusal may go out. */
  function holdRefusal(nowMs = performance.now()): number {
    const atMs = Math.max(nowMs, nextRefusalMs);
    nextRefusalMs = Math.min(atMs + REFUSED_EVERY_MS, nowMs + REFUSED_WITHIN_MS);
    return atMs - nowMs;
  }

  return { startCounting, lastKnown, holdRefusal };
}

/** The state that a count means under the policy. */
export function countedState(policy: RateLimitPolicy, { requests, resetMs }: Counted) {
  const { name, requestsMax, windowSeconds } = policy;
  const remaining = Math.max(0, requestsMax - requests);
  /** Whole seconds until the window ends, rounded up: both `t` and Retry-After. */
  const resetSeconds = Math.max(1, Math.ceil(resetMs / 1000));
  const headers = {
    ratelimit: `"${name}";r=${remaining};t=${resetSeconds}`,
    "ratelimit-policy": `"${name}";q=${requestsMax};w=${windowSeconds}`,
  };
  return { policy, isAllowed: requests <= requestsMax, remaining, resetSeconds, headers };
}

/** The bucket of a client without a key. Undefined: the connection was reset, and has no address any more. */
export function addressBucket(address: string | undefined): string {
  return `address:${address === undefined ? "unknown" : networkOf(address)}`;
}
