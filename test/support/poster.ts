// A poster as in the service, with the real connector, for receivers on loopback.
import type { Socket } from "node:net";
import { createDirectConnector } from "../../src/egress/connect/direct-connector.ts";
import { createResolver } from "../../src/egress/dns/resolver.ts";
import type { Connect, Egress } from "../../src/egress/egress.ts";
import type { PostLimits } from "../../src/egress/post/connection-pool.ts";
import { createPoster, type Poster, type PostRequest } from "../../src/egress/post/post.ts";
import { NO_UNSAFE_ALLOWED_TARGETS, parseUnsafeAllowedTargets } from "../../src/egress/rules/host.ts";
import { patience } from "./time-limits.ts";

export type TestPosterOptions = {
  /** Ports on loopback that may be reached, by `localhost`, `NAME.localhost` and `127.0.0.1`. */
  ports: readonly number[];
  caPem?: string;
  limits?: Partial<PostLimits>;
  /** Default 5,000. */
  connectTimeoutMs?: number;
  now?: () => number;
  /** Given each connection when it has come about. */
  onConnected?: (socket: Socket) => void;
};

export function createTestPoster(options: TestPosterOptions): Poster {
  const now = options.now ?? (() => performance.now());
  const unsafeAllowedTargets = parseUnsafeAllowedTargets(
    options.ports.flatMap((port) =>
      ["localhost", "*.localhost", "127.0.0.1"].map((host) => `${host}:${port}`),
    ),
  );
  const connect = createDirectConnector({
    resolver: createResolver({ timeoutMs: patience(1_000), now }),
    unsafeAllowedTargets,
    connectTimeoutMs: options.connectTimeoutMs ?? patience(5_000),
    ...(options.caPem !== undefined && { ca: options.caPem }),
  });
  const connectHeard: Connect = async (target, signal) => {
    const opened = await connect(target, signal);
    options.onConnected?.(opened.socket);
    return opened;
  };
  return createPoster({
    egress: { connect: connectHeard, unsafeAllowedTargets },
    now,
    ...(options.limits && { limits: options.limits }),
  });
}

/** Posts over the test's own connector, with no exemptions. */
export function egressOf(connect: Connect): Egress {
  return { connect, unsafeAllowedTargets: NO_UNSAFE_ALLOWED_TARGETS };
}

/** A small request; `deadlineMs` defaults to 5,000. */
export function postRequest(url: URL, more: Partial<PostRequest> = {}): PostRequest {
  return {
    url,
    headers: { "content-type": "application/json" },
    body: Buffer.from('{"event":"analysis.succeeded"}'),
    deadlineMs: patience(5_000),
    ...more,
  };
}
