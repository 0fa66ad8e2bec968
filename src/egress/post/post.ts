import type { Egress } from "../egress.ts";
import { createConnectionPool } from "./connection-pool.ts";
import { Exchange, type PostRequest, UnorderedSet } from "./exchange.ts";
import { POST_LIMITS, type PostLimits } from "./limits.ts";
import type { PostResult } from "./result.ts";

export type { PostRequest } from "./exchange.ts";
export type { PostResult } from "./result.ts";

export type PosterOptions = {
  readonly egress: Egress;
  readonly limits?: Partial<PostLimits>;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type Poster = {
  /**
   * POSTs once and says how it ended. Never follows a redirect, never sends again.
   * @throws Error only for a malformed request, which is a programming error
   */
  post(request: PostRequest): Promise<PostResult>;
  /** Cuts what is in flight as `shut_down` and ends all connections; later POSTs end as `shut_down` unsent. */
  close(): Promise<void>;
  gauges(): PosterGauges;
};

export type PosterGauges = {
  readonly inFlight: number;
  readonly openConnections: number;
  /** Those of the open ones that wait for the next POST. */
  readonly idleConnections: number;
  readonly idleOrigins: number;
};

export function createPoster(options: PosterOptions): Poster {
  const { egress, now } = options;
  const { connect, unsafeAllowedTargets } = egress;
  const limits: PostLimits = { ...POST_LIMITS, ...options.limits };
  const pool = createConnectionPool({ unsafeAllowedTargets, limits, now });
  const inFlight = new UnorderedSet<Exchange>();
  const setting = { connect, pool, inFlight, limits, now };
  let isClosed = false;

  return {
    async post(request) {
      refuseHostHeader(request.headers);
      const ended = Promise.withResolvers<PostResult>();
      const exchange = new Exchange(setting, request, ended);
      if (isClosed) exchange.cut("shut_down");
      else exchange.start();
      return await ended.promise;
    },

    async close() {
      isClosed = true;
      for (const exchange of inFlight.all()) exchange.cut("shut_down");
      pool.endIdle();
    },

    gauges: () => ({
      inFlight: inFlight.size,
      openConnections: pool.openCount,
      idleConnections: pool.idleCount,
      idleOrigins: pool.originsCount,
    }),
  };
}

/** A `host` header could name another host than the one whose certificate was verified. */
function refuseHostHeader(headers: PostRequest["headers"]): void {
  for (const name in headers) {
    if (name.length === 4 && name.toLowerCase() === "host")
      throw new Error("The host header is not to be set.");
  }
}
