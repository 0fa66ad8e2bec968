import { NO_UNSAFE_ALLOWED_TARGETS, type UnsafeAllowedTargets } from "../rules/unsafe-allowed-targets.ts";
import type { Connect } from "./connection.ts";
import { createConnections } from "./connections.ts";
import { Exchange } from "./exchange.ts";
import { POST_LIMITS, type PostLimits } from "./limits.ts";
import type { PostRequest, PostResult } from "./result.ts";
import { UnorderedSet } from "./unordered-set.ts";

export type { PostRequest, PostResult } from "./result.ts";

export type PosterOptions = {
  /** From `createConnector`, or `createConnectorThroughProxy` where there is an egress proxy. */
  readonly connect: Connect;
  /** Those that `connect` was made with: kept connections are judged by them at each use. */
  readonly unsafeAllowedTargets?: UnsafeAllowedTargets;
  readonly limits?: Partial<PostLimits>;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type Poster = {
  /**
   * POSTs once and tells how it ended. Never follows a redirect, never sends again.
   * @throws Error only for a request that is malformed, which is a mistake of ours
   */
  post(request: PostRequest): Promise<PostResult>;
  /** Cuts what is in flight as `shut_down` and ends all connections; later POSTs end as `shut_down` unsent. */
  close(): Promise<void>;
  gauges(): PosterGauges;
};

export type PosterGauges = {
  readonly inFlight: number;
  readonly openConnections: number;
  /** Of the open ones, those that wait for the next POST. */
  readonly idleConnections: number;
  readonly idleOrigins: number;
};

export function createPoster(options: PosterOptions): Poster {
  const { connect, now, unsafeAllowedTargets = NO_UNSAFE_ALLOWED_TARGETS } = options;
  const limits: PostLimits = { ...POST_LIMITS, ...options.limits };
  const connections = createConnections({ unsafeAllowedTargets, limits, now });
  const inFlight = new UnorderedSet<Exchange>();
  const setting = { connect, connections, inFlight, limits, now };
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
      connections.endIdle();
    },

    gauges: () => ({
      inFlight: inFlight.size,
      openConnections: connections.openCount,
      idleConnections: connections.idleCount,
      idleOrigins: connections.originsCount,
    }),
  };
}

/** A `host` header would stand beside another name than the one that the certificate was checked for. */
function refuseHostHeader(headers: PostRequest["headers"]): void {
  for (const name in headers) {
    if (name.length === 4 && name.toLowerCase() === "host")
      throw new Error("The host header is not to be set.");
  }
}
