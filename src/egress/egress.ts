import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { UnsafeAllowedTargets } from "./rules/unsafe-allowed-targets.ts";

/** `hostname` as in a judged URL: an IPv6 address stands in brackets. */
export type Target = { readonly hostname: string; readonly port: number };

/**
 * Opens a verified TLS connection to a checked address of the target; the caller owns the socket. Aborting the signal
 * ends the attempt at once.
 * @throws TargetError with its `progress`, or EgressProxyError
 */
export type Connect = (target: Target, signal: AbortSignal) => Promise<OpenedConnection>;

export type OpenedConnection = {
  readonly socket: TLSSocket;
  /** What `socket` runs on. Its `bytesRead` counts all that came, be it TLS's own records. */
  readonly transport: Socket;
  /** The checked address; null if a proxy chose it. */
  readonly remoteAddress: string | null;
  /** Milliseconds; `dnsMs` is null behind a proxy, which resolves the name itself. */
  readonly timings: { readonly dnsMs: number | null; readonly connectMs: number; readonly tlsMs: number };
};

/** The only way out to targets, for deliveries and for the receiver check. */
export type Egress = {
  readonly connect: Connect;
  /** The same that `connect` was made with: kept connections are judged by them at each use. */
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
};
