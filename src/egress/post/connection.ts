import type { Socket } from "node:net";
import { Client } from "undici";
import type { PostLimits } from "./limits.ts";

/** A fresh connection as a connector hands it over. */
export type OpenedConnection = {
  readonly socket: Socket;
  /** The checked address; null if a proxy chose it. */
  readonly remoteAddress: string | null;
  readonly timings: { readonly dnsMs: number | null; readonly connectMs: number; readonly tlsMs: number };
};

/** `hostname` as in a URL: an IPv6 address stands in brackets. */
export type Target = { readonly hostname: string; readonly port: number };

/**
 * Opens a trustworthy TLS connection to the target. Aborting the signal ends the try at once; the error then
 * does not matter.
 */
export type Connect = (target: Target, signal: AbortSignal) => Promise<OpenedConnection>;

/**
 * One TLS connection with an undici client of its own, lent to one POST at a time. A client for each, because the
 * POST that runs into its deadline must end without its neighbours, and only destroying the client ends it.
 */
export type Connection = {
  readonly origin: string;
  readonly target: Target;
  readonly remoteAddress: string | null;
  readonly client: Client;
  readonly socket: Socket;
  readonly openedAtMs: number;
  /** Its origin had one POST lately, and no second one: nothing says yet that keeping it pays. */
  isNewcomer: boolean;
  /** When it was last given back. */
  idleSinceMs: number;
  /** Why it ended, or null while it is open. */
  endedBy: Error | null;
};

/** A request found its connection ended before a byte of it was written. */
export class ConnectionEndedError extends Error {
  override readonly name = "ConnectionEndedError";
  // undici reconnects for ever on errors that carry one of its own codes.
  readonly code = "SEALPOST_CONNECTION_ENDED";
}

/** Whether a connection without a request on it was ended by the receiver, and not by its idle time or by us. */
export function isByReceiver(error: Error): boolean {
  return !(error instanceof ConnectionEndedError) && !("code" in error && error.code === "UND_ERR_INFO");
}

/** Takes a fresh connection over. It must be used at once, or ended. */
export function openConnection(
  origin: string,
  target: Target,
  opened: OpenedConnection,
  limits: PostLimits,
  nowMs: number,
): Connection {
  const connection: Connection = {
    origin,
    target,
    remoteAddress: opened.remoteAddress,
    socket: opened.socket,
    client: createClient(origin, opened.socket, limits, () => connection.endedBy),
    openedAtMs: nowMs,
    isNewcomer: true,
    idleSinceMs: nowMs,
    endedBy: null,
  };
  return connection;
}

/** A client that lives on this one socket: it never connects by itself, nor again. */
function createClient(
  origin: string,
  socket: Socket,
  limits: PostLimits,
  endedBy: () => Error | null,
): Client {
  let isHandedOver = false;
  return new Client(origin, {
    connect(_options, callback) {
      // Not at once: undici does not expect the answer before it has finished asking.
      queueMicrotask(() => {
        if (isHandedOver) {
          callback(new ConnectionEndedError("the connection has ended", { cause: endedBy() }), null);
          return;
        }
        isHandedOver = true;
        callback(null, socket);
      });
    },
    // Over HTTP/2 a refused stream would send the POST again, and header limits would not hold.
    allowH2: false,
    // The deadline is the POST's own: undici's timers count per chunk, restart at every 1xx and are coarse.
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: limits.responseHeadBytesMax,
    maxRequestsPerClient: limits.requestsPerConnectionMax,
    keepAliveTimeout: limits.idleMs,
    // A receiver's Keep-Alive hint may only make it shorter. It closes at the hint; we before that.
    keepAliveMaxTimeout: limits.idleMs,
    keepAliveTimeoutThreshold: 500,
  });
}
